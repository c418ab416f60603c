"""Operators with weights: convolutions and the fully connected layer.

Constant weights are rearranged while compiling. Weights that are known only at run time become one side of a matrix
product; the other side is the data's rows, or the patches under the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import Concat, Contract, Form, IndexMap, MatMul
from jitdelegate.ir.graph import ABSENT
from jitdelegate.ops.call import ACTIVATIONS, OPTION, Call, Shape, activated, constant_problems, given, zero
from jitdelegate.ops.case import Case, Weights, ints
from jitdelegate.ops.dynamic_weights import dynamic_sums, quantizes_data
from jitdelegate.ops.integer_matmul import IntegerMatMul, Matrix
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.quantization import (
    factor_problems,
    per_tensor_problems,
    reach,
    result_problems,
    tensor_problems,
)
from jitdelegate.ops.quantized_weights import (
    WEIGHTS,
    Operands,
    bias_problems,
    integer_sums,
    scale_problems,
    sum_factors,
    sum_rule,
    weight_problems,
)
from jitdelegate.ops.registry import BYTES, HALF, HYBRID, MAX_PARTS, Kinds, Lowering, Op, moved, op, view
from jitdelegate.ops.rounding import WIDE
from jitdelegate.ops.shape import reordered
from jitdelegate.ops.window import Borders, Pair, Sliding, dilation, patches, slide, slide_back, stride, window_problems

UNIT = {"stride_h": 1, "stride_w": 1}

MAX_TAPS = 1 << 22
"""Most weights of one output channel: the program has a table of their inputs' offsets, 2 bytes a weight."""

MAX_ZEROS = 1 << 26
"""Most elements of an image with its halo of zeros, where these are over 8 times the elements of the image itself."""


