"""Convolutions of each channel on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.forms import Depthwise, IndexMap, Map
from jitdelegate.ops.call import OPTION, Call, Shape
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.convolution import (
    UNIT,
    QuantizedWeighted,
    convolution_window,
    finish,
    image_problems,
    split,
    zero_problems,
)
from jitdelegate.ops.pointwise import X, Y, Z
from jitdelegate.ops.registry import HALF, MAX_PARTS, Lowering, op, view
from jitdelegate.ops.window import Sliding, patches, slide, window_problems


@op("DEPTHWISE_CONV_2D")
class DepthwiseConv2D(QuantizedWeighted):
    """One filter per channel, or the same number of filters for each channel; `depth_multiplier` is ignored."""

    narrow = HALF
    multiplies = True
    channel_axis = 3
    cases = (
        Case(((1, 8, 8, 4), Weights((1, 3, 3, 4)), Weights((4,))), {**UNIT, "padding": "SAME", OPTION: "RELU6"}),
        Case(((2, 9, 7, 17), Weights((1, 3, 3, 17)), Weights((17,))), {**UNIT, "padding": "VALID"}),
        Case(((1, 9, 9, 3), Weights((1, 3, 3, 6)), Weights((6,))), {**UNIT, "depth_multiplier": 2}),
        Case(((1, 9, 9, 1), Weights((1, 3, 3, 8)), Weights((8,))), {**UNIT, "depth_multiplier": 8, OPTION: "RELU"}),
        Case(((1, 11, 13, 16), Weights((1, 5, 5, 16)), Weights((16,))), {"stride_h": 2, "stride_w": 2}),
        Case(((1, 8, 6, 16), Weights((1, 3, 3, 16)), Weights((16,))), {"stride_h": 2, "stride_w": 2}),
        Case(
            ((1, 12, 12, 5), Weights((1, 3, 3, 5)), Weights((5,))),
            {**UNIT, "dilation_h_factor": 2, "dilation_w_factor": 2},
        ),
        Case(((1, 4, 4, 2), Weights((1, 4, 4, 2)), Weights((2,))), {**UNIT, "padding": "VALID"}),
        Case(((1, 8, 8, 5), Weights((1, 3, 3, 5)), (5,)), {**UNIT, OPTION: "RELU6"}),
        Case(((1, 9, 9, 3), Weights((1, 3, 3, 6)), Weights((6,))), {**UNIT, "depth_multiplier": 1}),
        Case(((2, 7, 6, 17), (1, 3, 2, 17), Weights((17,))), {"stride_h": 2, "stride_w": 1, OPTION: "RELU"}),
        Case(((1, 6, 7, 3), (1, 2, 3, 6), (6,)), {**UNIT, "padding": "VALID", "depth_multiplier": 2}),
        Case(((1, 1, 1, 4), (1, 1, 1, 4), Weights((4,))), UNIT),
    )

    def channels(self, call: Call) -> int:
        return call.shape(self.filter_operand)[3]

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        yield from super().problems(call)
        yield from window_problems(call)
        first, _, _, outputs = call.shape(1)
        if call.given(2) and len(call.shape(2)) != 1:
            yield f"DEPTHWISE_CONV_2D: the bias's shape is {list(call.shape(2))}, expected [{outputs}]."
        if first != 1 or outputs % call.shape(0)[3]:
            filters, channels = list(call.shape(1)), call.shape(0)[3]
            yield f"DEPTHWISE_CONV_2D: a filter of shape {filters} does not fit {channels} channels."
        if not self.is_constant(call) and prod(call.shape(1)[1:3]) > MAX_PARTS:
            taps = prod(call.shape(1)[1:3])
            yield f"DEPTHWISE_CONV_2D: the filter of {taps} taps is not a constant, the most is {MAX_PARTS}."
        yield from zero_problems(call)

    def shape(self, call: Call) -> Shape:
        return (call.shape(0)[0], *convolution_window(call).output, self.channels(call))

    def lowering(self, call: Call) -> Lowering:
        if not self.is_constant(call):
            return self._by_taps(call)
        multiplier = self.channels(call) // call.shape(0)[3]
        form = Depthwise(**convolution_window(call).geometry, multiplier=multiplier)
        return self.weighted(call, form, (call.index(0), call.index(1)))

    def _by_taps(self, call: Call) -> Lowering:
        """For a filter computed at run time: the sum over all taps of the data under the tap times the tap's filter,
        over [N, output h, output w, C, filters of a channel]."""
        batch, _, _, channels = call.shape(0)
        window, multiplier = convolution_window(call), self.channels(call) // channels
        shape = (batch, *window.output, channels, multiplier)
        data = view(call.index(0), (*call.shape(0), 1))
        filters = view(call.index(1), (*window.kernel, channels, multiplier))
        total: Lowering | None = None
        for ky, kx in np.ndindex(*window.kernel):
            accesses = (self._seen(window, ky, kx), IndexMap.along(-1, -1, 3, 4, starts=(ky, kx, 0, 0)))
            if total is None:
                total = Lowering(Map(X * Y, accesses), (data, filters), shape)
            else:
                form = Map(X * Y + Z, (*accesses, IndexMap.broadcast(shape, shape)))
                total = Lowering(form, (data, filters, total), shape)
        assert total is not None
        return self.finished(call, total, shape, shape[3:])

    @staticmethod
    def _seen(window: Sliding, ky: int, kx: int) -> IndexMap:
        """The pixels of [N, H, W, C, 1] under one tap of the window, zeros outside."""
        top, _, left, _ = window.padding
        (sy, sx), (dy, dx) = window.stride, window.dilation
        return IndexMap((0, 1, 2, 3, -1), (0, ky * dy - top, kx * dx - left, 0, 0), (1, sy, sx, 1, 1), 0.0)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split(arrays)
        window = slide(data.shape[1:3], weights.shape[1:3], attrs)
        repeated = np.repeat(data.astype(np.float64), weights.shape[3] // data.shape[3], axis=3)
        total = np.zeros((len(data), *window.output, weights.shape[3]))
        for ky, kx, seen in patches(repeated, window, 0):
            total += seen * weights[0, ky, kx]
        return finish(total, bias, attrs)
