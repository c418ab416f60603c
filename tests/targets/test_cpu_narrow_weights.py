"""Weights that fit a type narrower than float32: stored in it, and converted in registers or panel by panel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.dequantize import Dequantized, dequantized, integers, on_grid, requantized
from jitdelegate.ir.expr import RESULT, maximum
from jitdelegate.ir.forms import Contract, Depthwise
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.levels import INTEGERS, RUNNABLE

KINDS = ("float16", "int8", "int8 per tensor", "int8 blocks", "int4", "int4 blocks")


def constant(kind: str, shape: tuple[int, ...]) -> Tensor:
    """A constant of float16, or of integers with scales per row, per tensor or per 32 elements of a row."""
    random, (dtype, _, scheme) = np.random.default_rng(len(kind)), kind.partition(" ")
    if dtype == "float16":
        return Tensor("w", shape, dtype, random.normal(0, 0.1, shape).astype(np.float16))
    limit, size = (8, 32) if dtype == "int4" else (128, 32)
    numbers = random.integers(-limit, limit, shape).astype(np.int8)
    count = {"": shape[0], "per tensor": 1, "blocks": numbers.size // size}[scheme]
    stored = np.float16 if scheme == "blocks" else np.float32  # in a file
    scales = tuple(stored(random.uniform(0.01, 0.02, count)).tolist())
    quant = Quant(scales, (0,) * count, 0, size if scheme == "blocks" else 0)
    flat = np.append(numbers.ravel(), np.int8(0)).view(np.uint8) & 15
    packed = flat[0 : numbers.size : 2] | flat[1 : numbers.size + 1 : 2] << 4
    return Tensor("w", shape, dtype, packed if dtype == "int4" else numbers, quant)


def product(
    kind: str, data: tuple[int, ...], filters: tuple[int, ...], form: Contract, result: tuple[int, ...]
) -> Graph:
    """data f32 -> its product with dequantized filters, bias and relu."""
    weights = dequantized(constant(kind, filters))
    bias = np.random.default_rng(5).normal(0, 1, filters[0]).astype(np.float32)
    tensors = (
        Tensor("data", data, "float32"),
        weights,
        Tensor("bias", bias.shape, "float32", bias),
        Tensor("result", result, "float32"),
    )
    node = Node("CONV_2D", (0, 1, 2), (3,), form=replace(form, epilogue=maximum(RESULT, 0.0)))
    return Graph(tensors, (node,), (0,), (3,))


def check(graph: Graph, features: str) -> None:
    """Asserts that the CPU computes what the forms say."""
    feeds = [np.random.default_rng(1).normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    for found, expected in zip(execute(graph, feeds, features), run_graph(graph, feeds), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", (1, 70, 700))
def test_rows_times_a_narrow_matrix(features: str, kind: str, rows: int) -> None:
    outputs, depth = 130, 96
    graph = product(kind, (rows, depth), (outputs, depth), Contract(), (rows, outputs))
    check(graph, features)
    bits = 32 if (kind, features) == ("float16", "generic") else {"float16": 16, "int8": 8, "int4": 4}[kind.split()[0]]
    scales = outputs * (depth // 32 if "blocks" in kind else 1) * 4
    padded = -(-outputs // 16) * 16 / outputs
    assert len(generate(graph, features).weights) < (outputs * depth * bits / 8 + 4 * outputs + scales) * padded + 256


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ("int8", "int4"))
def test_narrow_weights_are_converted_once_where_many_tiles_meet_them(features: str, kind: str) -> None:
    level = LEVELS[features]
    for rows, is_once in ((level.unpack_tiles * level.tiles[-1], False), (200 * level.tiles[-1], True)):
        graph, texts = product(kind, (rows, 96), (128, 96), Contract(), (rows, 128)), dict[str, str]()
        generate(graph, features, lambda stage, make, to=texts: to.update({stage: make()}))
        assert ("unpack_" in texts["assembly"]) == is_once


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ("float16", "int8", "int4"))
@pytest.mark.parametrize("channels", (17, 32))
def test_windows_and_transposed_windows(features: str, kind: str, channels: int) -> None:
    form = Contract(kernel=(3, 3), padding=(1, 1, 1, 1))
    check(product(kind, (1, 9, 9, channels), (33, 3, 3, channels), form, (1, 9, 9, 33)), features)
    form = Contract(kernel=(3, 3), stride=(2, 2), transposed=True)
    check(product(kind, (1, 5, 5, channels), (33, 3, 3, channels), form, (1, 11, 11, 33)), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ("float16", "int8", "int4"))
def test_groups_of_narrow_filters(features: str, kind: str) -> None:
    form = Contract(kernel=(3, 3), padding=(1, 1, 1, 1), groups=2)
    check(product(kind, (1, 9, 9, 48), (34, 3, 3, 24), form, (1, 9, 9, 34)), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ("float16", "int8", "int4"))
def test_a_narrow_product_fused_behind_a_depthwise(features: str, kind: str) -> None:
    shape, taps = (1, 64, 64, 80), np.random.default_rng(2).normal(0, 1, (1, 3, 3, 80)).astype(np.float32)
    graph = product(kind, shape, (72, 1, 1, 80), Contract(), (1, 64, 64, 72))
    first = Node("DEPTHWISE_CONV_2D", (4, 5, ABSENT), (0,), form=Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1)))
    tensors = (*graph.tensors, Tensor("image", shape, "float32"), Tensor("taps", taps.shape, "float32", taps))
    check(replace(graph, tensors=tensors, nodes=(first, *graph.nodes), inputs=(4,)), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_narrow_matrix_are_gathered(features: str, kind: str) -> None:
    depth, outputs, chosen = 96, 150, np.int32([0, 149, 150, -1, 75, 50, 4, 1 << 30])
    graph = product(kind, (90, depth), (outputs, depth), Contract(), (90, outputs))
    tensors = (*graph.tensors, Tensor("places", (8, 1), "int32"), Tensor("gathered", (8, depth), "float32"))
    gather = Node("GATHER", (1, 4), (5,), form=Gather())
    both = replace(graph, tensors=tensors, nodes=(gather, *graph.nodes), inputs=(0, 4), outputs=(3, 5))
    feeds = [np.zeros((90, depth), np.float32), chosen[:, None]]
    np.testing.assert_array_equal(execute(both, feeds, features)[1], run_graph(both, feeds)[1])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_dequantized_constants_are_requantized_exactly(kind: str) -> None:
    source = constant(kind, (5, 96))
    found = dequantized(source)
    assert found.data is not None
    assert found.grid is not None
    again, from_floats = requantized(found), on_grid(found.data, found.grid)
    assert again is not None
    assert from_floats is not None
    for one, other in zip(again, from_floats, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again[0], integers(source))
    np.testing.assert_array_equal(
        (again[0].reshape(*again[1].shape, -1) * again[1][..., None]).ravel(), found.data.ravel()
    )


def test_no_floats_of_a_dequantized_constant_are_kept() -> None:
    found = dequantized(constant("int8", (5, 96)))
    assert isinstance(found, Dequantized)
    assert found.data is not found.data
    assert requantized(found, "int16") is not None
    other = replace(found, data=np.float32([[0.3]]), shape=(1, 1))
    assert other.data is other.data
    assert requantized(other) is None


def test_zero_points_leave_no_bytes_where_the_difference_is_none() -> None:
    source = Tensor("w", (2, 2), "uint8", np.uint8([[0, 255], [3, 4]]), Quant((0.5,), (3,)))
    found = dequantized(source)
    wide = requantized(found, "int16")
    assert requantized(found) is None
    assert wide is not None
    np.testing.assert_array_equal(wide[0], [[-3, 252], [0, 1]])
    np.testing.assert_array_equal(found.data, np.float32([[-1.5, 126], [0, 0.5]]))


def test_floats_beside_the_grid_stay_floats() -> None:
    grid = Quant((0.5,), (0,))
    assert on_grid(np.float32([[0.5, 1.0], [-64, 63.5]]), grid) is not None
    assert on_grid(np.float32([[0.5, 1.0], [-64, 64]]), grid) is None
    assert on_grid(np.float32([[0.5, 1.25], [-64, 63.5]]), grid) is None


@pytest.mark.parametrize("features", INTEGERS)
@pytest.mark.parametrize("dtype", ("int8", "uint8", "int16"))
@pytest.mark.parametrize("rows", (1, 40))
@pytest.mark.parametrize("depth", (96, 100, 31))
def test_integers_times_an_int4_matrix(features: str, dtype: str, rows: int, depth: int) -> None:
    outputs, info, random = 200, np.iinfo(dtype), np.random.default_rng(depth)
    weights = random.integers(-8, 8, (outputs, depth)).astype(np.int8)
    accumulator, zero = ("int64", 0) if dtype == "int16" else ("int32", 3)
    bias = random.integers(-1000, 1000, outputs).astype(accumulator)
    tensors = (
        Tensor("data", (rows, depth), dtype),
        Tensor("w", weights.shape, "int8", weights),
        Tensor("bias", bias.shape, accumulator, bias),
        Tensor("result", (rows, outputs), accumulator),
    )
    form = Contract(accumulator=accumulator, input_zero=zero, halo_value=zero)
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,), form=form),), (0,), (3,))
    data = random.integers(info.min, info.max + 1, (rows, depth)).astype(dtype)
    expected = (data.astype(np.int64) - zero) @ weights.T + bias
    np.testing.assert_array_equal(execute(graph, [data], features)[0], expected)
    if LEVELS[features].plus_bytes and dtype != "int16" and depth != 31:
        assert len(generate(graph, features).weights) < outputs * depth * 0.62 + 1500


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("kind", ("float16", "int8", "int8 per tensor"))
@pytest.mark.parametrize(("channels", "multiplier", "size"), [(48, 1, 3), (21, 1, 5), (16, 2, 3)])
@pytest.mark.parametrize("width", (11, 33))
def test_narrow_taps_of_a_depthwise(
    features: str, kind: str, channels: int, multiplier: int, size: int, width: int
) -> None:
    outputs = channels * multiplier
    rows = dequantized(constant(kind, (outputs, size * size)))
    assert rows.data is not None
    taps = np.ascontiguousarray(rows.data.T).reshape(1, size, size, outputs)
    grid = None if rows.grid is None else replace(rows.grid, axis=3)
    bias = np.random.default_rng(5).normal(0, 1, outputs).astype(np.float32)
    tensors = (
        Tensor("data", (1, 9, width, channels), "float32"),
        Tensor("taps", taps.shape, "float32", taps, grid=grid),
        Tensor("bias", bias.shape, "float32", bias),
        Tensor("result", (1, 9, width, outputs), "float32"),
    )
    form = Depthwise(kernel=(size, size), padding=(size // 2,) * 4, multiplier=multiplier)
    graph = Graph(tensors, (Node("DEPTHWISE_CONV_2D", (0, 1, 2), (3,), form=form),), (0,), (3,))
    check(graph, features)
    if (kind, features) != ("float16", "generic"):
        padded, nbytes = -(-outputs // 16) * 16, 2 if kind == "float16" else 1
        assert len(generate(graph, features).weights) <= padded * (taps.size // outputs * nbytes + 8) + 256
