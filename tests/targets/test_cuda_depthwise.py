"""Depthwise convolutions on CUDA: every window, stride, dilation, padding, multiplier and element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Expr, maximum, unary
from jitdelegate.ir.forms import Depthwise, IndexMap
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda.code import image_parts
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.products.depthwise import LONG
from jitdelegate.targets.cuda.walks.depthwise_kernel import DepthwiseTile, DepthwiseWalk
from jitdelegate.targets.planning.epilogue import Reach
from tests.targets.cuda_execute import assert_compiles_everywhere, ptx_of, templates_of
from tests.targets.cuda_graphs import Shape, compare, stored_between
from tests.targets.integer_graphs import graph_of, size_of

NEAR = 1e-5
RESIDUAL = maximum(RESULT + Arg(1), 0.0)
GATED = RESULT * unary("logistic", Arg(1)) + Arg(2)


def layer(data: Shape, *, bias: bool = True, **options: Any) -> Graph:
    """A node on the graph's only input, with random weights; 3x3 with zeros around the image unless told otherwise."""
    random, form = np.random.default_rng(7), Depthwise(**{"kernel": (3, 3), "padding": (1, 1, 1, 1), **options})
    channels = data[3] * form.multiplier
    weights = random.uniform(-1, 1, (1, *form.kernel, channels)).astype(np.float32)
    added = random.uniform(-1, 1, channels).astype(np.float32) if bias else None
    output = (data[0], *size_of(form, data[1:3]), channels)
    return graph_of(form, Tensor("data", data, "float32"), output, weights=weights, bias=added)


def with_epilogue(graph: Graph, epilogue: Expr, shapes: Sequence[Shape]) -> Graph:
    """The node's result through an expression with more inputs of the graph."""
    (node,), output = graph.nodes, graph.tensors[graph.outputs[0]].shape
    first = len(graph.tensors)
    more = tuple(range(first, first + len(shapes)))
    operands = tuple(IndexMap.broadcast(shape, output) for shape in shapes)
    assert isinstance(node.form, Depthwise)
    form = replace(node.form, epilogue=epilogue, operands=operands)
    tensors = (*graph.tensors, *(Tensor(f"operand{k}", shape, "float32") for k, shape in enumerate(shapes)))
    return Graph(tensors, (replace(node, inputs=(*node.inputs, *more), form=form),), (0, *more), graph.outputs)


