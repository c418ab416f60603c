"""MediaPipe's custom operators, as mediapipe/util/tflite/operations in MediaPipe's sources defines them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, maximum, select
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ops.call import OPTION, Call, Shape, given
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.convolution import Weighted, added_up, finish, image_problems, split
from jitdelegate.ops.pooling import MaxPool2D
from jitdelegate.ops.registry import MAX_NUMBERED, MAX_PARTS, Lowering, Op, op, view
from jitdelegate.ops.window import Borders, patches, stride, window_problems

PADDINGS = {1: "SAME", 2: "VALID"}
"""TfLitePadding, by its values in LiteRT's C structures."""
FUSED = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
"""TfLiteFusedActivation: the values that pools apply."""
LOWEST = float(np.finfo(np.float32).min)
MAX_TAPS = 16
"""Most elements of a pooling window that are compared in one kernel."""


@op("Convolution2DTransposeBias", custom=True)
class Convolution2DTransposeBias(Weighted):
    """TRANSPOSE_CONV with a bias; the output's size follows from the input's, SAME crops what VALID adds."""

    least = most = 3
    activates = False
    cases = (
        Case(((1, 4, 5, 6), Weights((3, 2, 2, 6)), Weights((3,))), {"padding": "SAME", "stride_h": 2, "stride_w": 2}),
        Case(((2, 3, 3, 4), Weights((5, 3, 4, 4)), Weights((5,))), {"padding": "SAME", "stride_h": 2, "stride_w": 3}),
        Case(((1, 5, 4, 3), Weights((2, 3, 3, 3)), Weights((2,))), {"padding": "VALID", "stride_h": 1, "stride_w": 2}),
    )

    def decode(self, options: bytes) -> dict[str, Any]:
        """TfLiteTransposeConvParams: padding, stride width and height; fields that newer files add are ignored."""
        if len(options) < 12:
            return {}
        padding, width, height = struct.unpack_from("<3i", options)
        return {"padding": PADDINGS.get(padding, str(padding)), "stride_w": width, "stride_h": height}

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        yield from super().problems(call)
        yield from window_problems(call)
        if call.shape(1)[3] != call.shape(0)[3]:
            yield f"{self.name}: a filter of shape {list(call.shape(1))} does not fit {call.shape(0)[3]} channels."
        if prod(stride(call.node.attrs)) > MAX_PARTS:
            yield f"{self.name}: strides of {list(stride(call.node.attrs))} are over {MAX_PARTS} parts."

    @staticmethod
    def geometry(data: Shape, weights: Shape, attrs: Mapping[str, Any]) -> tuple[Shape, Borders]:
        """The output's shape, and the rows and columns dropped at (top, bottom, left, right)."""
        sizes, dropped = [], []
        for count, kernel, step in zip(data[1:3], weights[1:3], stride(attrs), strict=True):
            excess = max(0, kernel - (count - 1) % step - 1) if attrs["padding"] == "SAME" else 0
            sizes.append(step * (count - 1) + kernel - excess)
            dropped += [excess // 2, excess - excess // 2]
        top, bottom, left, right = dropped
        return (data[0], *sizes, weights[0]), (top, bottom, left, right)

    def shape(self, call: Call) -> Shape:
        return self.geometry(call.shape(0), call.shape(1), call.node.attrs)[0]

    def work(self, call: Call) -> int:
        return prod(call.shape(0)[:-1]) * prod(call.shape(1))

    def lowering(self, call: Call) -> Lowering:
        _, dropped = self.geometry(call.shape(0), call.shape(1), call.node.attrs)
        kernel = call.shape(1)[1], call.shape(1)[2]
        form = Contract(kernel=kernel, stride=stride(call.node.attrs), padding=dropped, transposed=True)
        return self.weighted(call, form, call.node.inputs[:2])

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split(arrays)
        shape, (top, _, left, _) = self.geometry(data.shape, weights.shape, attrs)
        canvas = added_up(data, weights, stride(attrs))
        return finish(canvas[:, top : top + shape[1], left : left + shape[2]], bias, attrs)


def pool_options(options: bytes) -> dict[str, Any]:
    """TfLitePoolParams by TFLite's names; no options where there are too few bytes."""
    if len(options) < 24:
        return {}
    padding, stride_w, stride_h, width, height, activation = struct.unpack_from("<6i", options)
    return {
        "padding": PADDINGS.get(padding, str(padding)),
        "stride_w": stride_w,
        "stride_h": stride_h,
        "filter_width": width,
        "filter_height": height,
        OPTION: FUSED.get(activation, str(activation)),
    }


@op("MaxPoolingWithArgmax2D", custom=True)
class MaxPoolingWithArgmax2D(MaxPool2D):
    """MAX_POOL_2D, and the position of the largest value in the window, counted row by row, plus 0.1, as floats."""

    quantized = ()
    cases = tuple(
        Case((shape,), {"filter_height": h, "filter_width": w, "stride_h": s, "stride_w": s, "padding": p, OPTION: a})
        for shape, h, w, s, p, a in (
            ((1, 8, 8, 4), 2, 2, 2, "SAME", "NONE"),
            ((2, 7, 5, 17), 2, 2, 2, "SAME", "RELU"),
            ((1, 9, 9, 3), 3, 2, 2, "VALID", "NONE"),
        )
    )

    def decode(self, options: bytes) -> dict[str, Any]:
        return pool_options(options)

    def outputs(self, call: Call) -> int:
        return 2

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        taps = call.option("filter_height", 0) * call.option("filter_width", 0)
        if taps > MAX_TAPS:
            yield f"{self.name}: the window has {taps} taps, at most {MAX_TAPS} are supported."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (self.shape(call),) * 2

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        largest = super().lowering(call)
        assert isinstance(largest, Lowering)
        window = self.window(call.shape(0), call.node.attrs)
        accesses: list[IndexMap] = []
        best: Expr = Const(LOWEST)
        index: Expr = Const(_tap_value(0))
        for ky, kx in np.ndindex(*window.kernel):
            value, starts = Arg(len(accesses)), (0, ky - window.padding[0], kx - window.padding[2], 0)
            index = select(binary("gt", value, best), _tap_value(len(accesses)), index)
            best = maximum(best, value)
            accesses.append(IndexMap((0, 1, 2, 3), starts, (1, *window.stride, 1), LOWEST))
        return largest, Lowering(Map(index, tuple(accesses)), (call.index(0),) * len(accesses))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        window = self.window(data.shape, attrs)
        seen = np.stack([part for _, _, part in patches(data, window, -np.inf)])
        return [*super().reference(arrays, attrs), np.argmax(seen, 0).astype(np.float32) + np.float32(0.1)]


def _tap_value(tap: int) -> float:
    return float(np.float32(tap) + np.float32(0.1))


@op("MaxUnpooling2D", custom=True)
class MaxUnpooling2D(Op):
    """Puts results of MaxPoolingWithArgmax2D, from windows that do not overlap, back at their positions among zeros."""

    folds = 0
    least = most = 2
    cases = (
        Case(
            ((1, 4, 3, 5), (1, 4, 3, 5)),
            {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "SAME", OPTION: "NONE"},
            low=0.1,
            high=3.9,
        ),
    )

    def decode(self, options: bytes) -> dict[str, Any]:
        return pool_options(options)

    @staticmethod
    def window(attrs: Mapping[str, Any]) -> tuple[int, int]:
        """(h, w)."""
        return int(attrs.get("filter_height", 0)), int(attrs.get("filter_width", 0))

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        window, steps = self.window(call.node.attrs), stride(call.node.attrs)
        if call.shape(0) != call.shape(1):
            yield f"{self.name}: indices of shape {list(call.shape(1))} for values of shape {list(call.shape(0))}."
        if window != steps or min(window) < 1:
            yield f"{self.name} with windows of {list(window)} and strides of {list(steps)} is not supported."
        if prod(window) > MAX_NUMBERED:
            yield f"{self.name}: windows of {list(window)} have more than {MAX_NUMBERED} elements."

    def shape(self, call: Call) -> Shape:
        (batch, height, width, channels), (rows, columns) = call.shape(0), self.window(call.node.attrs)
        return (batch, height * rows, width * columns, channels)

    def lowering(self, call: Call) -> Lowering:
        """Axes (n, y, row in the window, x, column in the window, c); the last operand counts positions."""
        (batch, height, width, channels), (rows, columns) = call.shape(0), self.window(call.node.attrs)
        apart, whole = (batch, height, 1, width, 1, channels), (batch, height, rows, width, columns, channels)
        numbers = np.arange(rows * columns, dtype=np.int32).reshape(1, 1, rows, 1, columns, 1)
        value, index, number = Arg(0), Arg(1), Arg(2)
        form = Map(
            select(binary("eq", Cast(index, "int32"), number), value, 0.0),
            tuple(IndexMap.broadcast(shape, whole) for shape in (apart, apart, numbers.shape)),
        )
        return Lowering(form, (view(call.index(0), apart), view(call.index(1), apart), numbers), whole)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        values, indices = given(arrays)
        (batch, height, width, channels), (rows, columns) = values.shape, self.window(attrs)
        out = np.zeros((batch, height * rows, width * columns, channels), np.float32)
        for n, y, x, c in np.ndindex(*values.shape):
            row, column = divmod(int(indices[n, y, x, c]), columns)
            out[n, y * rows + row, x * columns + column, c] = values[n, y, x, c]
        return [out]
