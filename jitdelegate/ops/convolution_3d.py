"""Convolutions over depth, height and width: CONV_2D in each plane, with the taps along depth as channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import Concat, Contract, IndexMap, MatMul
from jitdelegate.ops.call import OPTION, Call, Shape, given
from jitdelegate.ops.case import Case, Weights, ints
from jitdelegate.ops.convolution import MAX_ZEROS, Weighted, finish, split
from jitdelegate.ops.registry import MAX_PARTS, Lowering, moved, op, view
from jitdelegate.ops.window import Borders, Sliding, patches, slide, stride, window_problems

UNIT = {"stride_d": 1, "stride_h": 1, "stride_w": 1}
TWICE = {"stride_d": 2, "stride_h": 2, "stride_w": 2}


def along_depth(shape: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Sliding:
    """How a filter [d, h, w, _, _] slides over the depth of data [N, D, H, W, C]: a window one column wide."""
    steps = {"stride_h": attrs.get("stride_d", 0), "stride_w": 1, "padding": attrs.get("padding", "SAME")}
    return slide((shape[1], 1), (kernel[0], 1), {**steps, "dilation_h_factor": attrs.get("dilation_d_factor", 1)})


def in_plane(shape: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Sliding:
    """How the filter slides over height and width."""
    return slide((shape[2], shape[3]), (kernel[1], kernel[2]), attrs)


def side_by_side(source: int | Lowering, shape: Shape, starts: Sequence[int], walk: tuple[int, int]) -> Lowering:
    """[N * count, H, W, starts * C]: images [H, W, C] of data of `shape`, side by side; walk = (count, step).

    Image i for starts[k] is the data's image at depth starts[k] + step * i, or zeros outside the data.
    """
    (batch, _, *image, channels), (count, step) = shape, walk
    apart = (batch, count, *image, channels)
    accesses = [IndexMap((0, 1, 2, 3, 4), (0, start, 0, 0, 0), (1, step, 1, 1, 1), 0.0) for start in starts]
    taps = tuple(moved(source, access, apart) for access in accesses)
    together = Lowering(Concat(axis=4), taps, (*apart[:4], len(taps) * channels)) if len(taps) > 1 else taps[0]
    return view(together, (batch * count, *image, len(taps) * channels))


def _added(total: Lowering | None, rows: Lowering, filters: Lowering, shape: Shape) -> Lowering:
    """The product of two matrices, plus `total` if that is given."""
    if total is None:
        return Lowering(MatMul(), (rows, filters), shape)
    return Lowering(MatMul(RESULT + Arg(1), (IndexMap.broadcast(shape, shape),)), (rows, filters, total), shape)


@op("CONV_3D")
class Conv3D(Weighted):
    """A convolution of data [N, D, H, W, C] with a filter [d, h, w, C, O]."""

    filter_rank = 5
    multiplies = True
    cases = (
        Case(((1, 4, 5, 6, 3), Weights((2, 3, 3, 3, 5)), Weights((5,))), {**UNIT, OPTION: "RELU"}),
        Case(((2, 5, 4, 4, 2), Weights((3, 2, 2, 2, 17))), {**UNIT, "padding": "VALID"}),
        Case(((1, 7, 6, 5, 2), Weights((3, 3, 3, 2, 4)), Weights((4,))), {"stride_d": 2, "stride_h": 1, "stride_w": 2}),
        Case(((1, 6, 6, 6, 4), Weights((1, 1, 1, 4, 8)), Weights((8,))), UNIT),
        Case(
            ((1, 6, 7, 5, 1), Weights((2, 3, 2, 1, 3)), Weights((3,))),
            {**UNIT, "padding": "VALID", "dilation_d_factor": 3, "dilation_h_factor": 2, "dilation_w_factor": 2},
        ),
        Case(((1, 5, 4, 6, 3), (2, 2, 3, 3, 5), Weights((5,))), {**UNIT, "stride_w": 2, OPTION: "RELU"}),
        Case(((2, 4, 4, 4, 2), (2, 1, 2, 2, 3)), {**UNIT, "padding": "VALID", "dilation_d_factor": 2}),
    )

    def channels(self, call: Call) -> int:
        return call.shape(1)[4]

    def problems(self, call: Call) -> Iterator[str]:
        if len(call.shape(0)) != 5:
            yield f"CONV_3D: the input's shape is {list(call.shape(0))}, expected rank 5."
        yield from super().problems(call)
        yield from window_problems(call)
        if min(call.option("stride_d", 0), call.option("dilation_d_factor", 1)) < 1:
            yield "CONV_3D: the stride or the dilation factor of the depth is below 1."
        if call.shape(0)[4] != call.shape(1)[3]:
            yield f"CONV_3D: a filter of shape {list(call.shape(1))} does not fit {call.shape(0)[4]} channels."
        yield from self._sizes(call)

    def _sizes(self, call: Call) -> Iterator[str]:
        shape, kernel = call.shape(0), call.shape(1)
        top, bottom, left, right = in_plane(shape, kernel, call.node.attrs).padding
        columns = (shape[2] + top + bottom) * (shape[3] + left + right)
        elements = shape[0] * max(self.shape(call)[1], 1) * kernel[0] * columns * shape[4]
        if elements > max(MAX_ZEROS, 8 * kernel[0] * prod(shape)):
            yield f"CONV_3D: {kernel[0]} taps of the depth of {list(shape)} side by side are {elements} elements."
        if (kernel[0] if self.is_constant(call) else prod(kernel[:3])) > MAX_PARTS:
            yield f"CONV_3D: a filter of {list(kernel)} has more than {MAX_PARTS} taps."

    def shape(self, call: Call) -> Shape:
        shape, kernel, attrs = call.shape(0), call.shape(1), call.node.attrs
        depth, plane = along_depth(shape, kernel, attrs), in_plane(shape, kernel, attrs)
        return shape[0], depth.output[0], *plane.output, self.channels(call)

    def lowering(self, call: Call) -> Lowering:
        shape, kernel, attrs = call.shape(0), call.shape(1), call.node.attrs
        sliding, plane = along_depth(shape, kernel, attrs), in_plane(shape, kernel, attrs)
        if not self.is_constant(call):
            return self._by_places(call, sliding, plane)
        starts = [number * sliding.dilation[0] - sliding.padding[0] for number in range(kernel[0])]
        planes = side_by_side(call.index(0), shape, starts, (sliding.output[0], sliding.stride[0]))
        filters = call.array(1).transpose(4, 1, 2, 0, 3).reshape(kernel[4], *kernel[1:3], -1)
        batch, depth, *image = self.shape(call)
        return self.weighted(call, Contract(**plane.geometry), (planes, filters), (batch * depth, *image))

    def _by_places(self, call: Call, sliding: Sliding, plane: Sliding) -> Lowering:
        """For a filter computed at run time: the sum over all taps of the data under the tap times the tap's filter."""
        *sizes, channels = self.shape(call)
        pixels, depth = (*sizes, call.shape(0)[4]), call.shape(0)[4]
        steps = (1, sliding.stride[0], *plane.stride, 1)
        total: Lowering | None = None
        for kd, ky, kx in np.ndindex(*call.shape(1)[:3]):
            front = kd * sliding.dilation[0] - sliding.padding[0]
            top, left = ky * plane.dilation[0] - plane.padding[0], kx * plane.dilation[1] - plane.padding[2]
            start = (0, front, top, left, 0)
            seen = moved(call.index(0), IndexMap((0, 1, 2, 3, 4), start, steps, 0.0), pixels)
            here = IndexMap.along(-1, -1, -1, 0, 1, starts=(kd, ky, kx, 0, 0))
            filters = moved(call.index(1), here, (depth, channels))
            total = _added(total, view(seen, (prod(sizes), depth)), filters, (prod(sizes), channels))
        assert total is not None
        return self.finished(call, total, (prod(sizes), channels), (channels,))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split(arrays)
        depth, plane = (slid(data.shape, weights.shape, attrs) for slid in (along_depth, in_plane))
        columns = data.astype(np.float64).reshape(*data.shape[:2], 1, -1)
        total = np.zeros((len(data) * depth.output[0], *plane.output, weights.shape[4]))
        for kd, _, seen in patches(columns, depth, 0):
            planes = seen.reshape(-1, *data.shape[2:])
            for ky, kx, under in patches(planes, plane, 0):
                total += under @ weights[kd, ky, kx]
        return finish(total.reshape(len(data), depth.output[0], *plane.output, -1), bias, attrs)