class Weighted(Op):
    """Operands (data, filter, optional bias) and a fused activation."""

    least, most = 2, 3
    folds = 0
    activates = True
    filter_operand = 1
    bias_operand = 2
    filter_rank = 4
    multiplies = False
    """True where the filter may be computed at run time."""
    weights: ClassVar[tuple[int, ...]] = (1,)
    hybrid: ClassVar[tuple[str, ...]] = HYBRID
    sums_rows = False
    """True where data may be quantized at run time."""
    data_operand = 0
    channel_axis = 0
    """The filter's axis of output channels."""

    def problems(self, call: Call) -> Iterator[str]:
        if not self.multiplies:
            yield from constant_problems(call, self.filter_operand)
        if len(call.shape(self.filter_operand)) != self.filter_rank:
            shape = list(call.shape(self.filter_operand))
            yield f"{self.name}: the filter's shape is {shape}, expected rank {self.filter_rank}."
        yield from self._bias(call)
        taps = prod(call.shape(self.filter_operand)) // self.channels(call)
        if taps > MAX_TAPS:
            yield f"{self.name}: {taps} weights for one output channel are more than {MAX_TAPS}."

    def _bias(self, call: Call) -> Iterator[str]:
        operand, channels = self.bias_operand, self.channels(call)
        if call.given(operand) and prod(call.shape(operand)) != channels:
            yield f"{self.name}: the bias's shape is {list(call.shape(operand))}, expected [{channels}]."

    def bias(self, call: Call) -> int | Lowering | np.ndarray:
        """The bias as f32[channels], whatever its own shape is; ABSENT where no bias is given."""
        operand, shape = self.bias_operand, (self.channels(call),)
        if not call.given(operand) or call.shape(operand) == shape:
            return call.index(operand)
        data = call.constant(operand)
        return view(call.index(operand), shape) if data is None else data.reshape(shape)

    def channels(self, call: Call) -> int:
        """The number of output channels of the filter."""
        return call.shape(self.filter_operand)[0]

    def work(self, call: Call) -> int:
        return prod(call.output.shape) * prod(call.shape(self.filter_operand)) // max(self.channels(call), 1)

    def weighted(
        self, call: Call, form: Form, operands: Sequence[int | Lowering | np.ndarray], shape: Shape | None = None
    ) -> Lowering:
        """The lowering of data and filter by `form`, with bias and activation; the form writes `shape`.

        A constant bias becomes the form's third operand if the form takes one; any other bias is added in the epilogue.
        """
        bias, activation = self.bias(call), ACTIVATIONS[call.option(OPTION, "NONE")]
        is_given = call.given(self.bias_operand)
        is_own = is_given and call.tensor(self.bias_operand).is_constant and form.core > len(operands)
        own = (*operands, bias if is_own else ABSENT)[: form.core]
        if is_own or not is_given:
            return Lowering(replace(form, epilogue=activation(RESULT)), own, shape)
        access = IndexMap.broadcast((self.channels(call),), shape or call.output.shape)
        return Lowering(replace(form, epilogue=activation(RESULT + Arg(1)), operands=(access,)), (*own, bias), shape)

    def product(self, call: Call, rows: int | Lowering, count: int) -> Lowering:
        """`count` rows of numbers times a filter that is computed at run time."""
        shape, weights = call.shape(self.filter_operand), call.index(self.filter_operand)
        filters = view(weights, (shape[0], prod(shape[1:]))) if len(shape) > 2 else weights
        return self.weighted(call, MatMul(adj_y=True), (rows, filters), (count, shape[0]))

    def finished(self, call: Call, total: Lowering, shape: Shape, channels: Shape) -> Lowering:
        """Sums of `shape` with the bias and the activation; `channels` are the last axes, along which the bias lies."""
        activation = ACTIVATIONS[call.option(OPTION, "NONE")]
        if not call.given(self.bias_operand):
            return mapped(activation(X), (total, shape), shape=shape)
        bias = view(call.index(self.bias_operand), channels)
        return mapped(activation(X + Y), (total, shape), (bias, channels), shape=shape)

    @property
    def weighted_operands(self) -> Operands:
        """Which operands are data, filter and bias."""
        return Operands(self.data_operand, self.filter_operand, self.bias_operand, self.channel_axis)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from weight_problems(call, self.weighted_operands)

    def quantized_lowering(self, call: Call) -> Lowering:
        lowering = self.lowering(call)
        assert isinstance(lowering, Lowering)
        return integer_sums(call, lowering, self.weighted_operands)

    def widens(self, call: Call) -> bool:
        return not self.sums_rows or not quantizes_data(call, self.weighted_operands)

    def hybrid_lowering(self, call: Call) -> Lowering:
        lowering = self.lowering(call)
        assert isinstance(lowering, Lowering)
        return dynamic_sums(call, lowering, self.weighted_operands)

    def is_constant(self, call: Call) -> bool:
        """Whether the filter is known while compiling."""
        return call.tensor(self.filter_operand).is_constant


def image_problems(call: Call, operand: int) -> Iterator[str]:
    """A reason to refuse, where the operand is not an NHWC image."""
    if len(call.shape(operand)) != 4:
        yield f"{call.node.op}: the input's shape is {list(call.shape(operand))}, expected rank 4."


def convolution_window(call: Call) -> Sliding:
    """How the filter [_, h, w, _] slides over the data [N, H, W, C]."""
    _, height, width, _ = call.shape(0)
    _, kernel_height, kernel_width, _ = call.shape(1)
    return slide((height, width), (kernel_height, kernel_width), call.node.attrs)


def zero_problems(call: Call) -> Iterator[str]:
    """A reason to refuse, where a window reaches so far beyond the data that its halo of zeros would fill memory."""
    batch, height, width, channels = call.shape(0)
    top, bottom, left, right = convolution_window(call).padding
    padded = batch * (height + top + bottom) * (width + left + right) * channels
    if padded > max(MAX_ZEROS, 8 * prod(call.shape(0))):
        yield f"{call.node.op}: the window reaches so far that {list(call.shape(0))} becomes {padded} elements."


def patch_rows(call: Call) -> Lowering:
    """The patch of the data [N, H, W, C] under the window for each output pixel, as f32[pixels, kh * kw * C]."""
    window, (batch, _, _, channels) = convolution_window(call), call.shape(0)
    seen = _seen(call, window)
    return view(seen, (batch * prod(window.output), prod(window.kernel) * channels))


