"""The work of kernels is that of their operators."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.commands.measurement.profile import Node
from jitdelegate.commands.suite.kernel_work import KernelWork, kernel_work
from jitdelegate.ir.graph import Graph, Quant
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

ROWS, DEPTH, WIDTH = 3, 8, 4


def graph(dtype: str = "float32") -> Graph:
    """FULLY_CONNECTED of [3, 8] by [4, 8], ADD with itself, and TANH; weights of int8 or float32."""
    model = ModelBuilder()
    weights = np.ones((WIDTH, DEPTH), dtype)
    x = model.input((ROWS, DEPTH))
    w = model.constant(weights, quant=Quant((0.1,), (0,)) if dtype == "int8" else None)
    y = model.op("FULLY_CONNECTED", [x, w], (ROWS, WIDTH))
    z = model.op("ADD", [y, y], (ROWS, WIDTH))
    model.output(model.op("TANH", [z], (ROWS, WIDTH)))
    return read(model.finish()).graphs[0]


@pytest.mark.parametrize(
    ("dtype", "precision", "kind"),
    [
        *(("float32", None, "float32"), ("float32", "bfloat16", "bfloat16"), ("float32", "tf32", "float32")),
        ("int8", None, "int8"),
    ],
)
def test_products_are_counted_by_what_is_multiplied(dtype: str, precision: str | None, kind: str) -> None:
    (found,) = kernel_work([Node("FC", "", 1.0, (0, 1, 2))], graph(dtype), precision)
    assert found.work == {kind: ROWS * DEPTH * WIDTH}


def test_bytes_within_a_kernel_are_not_counted() -> None:
    first = 4 * (ROWS * DEPTH + WIDTH * DEPTH)
    value = 4 * ROWS * WIDTH
    fused = kernel_work([Node("FC+ADD", "", 1.0, (0, 1)), Node("TANH", "", 1.0, (2,))], graph(), None)
    assert [each.nbytes for each in fused] == [first + value, 2 * value]
    assert [each.work for each in fused] == [{"float32": ROWS * DEPTH * WIDTH}, {}]


def test_a_kernel_without_an_operator_helps_the_next_one() -> None:
    nodes = [
        Node("Copy", "", 1.0, ()),
        Node("FC", "", 2.0, (0,)),
        Node("ADD", "", 4.0, (1, 2)),
        Node("Copy", "", 8.0, ()),
    ]
    found = kernel_work(nodes, graph(), None)
    assert [(each.number, each.seconds) for each in found] == [(1, 3.0), (2, 4.0), (3, 8.0)]
    assert found[-1] == KernelWork("Copy", 3, 8.0, {}, 0)
