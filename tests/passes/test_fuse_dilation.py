"""Convolutions of an image's phases become dilated ones where that is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Quant
from jitdelegate.passes.fuse_dilation import fuse_dilation
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors, steps
from scripts.quantized_runs import compared, run_litert, run_ours
from tests.passes.graphs import Builder, assert_same, ops

PATTERN = ["SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"]
BORDERS, CUT = ((2, 4), (3, 5)), ((0, 1), (2, 0))


def phases(
    blocks: tuple[int, int] = (2, 3), cut: tuple[tuple[int, int], ...] = CUT, depthwise: bool = False, **attrs: object
) -> Graph:
    """An image of 8 by 10 pixels, whose phases are convolved with a 3x3 window."""
    build = Builder()
    x = build.input(2, 8, 10, 4)
    sizes = tuple((8, 10)[k] + sum(BORDERS[k]) for k in (0, 1))
    inner = tuple(size // block for size, block in zip(sizes, blocks, strict=True))
    count = 2 * blocks[0] * blocks[1]
    size = build.constant(blocks, "int32")
    apart = build.op("SPACE_TO_BATCH_ND", [x, size, build.constant(BORDERS, "int32")], (count, *inner, 4))
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID", **attrs}
    weights = build.weights(1, 3, 3, 4) if depthwise else build.weights(4, 3, 3, 4)
    op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    shape = (count, inner[0] - 2, inner[1] - 2, 4) if options["padding"] == "VALID" else (count, *inner, 4)
    convolved = build.op(op, [apart, weights, build.weights(4)], shape, **options)
    image = tuple(shape[k + 1] * blocks[k] - sum(cut[k]) for k in (0, 1))
    return build.finish(build.op("BATCH_TO_SPACE_ND", [convolved, size, build.constant(cut, "int32")], (2, *image, 4)))


@pytest.mark.parametrize("depthwise", [False, True])
def test_a_convolution_of_phases_becomes_a_dilated_one(depthwise: bool) -> None:
    graph = phases(depthwise=depthwise, fused_activation_function="RELU")
    fused = fuse_dilation(graph)
    (node,) = fused.nodes
    assert (node.attrs["dilation_h_factor"], node.attrs["dilation_w_factor"]) == (2, 3)
    assert node.attrs["explicit_padding"] == (2, 3, 1, 5)
    assert node.origin == (0, 1, 2)
    assert_same(graph, fused)


@pytest.mark.parametrize(
    "graph",
    [
        phases(padding="SAME", cut=((0, 0), (0, 0))),
        phases(dilation_h_factor=1, dilation_w_factor=1, cut=((3, 0), (0, 0))),
    ],
    ids=["padding of its own", "more cut off than added"],
)
def test_other_convolutions_of_phases_stay(graph: Graph) -> None:
    assert ops(fuse_dilation(graph)) == PATTERN


def test_phases_with_another_reader_stay() -> None:
    graph = phases()
    graph = Graph(graph.tensors, graph.nodes, graph.inputs, (*graph.outputs, graph.nodes[1].outputs[0]))
    assert ops(fuse_dilation(graph)) == PATTERN


def test_other_blocks_behind_than_before_stay() -> None:
    graph = phases()
    *others, last = graph.nodes
    blocks = replace(graph.tensors[last.inputs[1]], data=np.array([3, 2], np.int32))
    last = replace(last, inputs=(last.inputs[0], len(graph.tensors), last.inputs[2]))
    graph = replace(graph, tensors=(*graph.tensors, blocks), nodes=(*others, last))
    assert ops(fuse_dilation(graph)) == PATTERN


@pytest.mark.parametrize("dtype, zero", [("int8", -100), ("int8", 127), ("uint8", 7), ("int16", 0)])
def test_integers_around_the_phases_are_the_zero_point(dtype: str, zero: int) -> None:
    model, random = ModelBuilder(), np.random.default_rng(0)
    quant, middle = Quant((2.0**-5,), (zero,)), 128 if dtype == "uint8" else 0
    data = model.input((1, 5, 6, 3), dtype, quant=quant)
    blocks, borders = model.constant(np.array([2, 2], np.int32)), model.constant(np.array([[2, 3], [2, 2]], np.int32))
    apart = model.op("SPACE_TO_BATCH_ND", [data, blocks, borders], (4, 5, 5, 3), dtype=dtype, quant=quant)
    kind = "uint8" if dtype == "uint8" else "int8"
    weights = random.integers(middle - 100, middle + 100, (4, 3, 3, 3)).astype(kind)
    filters = model.constant(weights, quant=Quant((2.0**-7,), (middle,)))
    numbers = random.integers(-99, 99, 4).astype("int64" if dtype == "int16" else "int32")
    bias = model.constant(numbers, quant=Quant((2.0**-12,), (0,)))
    out, options = Quant((2.0**-4,), (zero,)), {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    seen = model.op("CONV_2D", [apart, filters, bias], (4, 3, 3, 4), dtype=dtype, quant=out, options=options)
    crops = model.constant(np.array([[0, 1], [0, 0]], np.int32))
    model.output(model.op("BATCH_TO_SPACE_ND", [seen, blocks, crops], (1, 5, 6, 4), dtype=dtype, quant=out))
    content = model.finish()
    (node,) = fuse_dilation(read(content).graphs[0]).nodes
    assert node.attrs["explicit_padding"] == (2, 2, 2, 2)
    inputs = list(hostile(input_tensors(content)))
    ran = run_ours(content, inputs, "reference")
    assert not ran.refused
    assert compared(ran.outputs, run_litert(content, inputs), steps(content)).differing == 0