@op("CONV_3D_TRANSPOSE")
class Conv3DTranspose(Weighted):
    """Every element of the data [N, D, H, W, C] adds its multiple of the filter [d, h, w, O, C] to the output.

    It is a convolution with the reversed filter, over the data with zeros between its elements. Operands (output shape,
    filter, data, bias).
    """

    least, most = 3, 4
    parameters = (0,)
    bias_operand = 3
    filter_rank = 5
    cases = (
        Case((ints(1, 4, 6, 8, 5), Weights((2, 3, 3, 5, 3)), (1, 2, 3, 4, 3)), {**TWICE, OPTION: "RELU"}),
        Case((ints(1, 4, 5, 7, 2), Weights((3, 2, 3, 2, 3)), (1, 2, 3, 4, 3), Weights((2,))), TWICE),
        Case(
            (ints(2, 4, 7, 6, 2), Weights((3, 3, 2, 2, 4)), (2, 2, 3, 5, 4), Weights((2,))),
            {**UNIT, "stride_h": 2, "padding": "VALID"},
        ),
        Case(
            (ints(2, 6, 5, 6, 2), Weights((3, 3, 2, 2, 4)), (2, 2, 3, 5, 4)),
            {**UNIT, "padding": "VALID", "dilation_d_factor": 2},
        ),
    )

    def channels(self, call: Call) -> int:
        return call.shape(1)[3]

    def problems(self, call: Call) -> Iterator[str]:
        if len(call.shape(2)) != 5:
            yield f"CONV_3D_TRANSPOSE: the input's shape is {list(call.shape(2))}, expected rank 5."
        yield from super().problems(call)
        yield from window_problems(call)
        if min(call.option("stride_d", 0), call.option("dilation_d_factor", 1)) < 1:
            yield "CONV_3D_TRANSPOSE: the stride or the dilation factor of the depth is below 1."
        asked, data, kernel = call.integers(0), call.shape(2), call.shape(1)
        if len(asked) != 5 or min(asked) < 1 or asked[4] != kernel[3] or data[4] != kernel[4] or asked[0] != data[0]:
            yield f"CONV_3D_TRANSPOSE: {list(asked)} does not fit an input of {list(data)} and a filter {list(kernel)}."
        windows = along_depth(asked, kernel, call.node.attrs), in_plane(asked, kernel, call.node.attrs)
        if (windows[0].output[0], *windows[1].output) != data[1:4]:
            yield f"CONV_3D_TRANSPOSE: the output shape {list(asked)} does not fit an input of {list(data)}."
        if kernel[0] * prod(data) * prod(self._strides(call)) > max(MAX_ZEROS, 64 * prod(data)):
            yield f"CONV_3D_TRANSPOSE: the strides {list(self._strides(call))} leave more zeros than fit memory."

    @staticmethod
    def _strides(call: Call) -> tuple[int, int, int]:
        return (int(call.option("stride_d", 0)), *stride(call.node.attrs))

    def shape(self, call: Call) -> Shape:
        return call.integers(0)

    def work(self, call: Call) -> int:
        return prod(call.shape(2)[:-1]) * prod(call.shape(1))

    def lowering(self, call: Call) -> Lowering:
        batch, depth, *image, channels = call.output.shape
        kernel, attrs = call.shape(1), call.node.attrs
        sliding, plane = along_depth(call.output.shape, kernel, attrs), in_plane(call.output.shape, kernel, attrs)
        spread, wide = self._spread(call)
        starts = [sliding.padding[0] - number * sliding.dilation[0] for number in range(kernel[0])]
        planes = side_by_side(spread, wide, starts, (depth, 1))
        filters = call.array(1)[:, ::-1, ::-1].transpose(3, 1, 2, 0, 4).reshape(channels, *kernel[1:3], -1)
        padding = self._padding((wide[2], wide[3]), (image[0], image[1]), plane)
        form = Contract(kernel=plane.kernel, dilation=plane.dilation, padding=padding)
        return self.weighted(call, form, (planes, filters), (batch * depth, *image, channels))

    def _spread(self, call: Call) -> tuple[Lowering, Shape]:
        """The data with as many zeros behind each element as the stride skips, and the shape of the result."""
        (batch, *sizes, channels), steps = call.shape(2), self._strides(call)
        pairs = list(zip(sizes, steps, strict=True))
        access = IndexMap.along(*range(8), fill=0.0)
        source = view(call.index(2), (batch, *(length for size, _ in pairs for length in (size, 1)), channels))
        apart = moved(source, access, (batch, *(length for pair in pairs for length in pair), channels))
        wide = (batch, *(size * step for size, step in pairs), channels)
        return view(apart, wide), wide

    @staticmethod
    def _padding(source: tuple[int, int], output: tuple[int, int], plane: Sliding) -> Borders:
        """The padding for the reversed filter: the window's reach beyond the data, less the cropping."""
        borders = []
        for axis in (0, 1):
            reach = (plane.kernel[axis] - 1) * plane.dilation[axis]
            before = reach - plane.padding[2 * axis]
            borders += [before, output[axis] + reach - source[axis] - before]
        top, bottom, left, right = borders
        return top, bottom, left, right

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        asked, weights, data, *bias = given(arrays)
        shape, kernel = tuple(map(int, asked)), weights.shape
        depth, plane = along_depth(shape, kernel, attrs), in_plane(shape, kernel, attrs)
        dilations, strides = (depth.dilation[0], *plane.dilation), (depth.stride[0], *plane.stride)
        axes = zip(data.shape[1:4], strides, kernel[:3], dilations, strict=True)
        sizes = [(count - 1) * step + (taps - 1) * factor + 1 for count, step, taps, factor in axes]
        cut = (depth.padding[0], plane.padding[0], plane.padding[2])
        room = [max(size, before + count) for size, before, count in zip(sizes, cut, shape[1:4], strict=True)]
        canvas = np.zeros((shape[0], *room, shape[4]))
        for tap in np.ndindex(*kernel[:3]):
            first = [index * factor for index, factor in zip(tap, dilations, strict=True)]
            spans = zip(first, strides, data.shape[1:4], strict=True)
            at = tuple(slice(begin, begin + (count - 1) * step + 1, step) for begin, step, count in spans)
            canvas[(slice(None), *at)] += data.astype(np.float64) @ weights[tap].T.astype(np.float64)
        kept = tuple(slice(before, before + count) for before, count in zip(cut, shape[1:4], strict=True))
        return finish(canvas[(slice(None), *kept)], bias[0] if bias else None, attrs)