def _seen(call: Call, window: Sliding) -> int | Lowering:
    """The taps of the window side by side: [N, output h, output w, kh * kw * C]."""
    if call.shape(0)[1:3] == window.output and window.kernel == (1, 1):
        return call.index(0)
    batch, _, _, channels = call.shape(0)
    (top, _, left, _), (dy, dx) = window.padding, window.dilation
    starts = [(ky * dy - top, kx * dx - left) for ky, kx in np.ndindex(*window.kernel)]
    return taps(call.index(0), starts, window.stride, (batch, *window.output, channels))


def taps(source: int | Lowering, starts: Sequence[Pair], steps: Pair, shape: Shape) -> Lowering:
    """Pixels of an image from each starting point on, zeros outside the image; their channels lie side by side.

    Args:
        shape: the shape of the pixels from one starting point.
    """
    accesses = [IndexMap((0, 1, 2, 3), (0, y, x, 0), (1, *steps, 1), fill=0.0) for y, x in starts]
    seen = tuple(moved(source, access, shape) for access in accesses)
    return Lowering(Concat(axis=3), seen, (*shape[:3], len(seen) * shape[3])) if len(seen) > 1 else seen[0]


def finish(total: np.ndarray, bias: np.ndarray | None, attrs: Mapping[str, Any]) -> list[np.ndarray]:
    """Sums with the bias added, rounded to float32 and activated."""
    return [activated(attrs.get(OPTION, "NONE"), total if bias is None else total + bias)]


