"""Elementwise functions at the ends of the number line: as numpy computes them, NaN and signed infinities included."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import BINARY, RESULT, UNARY, Arg, Const, binary, evaluate, fma, maximum, unary
from jitdelegate.ir.forms import IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.passes.lower import lower
from jitdelegate.targets.host import level
from tests.targets.elementwise_graphs import near_ties, of_elements
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE

EDGES = [0.0, -0.0, 1e-34, 1e-6, 0.5, 1.0, 7.9, 9.0, 20.0, 87.0, 88.7, 89.0, 1e3, 3e38, np.inf]
SMALLEST_NORMAL = np.float32(2.0**-126)
VALUES = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)


def one_node(op: str, form: Map | None = None, data: np.ndarray = VALUES, **attrs: object) -> Graph:
    tensors = (Tensor("x", data.shape, "float32"), Tensor("y", data.shape, "float32"))
    return Graph(tensors, (Node(op, (0,), (1,), attrs, origin=(0,), form=form),), (0,), (1,))


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("function", sorted(set(UNARY) - {"not"}))
def test_a_function_of_one_value_agrees_with_numpy_everywhere(function: str, features: str) -> None:
    form = Map(unary(function, RESULT), (IndexMap((0,), (0,), (1,)),))
    (found,) = execute(one_node(function, form), [VALUES], features)
    with np.errstate(all="ignore"):
        expected = UNARY[function](VALUES)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-38)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def of_two(function: str, a: np.ndarray, b: np.ndarray, features: str) -> np.ndarray:
    """What compiled code makes of two equally long arrays."""
    dtype, shape, same = str(a.dtype), a.shape, IndexMap((0,), (0,), (1,))
    tensors = tuple(Tensor(name, shape, dtype) for name in "aby")
    node = Node("TEST", (0, 1), (2,), form=Map(binary(function, Arg(0), Arg(1)), (same, same)))
    return execute(Graph(tensors, (node,), (0, 1), (2,)), [a, b], features)[0]


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("function", ["pow", "atan2", "floor_div", "floor_mod"])
def test_a_function_of_two_values_agrees_with_numpy_everywhere(function: str, features: str) -> None:
    edges = np.array([*VALUES, 2, 3, -2, -3, 2.5, -7.25, 16777216, 16777217, 2e-38, 0.1, -0.1], np.float32)
    random = np.random.default_rng(0).normal(0, 5, (2, 3000)).astype(np.float32)
    a, b = (np.concatenate([grid.ravel(), own]) for grid, own in zip(np.meshgrid(edges, edges), random, strict=True))
    found = of_two(function, a, b, features)
    with np.errstate(all="ignore"):
        expected = BINARY[function](a, b).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-38)
    if function in ("pow", "atan2"):
        same = np.isnan(expected) | (np.signbit(found) == np.signbit(expected))
        assert same.all(), list(zip(a[~same], b[~same], strict=True))[:5]


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_product_and_a_sum_are_rounded_once(features: str) -> None:
    operands, expr = near_ties(), fma(Arg(0), Arg(1), Arg(2))
    with np.errstate(all="ignore"):
        expected = evaluate(expr, operands)
    found = execute(of_elements(expr, ["float32"] * 3, operands[0].size), operands, features)[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("function", ["pow", "div", "floor_div", "floor_mod", "shift_right"])
def test_a_function_of_two_integers_agrees_with_numpy_everywhere(function: str, dtype: str, features: str) -> None:
    limits = np.iinfo(dtype)
    edges = np.array([0, 1, -1, 2, 3, -3, 7, -7, 31, 40, 1000, limits.min, limits.max], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    b = np.abs(b) if function == "pow" else b
    b = np.where(b == limits.min, 5, b)
    with np.errstate(all="ignore"):
        expected = BINARY[function](a, b)
    np.testing.assert_array_equal(of_two(function, a, b, features), expected)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("function", ["sin", "cos", "erf", "exp", "log", "tanh", "logistic"])
def test_a_function_is_within_few_units_of_the_exact_value(function: str, features: str) -> None:
    random = np.random.default_rng(1)
    data = np.concatenate([random.uniform(-10, 10, 20000), random.normal(0, 1, 5000) ** 9]).astype(np.float32)
    data[np.abs(data) < SMALLEST_NORMAL] = 0  # as compiled code takes them
    (found,) = execute(
        one_node("TEST", Map(unary(function, RESULT), (IndexMap((0,), (0,), (1,)),)), data), [data], features
    )
    with np.errstate(all="ignore"):
        expected = UNARY[function](data.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=2e-38)


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


@pytest.mark.parametrize("features", RUNNABLE)
def test_denormals_are_zeros_in_a_run_and_numbers_after_it(features: str) -> None:
    tiny = np.array([SMALLEST_NORMAL / 2, -SMALLEST_NORMAL / 2, SMALLEST_NORMAL, -100.0], np.float32)
    doubled = Map(binary("mul", RESULT, Const(2.0)), (IndexMap((0,), (0,), (1,)),))
    (found,) = execute(one_node("TEST", doubled, tiny), [tiny], features)
    np.testing.assert_array_equal(found, [0, 0, 2 * SMALLEST_NORMAL, -200])
    (powers,) = execute(one_node("TEST", Map(unary("exp", RESULT), doubled.operands), tiny), [tiny], features)
    np.testing.assert_array_equal(powers, [1, 1, 1, 0])
    np.testing.assert_array_equal(tiny[:2] * 2, [SMALLEST_NORMAL, -SMALLEST_NORMAL])


def test_zeros_of_both_signs_are_two_constants() -> None:
    quotients = Map(RESULT / 0.0 + maximum(RESULT / -0.0, -1.0), (IndexMap((0,), (0,), (1,)),))
    (found,) = execute(one_node("TEST", quotients), [np.abs(VALUES)], level())
    with np.errstate(all="ignore"):
        expected = evaluate(quotients.epilogue, [np.abs(VALUES)])
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(found[4])
