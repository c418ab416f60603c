"""Softmax on CUDA: rows from one element to more than registers hold."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import IndexMap, Softmax
from jitdelegate.ir.graph import Graph
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.cuda_graphs import Shape, compare, graph_of, stored_between


def softmax(*shape: int, beta: float = 1.0) -> Graph:
    return graph_of(Softmax(beta=beta), [shape], shape)


SHAPES = [(1,), (5, 1), (300, 2), (3, 7, 10), (7, 31), (9, 32), (2, 33), (2, 100), (3, 129), (1, 1001), (2, 1024)]
LONG = [(1, 8193), (2, 4100), (1, 33_000)]


@pytest.mark.parametrize("shape", [*SHAPES, *LONG], ids=str)
def test_rows_of_every_length_are_as_the_reference_has_them(shape: Shape) -> None:
    graph = softmax(*shape, beta=0.7)
    feed = np.random.default_rng(0).uniform(-8, 8, shape).astype(np.float32)
    compare(graph, feeds=[feed], tolerance=1e-6)


@pytest.mark.parametrize("length", [10, 200, 3000, 9001])
def test_extreme_elements_are_as_numpy_has_them(length: int) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (7, length)).astype(np.float32)
    for row, value in enumerate([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e4]):
        rows[row, length // 2] = value
    rows[6] = -np.inf
    compare(softmax(7, length), feeds=[rows])


@pytest.mark.parametrize("length", [3, 33, 1001, 9001])
def test_threads_without_elements_have_no_part_in_the_maximum(length: int) -> None:
    compare(softmax(2, length), feeds=[np.random.default_rng(0).uniform(-502, -498, (2, length)).astype(np.float32)])


def test_no_element_of_another_row_is_read() -> None:
    rows = np.full((40, 3), np.nan, np.float32)
    rows[17] = 1, 2, 3
    compare(softmax(40, 3), feeds=[rows], schedule="random", seed=1)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 16), (2, 1001), (1, 9000)], ids=str)
def test_rows_of_16_bit_elements_are_computed_in_float32(shape: Shape, precision: str) -> None:
    compare(stored_between(softmax(*shape)), precision)


@pytest.mark.parametrize("length", [8, 257, 8193])
def test_an_epilogue_reads_channels_and_rows(length: int) -> None:
    output = (2, length)
    operands = [(length,), (2, 1), (1,), output]
    expr = (RESULT + Arg(1)) * Arg(2) + Arg(3) * Arg(4)
    form = Softmax(expr, tuple(IndexMap.broadcast(operand, output) for operand in operands))
    compare(graph_of(form, [output, *operands], output))


def test_softmax_compiles_everywhere_without_local_memory() -> None:
    shapes = ((300, 2), (2, 100), (1, 1001), (1, 1024), (1, 8192), (1, 33_001))
    assert_compiles_everywhere([template for shape in shapes for template in templates_of(softmax(*shape))])
    half = stored_between(softmax(2, 4096))
    assert_compiles_everywhere(templates_of(half, precision="float16"))