def split(arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(data, filter, bias as a vector or None) of a reference's operands."""
    data, weights, *bias = given(arrays)
    return data, weights, bias[0].reshape(-1) if bias else None


class QuantizedWeighted(Weighted):
    """An operator with weights that is compiled for quantized data too."""

    quantized: ClassVar[tuple[str, ...]] = ("int8", "uint8", "int16")
    quantized_kinds: ClassVar[Kinds] = {1: BYTES, 2: ("int32", "int64")}


@op("CONV_2D")
class Conv2D(QuantizedWeighted):
    """A convolution, grouped where the filter has fewer channels than the data."""

    narrow = HALF
    sums_rows = True
    multiplies = True
    cases = (
        Case(((1, 8, 8, 4), Weights((8, 3, 3, 4)), Weights((8,))), {**UNIT, "padding": "SAME", OPTION: "RELU6"}),
        Case(((1, 9, 7, 3), Weights((5, 3, 3, 3)), Weights((5,))), {**UNIT, "padding": "VALID"}),
        Case(((2, 6, 6, 17), Weights((33, 1, 1, 17)), Weights((33,))), {**UNIT, "padding": "VALID", OPTION: "RELU"}),
        Case(((1, 11, 13, 3), Weights((8, 5, 3, 3)), Weights((8,))), {"stride_h": 2, "stride_w": 3}),
        Case(((1, 8, 6, 3), Weights((8, 3, 3, 3)), Weights((8,))), {"stride_h": 2, "stride_w": 2}),
        Case(
            ((1, 12, 12, 2), Weights((4, 3, 3, 2)), Weights((4,))),
            {**UNIT, "dilation_h_factor": 2, "dilation_w_factor": 3},
        ),
        Case(((1, 7, 7, 6), Weights((9, 3, 3, 2)), Weights((9,))), {**UNIT, OPTION: "RELU"}),
        Case(((1, 1, 1, 64), Weights((10, 1, 1, 64)), Weights((10,))), {**UNIT, OPTION: "RELU_N1_TO_1"}),
        Case(((1, 3, 3, 2), Weights((2, 7, 7, 2)), Weights((2,))), {"padding": "SAME", "stride_h": 2, "stride_w": 2}),
        Case(((2, 5, 4, 17), (9, 1, 1, 17), Weights((9,))), {**UNIT, OPTION: "RELU"}),
        Case(((2, 9, 7, 3), (5, 3, 2, 3), (5,)), {"stride_h": 2, "stride_w": 3, "dilation_h_factor": 1}),
        Case(((1, 9, 9, 4), (6, 3, 3, 4), Weights((6,))), {**UNIT, "padding": "VALID", "dilation_w_factor": 2}),
        Case(((1, 6, 6, 4), Weights((6, 3, 3, 4)), (6,)), {**UNIT, OPTION: "RELU6"}),
        Case(((1, 5, 5, 3), Weights((4, 2, 2, 3)), Weights((1, 1, 1, 4))), UNIT),
        Case(((2, 6, 5, 6), (9, 3, 2, 2), Weights((9,))), {"stride_h": 2, "stride_w": 1, OPTION: "RELU"}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        yield from super().problems(call)
        yield from window_problems(call)
        outputs, _, _, depth = call.shape(1)
        channels = call.shape(0)[3]
        if channels % depth or outputs % (channels // depth):
            yield f"CONV_2D: a filter of shape {list(call.shape(1))} does not fit {channels} channels."
        if channels // depth > MAX_PARTS:
            yield f"CONV_2D: {channels // depth} groups are more than {MAX_PARTS}."
        if not self.is_constant(call):
            yield from self._product_problems(call)
        yield from zero_problems(call)

    @staticmethod
    def _product_problems(call: Call) -> Iterator[str]:
        """Reasons why the convolution cannot be a product of patches and filter."""
        name, (_, height, width, _) = call.tensor(1).title, call.shape(1)
        if height * width > MAX_PARTS:
            yield f"CONV_2D: the filter '{name}' of {height * width} taps is not a constant, the most is {MAX_PARTS}."

    def shape(self, call: Call) -> Shape:
        return (call.shape(0)[0], *convolution_window(call).output, self.channels(call))

    def lowering(self, call: Call) -> Lowering:
        groups = call.shape(0)[3] // call.shape(1)[3]
        if self.is_constant(call):
            form = Contract(**convolution_window(call).geometry, groups=groups)
            return self.weighted(call, form, (call.index(0), call.index(1)))
        if groups > 1:
            return self._grouped(call, groups)
        return self.product(call, patch_rows(call), prod(call.output.shape[:3]))

    def _grouped(self, call: Call, groups: int) -> Lowering:
        """One product for each group: the group's channels times its part of a filter that is computed at run time."""
        pixels, (outputs, height, width, depth) = prod(call.output.shape[:3]), call.shape(1)
        taps, per_group = height * width, outputs // groups
        apart = reordered(patch_rows(call), (pixels, taps, groups, depth), (2, 0, 1, 3), "float32")
        rows = view(apart, (groups, pixels, taps * depth))
        filters = view(call.index(1), (groups, per_group, taps * depth))
        products = Lowering(MatMul(adj_y=True), (rows, filters), (groups, pixels, per_group))
        together = view(reordered(products, (groups, pixels, per_group), (1, 0, 2), "float32"), (pixels, outputs))
        return self.finished(call, together, (pixels, outputs), (outputs,))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split(arrays)
        groups = data.shape[3] // weights.shape[3]
        window = slide(data.shape[1:3], weights.shape[1:3], attrs)
        total = np.zeros((len(data), *window.output, len(weights)))
        grouped = np.asarray(weights, np.float64).reshape(groups, -1, *weights.shape[1:])
        for ky, kx, seen in patches(data.astype(np.float64), window, 0):
            parts = seen.reshape(*seen.shape[:3], groups, -1)
            total += np.einsum("nyxgc,goc->nyxgo", parts, grouped[:, :, ky, kx]).reshape(total.shape)
        return finish(total, bias, attrs)


@op("FULLY_CONNECTED")
class FullyConnected(QuantizedWeighted):
    """Rows of K numbers times the filter [O, K]; the data is flattened to [rows, K], whatever its rank."""

    narrow = HALF
    quantized_kinds: ClassVar[Kinds] = {**QuantizedWeighted.quantized_kinds, 1: (*BYTES, "int16")}
    filter_rank = 2
    sums_rows = True
    multiplies = True
    cases = (
        Case(((1, 64), Weights((10, 64)), Weights((10,))), {OPTION: "RELU"}),
        Case(((5, 17), Weights((33, 17)), None)),
        Case(((2, 3, 4, 5), Weights((7, 60)), Weights((7,)))),
        Case(((1, 1, 1, 32), Weights((6, 32)), Weights((6,)))),
        Case(((2, 3, 4, 8), Weights((5, 8))), {"keep_num_dims": True, OPTION: "RELU6"}),
        Case(((2, 3, 8), Weights((5, 8))), {"keep_num_dims": True}),
        Case(((2, 3, 8), Weights((5, 8)))),
        Case(((2, 8), Weights((5, 8)), Weights((1, 5)))),
        Case(((2, 8), Weights((5, 8)), (1, 1, 5)), {OPTION: "RELU"}),
        Case(((12,), Weights((5, 4)), Weights((5,)))),
        Case(((5, 17), (33, 17), Weights((33,))), {OPTION: "RELU"}),
        Case(((2, 3, 8), (5, 8), (5,)), {"keep_num_dims": True}),
        Case(((1, 64), (10, 64))),
        Case(((5, 17), Weights((33, 17)), (33,))),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        if call.option("weights_format", "DEFAULT") != "DEFAULT":
            yield f"FULLY_CONNECTED with weights_format {call.option('weights_format', '')} is not supported."
        data, depth = call.shape(0), call.shape(1)[1]
        if prod(data) % depth:
            yield f"FULLY_CONNECTED: an input of shape {list(data)} does not divide into rows of {depth}."
        if call.option("keep_num_dims", False) and (not data or data[-1] != depth):
            yield f"FULLY_CONNECTED with keep_num_dims: the input's shape is {list(data)}, expected rows of {depth}."

    def shape(self, call: Call) -> Shape:
        data, (outputs, depth) = call.shape(0), call.shape(1)
        return (*data[:-1], outputs) if call.option("keep_num_dims", False) else (prod(data) // depth, outputs)

    def lowering(self, call: Call) -> Lowering:
        """The data keeps its own shape if its last axis is a row and a Contract gives the output's shape."""
        data, depth = call.shape(0), call.shape(1)[1]
        rows, count = call.index(0), prod(data) // depth
        if not self.is_constant(call):
            return self.product(call, rows if data == (count, depth) else view(rows, (count, depth)), count)
        flat = view(rows, (count, depth), call.tensor(0).dtype)
        direct = data and data[-1] == depth and (len(data) != 4 or len(call.output.shape) == 4)
        return self.weighted(call, Contract(), (rows if direct else flat, call.index(1)))

    @staticmethod
    def _of_words(call: Call) -> bool:
        """Whether data and filter are int16, which LiteRT sums up in 64 bits whatever the bias is."""
        return call.tensor(0).dtype == call.tensor(1).dtype == "int16"

    def quantized_problems(self, call: Call) -> Iterator[str]:
        """A filter that is computed has one scale; XNNPACK does not take it."""
        if self.is_constant(call) and not self._of_words(call):
            yield from super().quantized_problems(call)
            return
        yield from bias_problems(call, self.weighted_operands)
        weights, data, output = call.tensor(1), call.tensor(0), call.output
        yield from per_tensor_problems(call, data, output)
        if self.is_constant(call):
            yield from scale_problems(call, weights, self.channel_axis)
        else:
            yield from tensor_problems(call, weights)
        is_odd = weights.dtype not in WEIGHTS[data.dtype] or (data.dtype == "int16" and zero(weights))
        if is_odd and not self._of_words(call):
            kind = f"{weights.dtype} with the zero point {zero(weights)}"
            yield f"{self.name}: the filter of {data.dtype} is computed, {kind}, expected {WEIGHTS[data.dtype][0]}."
        factor = float(self._factors(call).max())
        yield from factor_problems(call, factor)
        yield from result_problems(call, weights.shape[1] * reach(data) * reach(weights) * factor)

    def _rule(self, call: Call) -> str:
        return WIDE if self._of_words(call) else sum_rule(call, self.weighted_operands)

    def _factors(self, call: Call) -> np.ndarray:
        return sum_factors(call.tensor(0), call.tensor(1), call.output, self._rule(call))

    def quantized_lowering(self, call: Call) -> Lowering:
        if self.is_constant(call) and not self._of_words(call):
            return super().quantized_lowering(call)
        filters, bias = Matrix.of(call, 1, is_turned=True), self.bias_operand
        rows = (prod(call.shape(0)) // filters.shape[1], filters.shape[1])
        data = Matrix(view(call.index(0), rows, call.tensor(0).dtype), rows, call.tensor(0))
        bias_index = call.index(bias) if call.given(bias) else None
        output = rows[0], filters.shape[0]
        return IntegerMatMul(call, data, filters, output, self._rule(call), self._factors(call), bias_index).lowering()

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split(arrays)
        total = data.reshape(-1, weights.shape[1]).astype(np.float64) @ weights.T.astype(np.float64)
        shape = (*data.shape[:-1], len(weights)) if attrs.get("keep_num_dims") else total.shape
        return finish(total.reshape(shape), bias, attrs)


@op("TRANSPOSE_CONV")
class TransposeConv(QuantizedWeighted):
    """Every input pixel adds its multiple of the filter to the output; operands (output shape, filter, data, bias)."""

    quantized_kinds: ClassVar[Kinds] = {1: BYTES, 3: ("int32", "int64")}
    data_operand = 2
    least, most = 3, 4
    parameters = (0,)
    bias_operand = 3
    multiplies = True
    cases = (
        Case((ints(1, 8, 8, 5), Weights((5, 3, 3, 4)), (1, 4, 4, 4)), {"stride_h": 2, "stride_w": 2}),
        Case((ints(1, 8, 7, 3), Weights((3, 4, 5, 2)), (1, 4, 4, 2)), {"stride_h": 2, "stride_w": 2}),
        Case(
            (ints(1, 9, 9, 5), Weights((5, 3, 3, 4)), (1, 4, 4, 4)), {"stride_h": 2, "stride_w": 2, "padding": "VALID"}
        ),
        Case((ints(2, 6, 5, 17), Weights((17, 2, 2, 3)), (2, 3, 3, 3), Weights((17,))), {"stride_h": 2, "stride_w": 2}),
        Case((ints(1, 7, 7, 2), Weights((2, 3, 3, 3)), (1, 5, 5, 3)), {**UNIT, "padding": "VALID", OPTION: "RELU"}),
        Case(
            (ints(1, 8, 8, 4), Weights((4, 2, 2, 4)), (1, 4, 4, 4)), {"stride_h": 2, "stride_w": 2, "padding": "VALID"}
        ),
        Case(
            (ints(1, 10, 10, 2), Weights((2, 3, 3, 2)), (1, 4, 4, 2)),
            {"stride_h": 2, "stride_w": 2, "padding": "VALID"},
        ),
        Case((ints(1, 8, 8, 2), Weights((2, 1, 1, 2)), (1, 4, 4, 2)), {"stride_h": 2, "stride_w": 2}),
        Case((ints(1, 8, 7, 3), (3, 4, 5, 2), (1, 4, 4, 2)), {"stride_h": 2, "stride_w": 2}),
        Case((ints(2, 9, 6, 5), (5, 3, 2, 4), (2, 4, 2, 4), (5,)), {"stride_h": 2, "stride_w": 3, "padding": "VALID"}),
        Case((ints(1, 3, 3, 5), (5, 1, 1, 4), (1, 3, 3, 4)), {**UNIT}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 2)
        yield from super().problems(call)
        yield from window_problems(call)
        if dilation(call.node.attrs) != (1, 1):
            yield "TRANSPOSE_CONV with dilation is not supported."
        asked = call.integers(0)
        if len(asked) != 4 or min(asked) < 1:
            yield f"TRANSPOSE_CONV: the output shape asked for is {list(asked)}, expected 4 positive sizes."
        if call.shape(1)[3] != call.shape(2)[3]:
            yield f"TRANSPOSE_CONV: a filter of shape {list(call.shape(1))} does not fit {call.shape(2)[3]} channels."
        phases = prod(min(step, size) for step, size in zip(stride(call.node.attrs), asked[1:3], strict=True))
        if phases > MAX_PARTS:
            yield f"TRANSPOSE_CONV: strides of {list(stride(call.node.attrs))} are {phases} parts, over {MAX_PARTS}."
        yield from self._sizes(call, asked)
        if not self.is_constant(call) and max(prod(call.shape(1)[1:3]), prod(stride(call.node.attrs))) > MAX_PARTS:
            name, (_, height, width, _) = call.tensor(1).title, call.shape(1)
            yield f"TRANSPOSE_CONV: the filter '{name}' of {height * width} taps is not a constant."

    def _sizes(self, call: Call, asked: Shape) -> Iterator[str]:
        """The convolution that this operator transposes has to turn the output's size into the data's size."""
        window = slide((asked[1], asked[2]), call.shape(1)[1:3], call.node.attrs)  # type: ignore[arg-type]
        if call.shape(2)[:3] != (asked[0], *window.output) or asked[3] != self.channels(call):
            yield f"TRANSPOSE_CONV: the output shape {list(asked)} does not fit an input of {list(call.shape(2))}."

    def shape(self, call: Call) -> Shape:
        return call.integers(0)

    def work(self, call: Call) -> int:
        return prod(call.shape(2)[:-1]) * prod(call.shape(1))

    def lowering(self, call: Call) -> Lowering:
        _, height, width, _ = call.shape(2)
        _, *output, _ = call.output.shape
        kernel = call.shape(1)[1], call.shape(1)[2]
        padding = slide_back((height, width), (output[0], output[1]), kernel, call.node.attrs)
        if not self.is_constant(call):
            return self.product(call, self._patch_rows(call, padding), prod(call.output.shape[:3]))
        form = Contract(
            kernel=kernel, stride=stride(call.node.attrs), dilation=(1, 1), padding=padding, transposed=True
        )
        return self.weighted(call, form, (call.index(2), call.index(1)))

    @staticmethod
    def _patch_rows(call: Call, dropped: Borders) -> Lowering:
        """For each output pixel, the input pixels that the filter's taps bring to it; input pixels lie a stride apart,
        with zeros between them."""
        (batch, height, width, depth), (sy, sx) = call.shape(2), stride(call.node.attrs)
        access = IndexMap.along(*range(6), fill=0.0)
        apart = view(call.index(2), (batch, height, 1, width, 1, depth))
        spread = moved(apart, access, (batch, height, sy, width, sx, depth))
        kernel = call.shape(1)[1], call.shape(1)[2]
        starts = [(dropped[0] - ky, dropped[2] - kx) for ky, kx in np.ndindex(*kernel)]
        shape = (*call.output.shape[:3], depth)
        rows = taps(view(spread, (batch, height * sy, width * sx, depth)), starts, (1, 1), shape)
        return view(rows, (prod(shape[:3]), len(starts) * depth))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, weights, bias = split([arrays[2], arrays[1], *arrays[3:]])
        _, height, width, _ = (int(size) for size in given(arrays[:1])[0])
        top, _, left, _ = slide_back(data.shape[1:3], (height, width), weights.shape[1:3], attrs)
        canvas = added_up(data, weights, stride(attrs), (height, width))
        return finish(canvas[:, top : top + height, left : left + width], bias, attrs)


def added_up(data: np.ndarray, weights: np.ndarray, steps: Pair, room: Pair = (0, 0)) -> np.ndarray:
    """f64[N, H, W, O]: the sum of every pixel's multiple of the filter [O, h, w, C], the multiples of neighbours a
    stride apart; `room` adds rows and columns at the end."""
    (batch, height, width, _), (sy, sx), (outputs, *kernel, _) = data.shape, steps, weights.shape
    canvas = np.zeros((batch, room[0] + height * sy + kernel[0], room[1] + width * sx + kernel[1], outputs))
    for ky, kx in np.ndindex(*kernel):
        part = data.astype(np.float64) @ weights[:, ky, kx].T.astype(np.float64)
        canvas[:, ky : ky + height * sy : sy, kx : kx + width * sx : sx] += part
    return canvas
