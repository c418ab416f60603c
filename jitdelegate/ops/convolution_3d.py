"""Convolutions over depth, height and width: in the plane as CONV_2D, with the depth's taps as channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Access, Concat, Contract, Map
from jitdelegate.ops.activation import OPTION
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.convolution import MAX_ZEROS, Weighted, finish, split
from jitdelegate.ops.registry import MAX_PARTS, Lowering, op, view
from jitdelegate.ops.window import Sliding, patches, slide, window_problems

UNIT = {"stride_d": 1, "stride_h": 1, "stride_w": 1}


def along_depth(shape: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Sliding:
    """How a filter [d, h, w, _, _] slides over the depth of data [N, D, H, W, C]: a window one column wide."""
    steps = {"stride_h": attrs.get("stride_d", 0), "stride_w": 1, "padding": attrs.get("padding", "SAME")}
    return slide((shape[1], 1), (kernel[0], 1), {**steps, "dilation_h_factor": attrs.get("dilation_d_factor", 1)})


def in_plane(shape: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Sliding:
    """How it slides over height and width."""
    return slide((shape[2], shape[3]), (kernel[1], kernel[2]), attrs)


@op("CONV_3D")
class Conv3D(Weighted):
    """A convolution of data [N, D, H, W, C] with a filter [d, h, w, C, O]."""

    filter_rank = 5
    cases = (
        Case(((1, 4, 5, 6, 3), Weights((2, 3, 3, 3, 5)), Weights((5,))), {**UNIT, OPTION: "RELU"}),
        Case(((2, 5, 4, 4, 2), Weights((3, 2, 2, 2, 17))), {**UNIT, "padding": "VALID"}),
        Case(((1, 7, 6, 5, 2), Weights((3, 3, 3, 2, 4)), Weights((4,))), {"stride_d": 2, "stride_h": 1, "stride_w": 2}),
        Case(((1, 6, 6, 6, 4), Weights((1, 1, 1, 4, 8)), Weights((8,))), UNIT),
        Case(
            ((1, 6, 7, 5, 1), Weights((2, 3, 2, 1, 3)), Weights((3,))),
            {**UNIT, "padding": "VALID", "dilation_d_factor": 3, "dilation_h_factor": 2, "dilation_w_factor": 2},
        ),
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
        shape, taps = call.shape(0), call.shape(1)[0]
        top, bottom, left, right = in_plane(shape, call.shape(1), call.node.attrs).padding
        columns = (shape[2] + top + bottom) * (shape[3] + left + right)
        side_by_side = shape[0] * max(self.shape(call)[1], 1) * taps * columns * shape[4]
        if taps > MAX_PARTS or side_by_side > max(MAX_ZEROS, 8 * taps * prod(shape)):
            yield f"CONV_3D: {taps} taps of the depth of {list(shape)} side by side are {side_by_side} elements."

    def shape(self, call: Call) -> Shape:
        shape, kernel, attrs = call.shape(0), call.shape(1), call.node.attrs
        depth, plane = along_depth(shape, kernel, attrs), in_plane(shape, kernel, attrs)
        return shape[0], depth.output[0], *plane.output, self.channels(call)

    def lowering(self, call: Call) -> Lowering:
        batch, depth, *image, channels = self.shape(call)
        form = Contract(**in_plane(call.shape(0), call.shape(1), call.node.attrs).geometry)
        return self.weighted(call, form, (self._planes(call), self._filters(call)), (batch * depth, *image, channels))

    def _planes(self, call: Call) -> Lowering:
        """[N * output depth, H, W, d * C]: what the window sees of the depth, side by side."""
        batch, _, height, width, channels = call.shape(0)
        sliding = along_depth(call.shape(0), call.shape(1), call.node.attrs)
        count, depth = sliding.kernel[0], sliding.output[0]
        shape = (batch, depth, height, width, channels)
        taps = tuple(self._tap(call, sliding, k, shape) for k in range(count))
        together = Lowering(Concat(axis=4), taps, (*shape[:4], count * channels)) if count > 1 else taps[0]
        return view(together, (batch * depth, height, width, count * channels))

    @staticmethod
    def _tap(call: Call, sliding: Sliding, number: int, shape: Shape) -> Lowering:
        start = number * sliding.dilation[0] - sliding.padding[0]
        access = Access((0, 1, 2, 3, 4), (0, start, 0, 0, 0), (1, sliding.stride[0], 1, 1, 1), 0.0)
        return Lowering(Map(Arg(0), (access,)), (call.index(0),), shape)

    @staticmethod
    def _filters(call: Call) -> np.ndarray:
        """[O, h, w, d * C]"""
        weights = call.constant(1)
        assert weights is not None
        _, height, width, _, outputs = weights.shape
        return weights.transpose(4, 1, 2, 0, 3).reshape(outputs, height, width, -1)

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
