"""Elementwise functions at the ends of the number line: as numpy computes them, NaN and signed infinities included."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, UNARY, unary
from jitdelegate.ir.forms import Access, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.runtime.cpu_features import level
from tests.targets.execute import execute

LEVELS = ("generic", "x86-64-v3", "x86-64-v4")
RUNNABLE = LEVELS[: LEVELS.index(level()) + 1]
EDGES = [0.0, -0.0, 1e-38, 1e-6, 0.5, 1.0, 7.9, 9.0, 20.0, 87.0, 88.7, 89.0, 1e3, 3e38, np.inf]
VALUES = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)


def one_node(op: str, form: Map | None = None, **attrs: object) -> Graph:
    tensors = (Tensor("x", VALUES.shape, "float32"), Tensor("y", VALUES.shape, "float32"))
    return Graph(tensors, (Node(op, (0,), (1,), attrs, origin=(0,), form=form),), (0,), (1,))


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("function", sorted(set(UNARY) - {"not"}))
def test_a_function_of_one_value_agrees_with_numpy_everywhere(function: str, features: str) -> None:
    form = Map(unary(function, RESULT), (Access((0,), (0,), (1,)),))
    (found,) = execute(one_node(function, form), [VALUES], features)
    with np.errstate(all="ignore"):
        expected = UNARY[function](VALUES)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-38)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("op", ["HARD_SWISH", "GELU", "RELU6", "ELU"])
def test_activations_neither_overflow_nor_leak_where_they_saturate(op: str, features: str) -> None:
    attrs = {"approximate": True} if op == "GELU" else {}
    graph = one_node(op, **attrs)
    (found,) = execute(lower(graph), [VALUES], features)
    with np.errstate(all="ignore"):
        (expected,) = OPS[op].reference([VALUES.astype(np.float64)], attrs)
    finite = np.isfinite(VALUES) & np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=2e-6, atol=1e-5)
