"""Tensors that are not float32: moved, calculated with and converted as numpy does."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Cast, Expr, binary, evaluate, maximum, minimum, select, unary
from jitdelegate.ir.forms import Concat, Form, IndexMap, Map, Reduce, View
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE

MOVED = ("float32", "float16", "int32", "int64", "bool", "int8", "uint8", "int16", "uint16", "uint32")
CALCULATED = ("float32", "int32", "int64")
SHAPES = ((), (1,), (15,), (33,), (3, 5), (2, 3, 4, 17), (1, 4, 4, 32))
A, B, C = Arg(0), Arg(1), Arg(2)


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    low = 0 if dtype.startswith("u") else -100
    return np.asarray(random.integers(low, 100, shape)).astype(dtype) if dtype != "bool" else random.random(shape) < 0.5


def check(form: Form, feeds: list[np.ndarray], shape: tuple[int, ...], dtype: str, features: str) -> None:
    """One node against the form's reference."""
    tensors = [Tensor(f"x{k}", feed.shape, str(feed.dtype)) for k, feed in enumerate(feeds)]
    tensors.append(Tensor("y", shape, dtype))
    inputs = tuple(range(len(feeds)))
    graph = Graph(tuple(tensors), (Node("TEST", inputs, (len(feeds),), form=form),), inputs, (len(feeds),))
    (found,) = execute(graph, feeds, features)
    (expected,) = run_graph(graph, feeds)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, expected.reshape(shape))


def elementwise(expr: Expr, feeds: list[np.ndarray], features: str) -> None:
    """A Map over operands that broadcast to the first."""
    shape = feeds[0].shape
    accesses = tuple(IndexMap.broadcast(feed.shape, shape) for feed in feeds)
    check(Map(expr, accesses), feeds, shape, str(evaluate(expr, feeds).dtype), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", MOVED)
def test_every_type_is_moved(dtype: str, features: str) -> None:
    data = values((2, 3, 4, 5), dtype, 0)
    ones = (1, 1, 1, 1)
    check(Map(A, (IndexMap((0, 3, 1, 2), (0, 0, 0, 0), ones),)), [data], (2, 4, 5, 3), dtype, features)
    check(Map(A, (IndexMap((0, 1, 2, 3), (0, 2, 3, 4), (1, -1, -1, -2)),)), [data], (2, 3, 4, 3), dtype, features)
    check(Map(A, (IndexMap((0, 1, 2, 3), (0, -1, 0, -2), ones, 1.0),)), [data], (2, 5, 4, 9), dtype, features)
    check(Concat(axis=2), [data, values((2, 3, 7, 5), dtype, 1)], (2, 3, 11, 5), dtype, features)
    check(View(), [data], (6, 20), dtype, features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_every_float16_is_converted(features: str) -> None:
    """And, of the floats between each two of them, the middle and its neighbours."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    elementwise(Cast(A, "float32"), [halves], features)
    ordered = np.unique(halves[np.isfinite(halves)].astype(np.float32))
    middles = np.append((ordered[1:] + ordered[:-1]) / 2, np.float32([65520, -65520, 0.0, -0.0, 1e-45, 3e38]))
    for direction in (-np.inf, 0, np.inf):
        floats = np.nextafter(middles, np.float32(direction)) if direction else middles
        elementwise(Cast(A, "float16"), [np.append(floats, np.float32([np.nan, np.inf, -np.inf]))], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", CALCULATED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_are_calculated_with(shape: tuple[int, ...], dtype: str, features: str) -> None:
    a, b = values(shape, dtype, 0), values(shape[-1:], dtype, 1)
    elementwise(maximum(A + B * 3, minimum(A, B) - 7), [a, b], features)
    elementwise(unary("abs", -A), [a], features)
    elementwise(select(binary("lt", A, B), A * 2, B), [a, b], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", CALCULATED)
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_give_truth_values(name: str, dtype: str, features: str) -> None:
    a, b = values((3, 37), dtype, 0) % 3, values((3, 37), dtype, 1) % 3
    if dtype == "float32":
        a[0, :3] = np.nan
    elementwise(binary(name, A, B), [a, b], features)
    elementwise(binary("and", binary(name, A, B), unary("not", C)), [a, b, values((37,), "bool", 2)], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "bool"])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "max", "min", "shift_right", "add", "sub", "mul"])
def test_integers_of_all_sizes_wrap_and_compare_by_their_own_sign(name: str, dtype: str, features: str) -> None:
    if dtype == "bool":
        edges = np.array([False, True])
    else:
        limits = np.iinfo(dtype)
        edges = np.array([0, 1, 3, 7, 31, limits.max, limits.max // 2, limits.max // 2 + 1, limits.min], dtype)
    if dtype != "bool" or name in ("eq", "ne", "max", "min"):
        a, b = (np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(edges, edges))
        elementwise(binary(name, A, B), [a, b], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bits_and_truth_values_are_combined(name: str, features: str) -> None:
    for dtype in ("int32", "int64", "bool"):
        elementwise(binary(name, A, B), [values((41,), dtype, 0), values((41,), dtype, 1)], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("target", MOVED)
@pytest.mark.parametrize("source", MOVED)
def test_numbers_are_converted(source: str, target: str, features: str) -> None:
    data = values((2, 35), source, 0)
    if source == "float32":
        data[0, :8] = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.9, -0.9, 300.5]
    elementwise(Cast(A, target), [data], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap_and_divide_towards_zero(dtype: str, features: str) -> None:
    limits = np.iinfo(dtype)
    data = np.array([limits.min, limits.max, -7, 7, 0, 1, -1] * 5, dtype)
    elementwise(A + A * 5, [data], features)
    for divisor in (-1, 1, 3, -3):
        elementwise(A / divisor, [data], features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_division_by_zero_does_not_end_the_process(features: str) -> None:
    zeros = np.zeros(20, np.int32)
    graph_inputs = [np.arange(20, dtype=np.int32), zeros]
    tensors = (Tensor("a", (20,), "int32"), Tensor("b", (20,), "int32"), Tensor("y", (20,), "int32"))
    same = IndexMap((0,), (0,), (1,))
    graph = Graph(tensors, (Node("TEST", (0, 1), (2,), form=Map(A / B, (same, same))),), (0, 1), (2,))
    (found,) = execute(graph, graph_inputs, features)
    assert found.shape == (20,)


@pytest.mark.parametrize("features", RUNNABLE)
def test_integers_beyond_a_float_keep_their_bits(features: str) -> None:
    elementwise(A + ((1 << 40) + 1), [np.arange(19, dtype=np.int64)], features)
    elementwise(maximum(A, 16777217), [np.arange(19, dtype=np.int32)], features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_integers_and_truth_values_are_reduced(axes: tuple[int, ...], features: str) -> None:
    shape = tuple(size for axis, size in enumerate((3, 5, 19)) if axis not in axes)
    for dtype in ("int32", "int64"):
        for kind in ("sum", "prod", "max", "min"):
            check(Reduce(kind=kind, axes=axes), [values((3, 5, 19), dtype, 3)], shape, dtype, features)
    for kind in ("max", "min"):
        check(Reduce(kind=kind, axes=axes), [values((3, 5, 19), "bool", 3)], shape, "bool", features)
