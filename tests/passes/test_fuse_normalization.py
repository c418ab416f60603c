"""Normalisations in the ways in which converters spell them out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jitdelegate.ir.forms import Map, Normalize, Softmax
from jitdelegate.ir.graph import Graph
from jitdelegate.passes import fuse_elementwise, fuse_normalization, lower, push_reshapes, remove_dead, remove_identity
from tests.passes.graphs import Builder, assert_same

SHAPE, ROW = (2, 6, 8), (2, 6, 1)


class Rows(Builder):
    """A builder of work on an input of rows."""

    def __init__(self, shape: tuple[int, ...] = SHAPE, axes: tuple[int, ...] = (2,)) -> None:
        super().__init__()
        self.x = self.input(*shape)
        self._axes = axes

    def mean(self, x: int, op: str = "MEAN") -> int:
        row = tuple(1 if axis in self._axes else size for axis, size in enumerate(self.shape(x)))
        return self.op(op, [x, self.constant(self._axes, "int32")], row, keep_dims=True)

    def binary(self, op: str, a: int, b: int) -> int:
        return self.op(op, [a, b], np.broadcast_shapes(self.shape(a), self.shape(b)))

    def unary(self, op: str, x: int) -> int:
        return self.op(op, [x], self.shape(x))

    def reshape(self, x: int, *shape: int) -> int:
        return self.op("RESHAPE", [x, self.constant(shape, "int32")], shape)

    def variance(self, mean: int) -> int:
        squares = self.binary("SQUARED_DIFFERENCE", self.x, mean)
        return self.binary("ADD", self.mean(squares), self.constant(0.01))

    def scaled(self, x: int) -> int:
        size = self.shape(self.x)[-1]
        return self.binary("ADD", self.binary("MUL", x, self.weights(size)), self.weights(size))


def torch(build: Rows) -> int:
    mean = build.op("MEAN", [build.x, build.constant([2], "int32")], (2, 6), keep_dims=False)
    scale = build.unary("RSQRT", build.variance(build.reshape(mean, 2, 6, 1)))
    shift = build.binary("SUB", build.constant(0.0), build.binary("MUL", build.reshape(scale, 2, 6), mean))
    product = build.binary("MUL", build.x, scale)
    return build.scaled(build.binary("ADD", product, build.reshape(shift, 2, 6, 1)))


def tensorflow(build: Rows) -> int:
    mean = build.mean(build.x)
    scale = build.binary("MUL", build.unary("RSQRT", build.variance(mean)), build.weights(8))
    shift = build.binary("SUB", build.weights(8), build.binary("MUL", mean, scale))
    return build.binary("ADD", build.binary("MUL", build.x, scale), shift)


def divided(build: Rows) -> int:
    centred = build.binary("SUB", build.x, build.mean(build.x))
    variance = build.binary("ADD", build.mean(build.binary("MUL", centred, centred)), build.constant(0.01))
    return build.scaled(build.binary("DIV", centred, build.unary("SQRT", variance)))


def moments(build: Rows) -> int:
    mean = build.mean(build.x)
    squares = build.mean(build.unary("SQUARE", build.x))
    variance = build.binary("SUB", squares, build.unary("SQUARE", mean))
    scale = build.binary("POW", build.binary("ADD", variance, build.constant(0.01)), build.constant(-0.5))
    return build.binary("MUL", build.binary("SUB", build.x, mean), scale)


def root_mean_square(build: Rows) -> int:
    squares = build.mean(build.binary("MUL", build.x, build.x))
    scale = build.unary("RSQRT", build.binary("ADD", squares, build.constant(0.01)))
    return build.binary("MUL", build.binary("MUL", build.x, scale), build.weights(8))


def length(build: Rows) -> int:
    return build.op("L2_NORMALIZATION", [build.x], SHAPE)


def softmax(build: Rows) -> int:
    top = build.binary("MAXIMUM", build.mean(build.x, "REDUCE_MAX"), build.constant(-np.inf))
    powers = build.unary("EXP", build.binary("SUB", build.x, top))
    return build.binary("DIV", powers, build.mean(powers, "SUM"))


def fused(graph: Graph) -> Graph:
    """The graph after the passes that take part."""
    graph = fuse_elementwise(fuse_normalization(remove_identity(lower(graph))))
    return remove_dead(fuse_elementwise(remove_identity(push_reshapes(graph))))


@pytest.mark.parametrize("write", [torch, tensorflow, divided, moments, root_mean_square, length, softmax])
def test_every_way_to_spell_a_normalization_becomes_one_node(write: Callable[[Rows], int]) -> None:
    build = Rows()
    graph = build.finish(write(build))
    found = fused(graph)
    assert [type(node.form) for node in found.nodes] == [Softmax if write is softmax else Normalize]
    assert found.nodes[0].origin == tuple(range(len(graph.nodes)))
    assert_same(graph, found)


@pytest.mark.parametrize("write", [tensorflow, divided, softmax])
def test_rows_may_lie_along_other_axes(write: Callable[[Rows], int]) -> None:
    build = Rows((2, 6, 5, 8), (1, 2))
    graph = build.finish(write(build))
    found = fused(graph)
    assert [type(node.form) for node in found.nodes] == [Normalize]
    assert_same(graph, found)


def test_groups_of_channels_are_rows_of_another_shape() -> None:
    build = Rows((2, 12, 2, 4), (1, 3))
    image, build.x = build.x, build.reshape(build.x, 2, 12, 2, 4)
    centred = build.reshape(divided(build), 2, 3, 4, 8)
    graph = build.finish(build.binary("ADD", build.binary("MUL", centred, build.weights(8)), build.weights(8)))
    found = fused(graph)
    assert sum(isinstance(node.form, Normalize) for node in found.nodes) == 1
    assert found.nodes[0].inputs[0] == image
    assert_same(graph, found)


@pytest.mark.parametrize("shared", ["mean", "difference"])
def test_what_something_else_reads_is_still_computed(shared: str) -> None:
    build = Rows()
    mean = build.mean(build.x)
    difference = build.binary("SUB", build.x, mean)
    variance = build.mean(build.binary("MUL", difference, difference))
    result = build.binary("DIV", difference, build.unary("SQRT", variance))
    graph = build.finish(result, {"mean": mean, "difference": difference}[shared])
    assert_same(graph, fused(graph))


def test_products_with_other_tensors_are_rows_of_their_own() -> None:
    build = Rows()
    product = build.binary("MUL", build.x, build.input(*SHAPE))
    graph = build.finish(build.binary("MUL", build.x, build.mean(product)))
    found = fused(graph)
    assert [type(node.form) for node in found.nodes] == [Map, Normalize]
    assert found.nodes[1].inputs == (product, build.x)
    assert_same(graph, found)


def test_means_of_other_rows_are_no_statistics() -> None:
    build = Rows()
    columns = build.op("MEAN", [build.x, build.constant([1], "int32")], (2, 1, 8), keep_dims=True)
    graph = build.finish(build.binary("ADD", build.binary("SUB", build.x, build.mean(build.x)), columns))
    assert_same(graph, fused(graph))