@pytest.fixture
def ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any work counts as enough to fill the GPU, so that even small images are cut into tiles."""
    monkeypatch.setattr(image_parts, "FILLED", 0)


SMALL = {
    "one pixel": layer((1, 1, 1, 4)),
    "3 channels": layer((1, 5, 4, 3)),
    "5 channels, no bias": layer((2, 4, 5, 5), bias=False),
    "33 channels": layer((1, 3, 3, 33)),
    "130 channels": layer((1, 2, 2, 130)),
    "stride 2": layer((1, 7, 8, 8), stride=(2, 2), padding=(0, 1, 0, 1)),
    "stride beyond the window": layer((1, 9, 9, 4), stride=(4, 5), padding=(0, 0, 0, 0)),
    "dilation": layer((1, 9, 8, 4), dilation=(2, 3), padding=(2, 2, 3, 3)),
    "padding of one side": layer((1, 5, 5, 4), padding=(2, 0, 0, 2)),
    "5x5": layer((1, 6, 6, 4), kernel=(5, 5), padding=(2, 2, 2, 2)),
    "7x7 of few pixels": layer((1, 7, 7, 12), kernel=(7, 7), padding=(0, 0, 0, 0)),
    "wide window": layer((1, 3, 20, 4), kernel=(1, 11), padding=(0, 0, 5, 5)),
    "wide window, strides and dilations": layer(
        (1, 4, 30, 3), kernel=(2, 10), stride=(2, 3), dilation=(1, 2), padding=(1, 0, 9, 8)
    ),
    "large window, dilated": layer((1, 13, 14, 4), kernel=(6, 7), dilation=(2, 2), padding=(0, 4, 3, 0)),
    "multiplier 2": layer((1, 5, 5, 3), multiplier=2),
    "multiplier 4": layer((1, 4, 4, 2), multiplier=4, stride=(2, 1)),
    "multiplier 3": layer((1, 4, 4, 2), multiplier=3),
    "multiplier of a wide window": layer((1, 2, 12, 2), kernel=(1, 10), padding=(0, 0, 4, 5), multiplier=2),
    "one channel made many": layer((1, 4, 4, 1), multiplier=8),
}
TILED = {
    **{f"{columns} columns": layer((1, 3, columns, 4)) for columns in (LONG, LONG + 1, 2 * LONG - 1, 2 * LONG)},
    "3 columns": layer((1, 9, 3, 4)),
    "1 column": layer((1, 6, 1, 8), kernel=(3, 1), padding=(1, 1, 0, 0)),
    "1 column, stride 2": layer((1, 9, 1, 3), kernel=(3, 1), stride=(2, 1), padding=(1, 1, 0, 0)),
    "33 channels": layer((2, 4, 6, 33)),
    "130 channels": layer((1, 3, 5, 130)),
    "stride 2": layer((2, 8, 11, 8), stride=(2, 2), padding=(0, 1, 0, 1)),
    "dilation": layer((1, 6, 9, 4), dilation=(2, 2), padding=(2, 2, 2, 2)),
    "dilation 3 of 10 columns": layer((1, 5, 10, 4), dilation=(3, 3), padding=(3, 3, 3, 3)),
    "no padding": layer((1, 6, 9, 4), padding=(0, 0, 0, 0)),
    "5x5": layer((1, 7, 9, 4), kernel=(5, 5), padding=(2, 2, 2, 2)),
    "5x5, stride 2, dilated": layer(
        (1, 11, 12, 8), kernel=(5, 5), stride=(2, 2), dilation=(2, 1), padding=(4, 4, 1, 2)
    ),
    "taller than the image": layer((1, 2, 6, 4), kernel=(7, 3), padding=(3, 3, 1, 1)),
    "tall, 1 column": layer((1, 14, 1, 4), kernel=(11, 1), padding=(5, 5, 0, 0)),
    "9 columns of taps": layer((1, 3, 12, 4), kernel=(2, 9), padding=(1, 0, 4, 4)),
    "multiplier 2": layer((1, 3, 5, 3), multiplier=2),
}


@pytest.mark.parametrize("case", SMALL)
def test_a_small_layer_agrees_with_the_reference(case: str) -> None:
    compare(SMALL[case], tolerance=NEAR, schedule="random", seed=1)


@pytest.mark.usefixtures("ample")
@pytest.mark.parametrize("case", TILED)
def test_a_layer_of_tiles_agrees_with_the_reference(case: str) -> None:
    compare(TILED[case], tolerance=NEAR, schedule="random", seed=3)


@pytest.mark.usefixtures("ample")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ["33 channels", "stride 2", "5x5, stride 2, dilated", "multiplier 2"])
def test_a_layer_of_16_bit_elements_agrees_with_the_reference(case: str, precision: str) -> None:
    compare(stored_between(TILED[case]), precision, tolerance=4e-3 if precision == "float16" else 3e-2)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ["5 channels, no bias", "5x5", "7x7 of few pixels", "wide window"])
def test_a_small_layer_of_16_bit_elements_agrees_with_the_reference(case: str, precision: str) -> None:
    compare(stored_between(SMALL[case]), precision, tolerance=4e-3 if precision == "float16" else 3e-2)


def test_inputs_and_outputs_of_the_graph_stay_float32() -> None:
    (template,) = templates_of(SMALL["5x5"], precision="float16")
    assert isinstance(template, DepthwiseTile)
    assert (template.source, template.target) == (Element.FLOAT32, Element.FLOAT32)
    compare(SMALL["5x5"], "float16", tolerance=NEAR)


@pytest.mark.usefixtures("ample")
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("kernel", [(3, 3), (7, 3), (1, 12)], ids=str)
def test_an_epilogue_reads_its_operands_at_the_result(kernel: tuple[int, int], precision: str) -> None:
    graph = layer((2, 5, 9, 8), kernel=kernel, padding=(kernel[0] // 2, kernel[0] // 2, kernel[1] // 2, kernel[1] // 2))
    output = graph.tensors[graph.outputs[0]].shape
    tolerance = NEAR if precision == "float32" else 4e-3
    compare(stored_between(with_epilogue(graph, RESIDUAL, [output])), precision, tolerance=tolerance)
    compare(with_epilogue(graph, GATED, [(8,), (*output[:3], 1)]), precision, tolerance=tolerance)


def test_large_windows_over_few_pixels_are_shared_out() -> None:
    (template,) = templates_of(SMALL["7x7 of few pixels"])
    assert isinstance(template, DepthwiseWalk)
    assert template.slices > 1


def test_a_large_image_is_cut_into_tiles_and_a_small_one_into_pixels() -> None:
    (large,), (small,) = templates_of(layer((1, 112, 112, 32))), templates_of(layer((1, 7, 7, 1024)))
    assert isinstance(large, DepthwiseTile)
    assert isinstance(small, DepthwiseTile)
    assert (prod(large.tile), prod(small.tile)) == (LONG, 1)


def test_tiles_load_every_pixel_that_they_see_once() -> None:
    (template,) = templates_of(layer((1, 112, 112, 32)))
    loads = ptx_of(template, "sm_90").count("ld.global.nc.v4")
    assert loads <= 3 * (LONG + 2) + 9 + 1  # pixels, weights and the bias


@pytest.mark.usefixtures("ample")
def test_pixels_of_a_dilated_tile_share_columns() -> None:
    (template,) = templates_of(layer((1, 16, 16, 4), dilation=(4, 4), padding=(4, 4, 4, 4)))
    assert isinstance(template, DepthwiseTile)
    assert ptx_of(template, "sm_90").count("ld.global.nc.v4") <= 3 * (LONG + 2) + 9 + 1


@pytest.mark.usefixtures("ample")
def test_weights_are_as_narrow_as_data() -> None:
    graph = stored_between(TILED["stride 2"])
    (template,) = (one for one in templates_of(graph, precision="float16") if isinstance(one, DepthwiseTile))
    assert template.weights is Element.FLOAT16


EXTRA = Epilogue(RESULT + Arg(1) * Arg(2), ((Reach.ELEMENT, Element.FLOAT32), (Reach.CHANNEL, Element.FLOAT32)))
FLOATS = Element.FLOAT32, Element.FLOAT32, Element.FLOAT32
HALVES = Element.FLOAT16, Element.FLOAT32, Element.FLOAT16


def tile(
    elements: tuple[Element, Element, Element], width: int, kernel: int, stride: int, size: int, *, walked: bool = False
) -> DepthwiseTile:
    steps = kernel, stride, 1
    return DepthwiseTile(width, False, *elements, EXTRA, None if walked else steps, steps, (1, size))


def test_templates_compile_everywhere_without_spills() -> None:
    assert_compiles_everywhere(
        [
            tile(FLOATS, 4, 3, 1, LONG),
            tile(HALVES, 8, 3, 2, LONG),
            tile(FLOATS, 4, 5, 2, LONG, walked=True),
            tile(HALVES, 8, 5, 2, LONG, walked=True),
            tile(FLOATS, 4, 5, 1, 1),
            tile(FLOATS, 4, 9, 1, LONG, walked=True),
            tile((Element.FLOAT32, Element.FLOAT32, Element.FLOAT16), 1, 3, 1, LONG),
            DepthwiseWalk(4, False, *FLOATS, EXTRA, 1),
            DepthwiseWalk(8, False, *HALVES, EXTRA, 128),
        ]
    )
