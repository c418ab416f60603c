"""Every function of expressions on CUDA, at the ends of the number line: as numpy computes it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from jitdelegate.ir.expr import BINARY, UNARY, Apply, Arg, evaluate, unary
from jitdelegate.ir.forms import Access, Map
from jitdelegate.targets.cuda.expression import FUNCTIONS
from tests.targets.cuda_execute import run
from tests.targets.cuda_graphs import graph_of

EDGES = [0.0, 1e-45, 1e-38, 1e-6, 0.3, 0.5, 1.0, 1.5, 7.9, 9.0, 20.0, 87.0, 88.7, 89.0, 1e3, 16777217.0, 3e38, np.inf]
VALUES = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)
RANDOM = np.random.default_rng(0).normal(0, 4, 200).astype(np.float32)


def test_every_function_has_device_code() -> None:
    assert set(FUNCTIONS) == {*UNARY, *BINARY}


@pytest.mark.parametrize("function", sorted(UNARY))
def test_a_function_of_one_value_agrees_with_numpy_everywhere(function: str) -> None:
    data = np.concatenate([VALUES, RANDOM])
    same = Access((0,), (0,), (1,))
    (found,) = run(graph_of(Map(unary(function, Arg(0)), (same,)), [data.shape], data.shape), [data])
    with np.errstate(all="ignore"):
        expected = UNARY[function](data)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-38)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("function", sorted(BINARY))
def test_a_function_of_two_values_agrees_with_its_meaning_everywhere(function: str) -> None:
    left, right = (np.array(side, np.float32) for side in zip(*product(VALUES, VALUES), strict=True))
    same = Access((0,), (0,), (1,))
    expr = Apply(function, (Arg(0), Arg(1)))
    (found,) = run(graph_of(Map(expr, (same, same)), [left.shape, right.shape], left.shape), [left, right])
    with np.errstate(all="ignore"):
        expected = evaluate(expr, [left, right])
    if function in ("max", "min"):
        certain = ~np.isnan(right) & ((left != 0) | (right != 0))
        found, expected = found[certain], expected[certain]
    np.testing.assert_array_equal(found, expected)


def test_equal_parts_of_an_expression_are_computed_once() -> None:
    part = unary("exp", Arg(0))
    data = np.float32([0.5, -0.5, 2.0])
    graph = graph_of(Map(part / (part + 1.0), (Access((0,), (0,), (1,)),)), [(3,)], (3,))
    np.testing.assert_allclose(run(graph, [data])[0], np.exp(data) / (np.exp(data) + 1), rtol=1e-6)
