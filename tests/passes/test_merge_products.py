"""Products of the same data become one, whose slices are their results."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.forms import Map
from jitdelegate.ir.graph import Graph, Quant
from jitdelegate.passes import fuse_elementwise
from jitdelegate.passes.merge_products import merge_products
from tests.passes.graphs import UNIT, Builder, assert_same, lowered, ops


class Heads(Builder):
    """Convolutions of one image."""

    def head(self, x: int, channels: int, kernel: int = 1, scale: bool = False, **attrs: object) -> int:
        """A convolution, and a RELU whose result a scale per channel, or one of all, multiplies."""
        *pixels, depth = self.shape(x)
        operands = [x, self.weights(channels, kernel, kernel, depth), self.weights(channels)]
        shape = (*pixels, channels)
        relu = self.op("RELU", [self.op("CONV_2D", operands, shape, **UNIT | attrs)], shape)
        return self.op("MUL", [relu, self.weights(*((channels,) if scale else ()))], shape)


def slices(graph: Graph) -> set[int]:
    return {node.outputs[0] for node in graph.nodes if isinstance(node.form, Map) and node.form.moves_only}


def joined(build: Builder, *values: int) -> Graph:
    *pixels, _ = build.shape(values[0])
    channels = sum(build.shape(value)[-1] for value in values)
    return fuse_elementwise(lowered(build.finish(build.op("CONCATENATION", list(values), (*pixels, channels), axis=3))))


@pytest.mark.parametrize("kernel", [1, 3])
def test_products_with_the_same_window_become_one(kernel: int) -> None:
    build = Heads()
    x = build.input(2, 5, 4, 3)
    heads = [build.head(x, 2, kernel, scale=True), build.head(x, 5, kernel, scale=True)]
    others = [build.head(x, 2, 2), build.head(build.input(2, 5, 4, 3), 2, kernel, scale=True)]
    graph = joined(build, *heads, *others)
    merged = merge_products(graph, slices)
    assert ops(merged).count("CONV_2D") == ops(graph).count("CONV_2D") - 1
    assert ops(merged).count("SLICE") == 2
    assert_same(graph, merged)


def test_only_what_a_target_reads_in_place_is_merged() -> None:
    build = Heads()
    x = build.input(1, 3, 4, 6)
    heads = [build.head(x, count, scale=True) for count in (2, 3, 4, 5)]
    graph = joined(build, *heads)
    copied: list[set[int]] = []

    def in_place(merged: Graph) -> set[int]:
        copied.append({heads[1]} if len(copied) == 0 else set())
        return slices(merged) - copied[-1]

    merged = merge_products(graph, in_place)
    assert (len(copied), ops(merged).count("CONV_2D"), ops(merged).count("SLICE")) == (2, 2, 3)
    assert_same(graph, merged)
    assert merge_products(graph, lambda merged: {heads[0]}) is graph


def test_products_with_other_epilogues_or_strides_stay() -> None:
    build = Heads()
    x = build.input(1, 4, 4, 3)
    one, other = build.head(x, 2), build.op("ABS", [build.head(x, 2)], (1, 4, 4, 2))
    operands = [x, build.weights(2, 2, 2, 3), build.weights(2)]
    third = build.op("CONV_2D", operands, (1, 2, 2, 2), **UNIT | {"stride_w": 2, "stride_h": 2})
    graph = fuse_elementwise(lowered(build.finish(one, other, third)))
    assert merge_products(graph, slices) is graph


@pytest.mark.parametrize("grids", [(Quant((0.5,), (0,)), Quant((0.25,), (0,))), (Quant((0.5,), (0,)), None)])
def test_weights_that_may_be_stored_as_integers_stay_so(grids: tuple[Quant | None, ...]) -> None:
    build = Builder()
    x, tables = build.input(2, 3), [build.constant(np.full((2, 3), 0.5 * number)) for number in range(2)]
    parts = [build.op("FULLY_CONNECTED", [x, table], (2, 2), keep_num_dims=False) for table in tables]
    graph = lowered(build.finish(build.op("CONCATENATION", parts, (2, 4), axis=1)))
    for node, grid in zip(graph.nodes[:2], grids, strict=True):
        object.__setattr__(graph.tensors[node.inputs[1]], "grid", grid)
    merged = merge_products(graph, slices)
    if all(grids):
        found = merged.tensors[merged.nodes[0].inputs[1]].grid
        assert found == Quant((0.5, 0.5, 0.25, 0.25), (0,) * 4)
    else:
        assert merged is graph
    assert_same(graph, merged)
