"""Depthwise: chooses a kernel for each node, and writes its launch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.forms import Depthwise
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.choices import candidate, problem
from jitdelegate.targets.cuda.code.division import divisor
from jitdelegate.targets.cuda.code.element import OWN, WORD, Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.image_parts import fills
from jitdelegate.targets.cuda.code.sizes import Divisor
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.multiply.tensor_core import Operand
from jitdelegate.targets.cuda.sources.conv_problem import check_floats
from jitdelegate.targets.cuda.sources.pixel_tiles import tiles_along
from jitdelegate.targets.cuda.walks.depthwise_kernel import (
    NARROW,
    DepthwiseSizes,
    DepthwiseTemplate,
    DepthwiseTile,
    DepthwiseWalk,
    seen,
    spacing,
)
from jitdelegate.targets.cuda.walks.window import WindowAxis, slices_of

USUAL_COLUMNS = 9
"""Most columns of a window that is compiled in."""
MOST_UNROLLED, MOST_UNROLLED_ALONE = 36, 25
"""Most taps that are unrolled: of all pixels of a tile, and of a single pixel. With more, ptxas loads more at once
than fits in registers. The pixels of a tile share their loads."""
LONG = 4
"""Pixels along a tile."""
WIDE = 5
"""Columns of a window above which wide vectors use too many registers."""
MOST_BYTES = 32
"""Most bytes of the sums of a pixel in one thread."""
MOST_SEEN = 16
"""Most columns under a tile's windows: with more, the pixels share little and use too many registers."""


def write_depthwise(writer: Writer, node: Node, form: Depthwise) -> None:
    """Writes the launches of a Depthwise node.

    Raises:
        CompileError: the weights or the bias are not constant, or floats have a zero point or other pixels than zeros
            around the image.
    """
    check_floats(form)
    source, target = node.inputs[0], node.outputs[0]
    epilogue, _ = writer.epilogue(node)
    elements = writer.element(source), stored_weights(writer, node), writer.element(target)
    output = writer.shape(target)
    grain = *(writer.grain(source) if form.multiplier == 1 else ()), *writer.output_grain(node)
    template = _template(writer, form, elements, epilogue, output, grain)
    tiles = [tiles_along(*three) for three in zip(output[1:3], template.tile, (1, template.spacing), strict=True)]
    parts = FourAxes.of((output[0], *tiles, output[3] // template.width))
    pointers, sizes = arguments(writer, node, template)
    writer.launch(
        template,
        (-(-parts.number // template.parts), 1, 1),
        [writer.pointer(target), writer.pointer(source), *pointers, parts, *sizes],
        products=prod(output) * prod(form.kernel),
    )


def arguments(writer: Writer, node: Node, template: DepthwiseTemplate) -> tuple[Sequence[Any], Sequence[Any]]:
    """What a `DepthwiseKernel` takes beside its output and its data: pointers; and sizes, but for the parts of the
    output."""
    form, (source, target) = node.form, (node.inputs[0], node.outputs[0])
    assert isinstance(form, Depthwise)
    data, output = writer.shape(source), writer.shape(target)
    axes = [WindowAxis.of(form, axis, data[1 + axis]) for axis in range(2)]
    pitches = map(writer.pitch, (source, target))
    sizes = DepthwiseSizes(data[3], Divisor(*divisor(form.multiplier)), *output[1:3], *pitches)
    return (*_constants(writer, node, template), writer.epilogue(node)[1]), (*axes, sizes)


def stored_weights(writer: Writer, node: Node) -> Element:
    """The element type of a node's weights: those beside data of narrow floats are as narrow."""
    data, weights = (writer.element(index) for index in node.inputs[:2])
    return data if data.is_narrow_float and weights is Element.FLOAT32 else weights


def _constants(writer: Writer, node: Node, template: DepthwiseTemplate) -> tuple[Any, ...]:
    """(weights, bias, halo) as `DepthwiseKernel` takes them."""
    form, (_, weights, bias) = node.form, node.inputs[:3]
    assert isinstance(form, Depthwise)
    stored = template.weights
    taps = writer.array(weights, stored.dtype).reshape(-1, writer.shape(weights)[-1])
    last = np.zeros(taps.shape[1:], form.accumulator) if bias == ABSENT else writer.array(bias, form.accumulator)
    if form.accumulator == "float32":
        if stored is Element.FLOAT32:
            return writer.constant(np.concatenate([taps, last.reshape(1, -1)])), (), ()
        taps = Operand(stored.value).rounded(taps) if stored.is_narrow_float else taps
        return writer.constant(taps), (writer.constant(last),), ()
    halo = form.input_zero if form.halo_value is None else int(form.halo_value)
    last = last + (halo * template.leaves_out - form.input_zero) * taps.sum(axis=0, dtype=np.int64)
    word = np.full(WORD // template.source.nbytes, halo, template.source.dtype).view(np.int32)
    return writer.constant(taps), (writer.constant(last.astype(form.accumulator)),), (int(word[0]),)


def _width(form: Depthwise, elements: Sequence[Element], output: Sequence[int], grain: Sequence[int]) -> int:
    """Output channels per thread: whole vectors of data, or the output channels of one data channel, where `grain`
    allows."""
    source, _, target = elements
    most = min(source.widest, target.widest, MOST_BYTES // OWN[form.accumulator].nbytes)
    return common_width((output[3] if form.multiplier == 1 else form.multiplier, *grain), most)


def _template(
    writer: Writer,
    form: Depthwise,
    elements: tuple[Element, Element, Element],
    epilogue: Epilogue,
    output: Sequence[int],
    grain: Sequence[int],
) -> DepthwiseTile | DepthwiseWalk:
    width = _width(form, elements, output, grain)
    slices = slices_of(writer.gpu, prod(output) // width, prod(form.kernel))
    if form.kernel[1] > USUAL_COLUMNS or slices > 1:
        return DepthwiseWalk(width, form.multiplier > 1, *elements, epilogue, slices)
    few = not fills(writer.gpu, prod(output) // (width * LONG))
    rows, columns = zip(form.kernel, form.stride, form.dilation, strict=True)
    candidates = {}
    for is_few, most in ((few, NARROW if few else width), (few, width), (not few, width), (not few, NARROW)):
        own = min(width, NARROW if form.kernel[1] > WIDE else most)
        tile, is_unrolled = _tile(form, output[2], is_few)
        candidates[candidate((own, *tile, is_unrolled))] = DepthwiseTile(
            own, form.multiplier > 1, *elements, epilogue, rows if is_unrolled else None, columns, tile
        )
    images, height, across, channels = output
    text = problem(
        DepthwiseTemplate.family,
        elements,
        N=images,
        H=height,
        W=across,
        C=channels,
        X=form.multiplier,
        K="{}x{}".format(*form.kernel),
        S="{}x{}".format(*form.stride),
        D="{}x{}".format(*form.dilation),
        V=width,
        E=len(epilogue.operands),
    )
    return writer.choose(text, candidates)


def _tile(form: Depthwise, columns: int, few: bool) -> tuple[tuple[int, int], bool]:
    """(pixels per thread, whether their taps are unrolled) for an output with this many columns."""
    taps, tile = prod(form.kernel), (1, LONG) if columns >= LONG else (LONG, 1)
    is_unrolled = taps * LONG <= MOST_UNROLLED
    steps = form.kernel[1], form.stride[1], form.dilation[1]
    if few or len(seen(tile[1], steps, spacing(steps))) > MOST_SEEN or not (is_unrolled or tile[0] == 1):
        return (1, 1), taps <= MOST_UNROLLED_ALONE
    return tile, is_unrolled
