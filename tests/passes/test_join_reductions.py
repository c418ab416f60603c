"""Reductions after reductions, and short sums of elementwise work."""

from __future__ import annotations

import pytest

from jitdelegate.ir.forms import Map, Reduce
from jitdelegate.ir.graph import Graph
from jitdelegate.passes import join_reductions, lower
from tests.passes.graphs import Builder, assert_same

KERNELS = (Map, Reduce)


def joined(graph: Graph) -> list[type]:
    found = join_reductions(lower(graph))
    assert_same(graph, found)
    return [type(node.form) for node in found.nodes if isinstance(node.form, KERNELS)]


def reduced(build: Builder, op: str, x: int, *axes: int, keep: bool = True) -> int:
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(build.shape(x)) if keep or axis not in axes)
    return build.op(op, [x, build.constant(axes, "int32")], shape, keep_dims=keep)


@pytest.mark.parametrize("first, second", [("SUM", "MEAN"), ("MEAN", "SUM"), ("SUM", "SUM"), ("MEAN", "MEAN")])
@pytest.mark.parametrize("keep", [True, False])
def test_sums_and_means_of_each_other_are_one_reduction(first: str, second: str, keep: bool) -> None:
    build = Builder()
    once = reduced(build, first, build.input(2, 4, 5, 3, 8), 3, keep=keep)
    image = build.op("RESHAPE", [once, build.constant([2, 4, 5, 8], "int32")], (2, 4, 5, 8))
    assert joined(build.finish(reduced(build, second, image, 1, 2))) == [Reduce]


@pytest.mark.parametrize("first, second, count", [("REDUCE_MAX", "REDUCE_MAX", 1), ("REDUCE_MAX", "SUM", 2)])
def test_extremes_join_extremes_only(first: str, second: str, count: int) -> None:
    build = Builder()
    once = reduced(build, first, build.input(2, 4, 8), 2)
    assert joined(build.finish(reduced(build, second, once, 1))) == [Reduce] * count


def test_a_sum_that_others_read_stays() -> None:
    build = Builder()
    once = reduced(build, "SUM", build.input(2, 4, 8), 2)
    assert joined(build.finish(reduced(build, "MEAN", once, 1), once)) == [Reduce, Reduce]


@pytest.mark.parametrize(
    "op, size, axis, expected",
    [
        ("SUM", 2, 1, [Map]),
        ("MEAN", 2, 1, [Map]),
        ("SUM", 3, 1, [Map, Reduce]),
        ("SUM", 2, 2, [Map, Reduce]),
        ("REDUCE_MAX", 2, 1, [Map, Reduce]),
    ],
)
def test_short_sums_of_products_are_products_and_sums(op: str, size: int, axis: int, expected: list[type]) -> None:
    build = Builder()
    shape = (3, size, 8) if axis == 1 else (3, 8, size)
    product = build.op("MUL", [build.input(*shape), build.input(1, *shape[1:])], shape)
    assert joined(build.finish(reduced(build, op, product, axis, keep=False))) == expected


def test_a_short_sum_of_a_padded_image_does_not_read_beyond_it() -> None:
    build = Builder()
    padding = build.constant([[0, 0], [1, 0], [0, 0]], "int32")
    padded = build.op("PAD", [build.input(2, 1, 8), padding], (2, 2, 8))
    assert joined(build.finish(reduced(build, "SUM", padded, 1))) == [Map, Reduce]


def test_a_reduction_of_a_short_sum_without_its_axis_stays() -> None:
    build = Builder()
    squares = build.op("SQUARE", [build.input(3, 2, 4, 8)], (3, 2, 4, 8))
    once = reduced(build, "SUM", squares, 1, keep=False)
    assert joined(build.finish(reduced(build, "MEAN", once, 0, keep=False))) == [Map, Reduce]
