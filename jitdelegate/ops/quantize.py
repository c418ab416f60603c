"""QUANTIZE and DEQUANTIZE: from real numbers to stored ones, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.dequantize import PACKED, real_numbers
from jitdelegate.ir.expr import Cast, Const, Expr, binary, select, unary
from jitdelegate.ir.forms import Concat, IndexMap, Map
from jitdelegate.ir.graph import Quant
from jitdelegate.ir.quantized import quantize
from jitdelegate.ops.call import Call, dequantization_problems, scale, zero
from jitdelegate.ops.pointwise import X, mapped
from jitdelegate.ops.quantization import (
    EIGHT,
    SIXTEEN,
    centred,
    limits,
    multiple,
    per_tensor_problems,
    plus,
    real_value,
    shifted,
)
from jitdelegate.ops.registry import BYTES, FLOATS, QUANTIZED, Lowering, Op, cast, op, view
from jitdelegate.ops.rounding import APART, AWAY, EVEN, FUSED, INTEGER, UP, rounding

BEYOND = 2.0**31
"""The first whole number that is no int32."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What LiteRT's optimized kernels compute of X: several elements at once, and those left in another way.

    Attributes:
        whole: of whole groups of `size` elements.
        rest: of the others.
    """

    whole: Expr
    rest: Expr
    size: int

    def lowering(self, call: Call) -> Lowering:
        """All elements in order, as one list."""
        data, dtype = call.tensor(0), call.output.dtype
        count = data.size - data.size % self.size
        if count in (0, data.size) or self.whole == self.rest:
            formula = self.whole if count else self.rest
            return mapped(formula, (call.index(0), data.shape), shape=data.shape, dtype=dtype)
        flat = view(call.index(0), (data.size,), data.dtype)
        parts = tuple(
            Lowering(Map(formula, (IndexMap.along(0, starts=(start,)),)), (flat,), (size,), dtype)
            for formula, start, size in ((self.whole, 0, count), (self.rest, count, data.size - count))
        )
        return Lowering(Concat(axis=0), parts, (data.size,), dtype)


@op("QUANTIZE")
class Quantize(Op):
    """The stored numbers that are nearest to float32 values, or to other stored numbers: round(x / scale) + zero."""

    quantized = (*FLOATS, *QUANTIZED)
    quantized_results: ClassVar = {0: QUANTIZED}

    def quantized_problems(self, call: Call) -> Iterator[str]:
        data, output = call.tensor(0), call.output
        yield from per_tensor_problems(call, output, *([] if data.dtype == "float32" else [data]))
        if data.dtype == "float32" and output.dtype == "int32":
            yield "QUANTIZE to int32 is not supported."
        elif output.dtype == "int32" and zero(output):
            yield f"QUANTIZE to int32 with the zero point {zero(output)}, expected 0."

    def quantized_lowering(self, call: Call) -> Lowering:
        grouped = self._from_float(call) if call.tensor(0).dtype == "float32" else requantized(call)
        return grouped.lowering(call)

    @staticmethod
    def _from_float(call: Call) -> Grouped:
        output, (low, high) = call.output, limits(call.output)
        own = output.dtype, zero(output), low, high
        rule, times, step = rounding(call, "float32"), float(np.float32(1) / scale(output)), float(scale(output))
        if rule == EVEN:
            near = quantize(X * times, *own)
            return Grouped(near, near, 1)

        def wrapped(steps: Expr, rounding: str) -> Expr:
            """On x86, LiteRT's kernels take the lowest int32 for what is none, and let its sum with the zero point
            wrap."""
            is_whole = binary("lt", unary("abs", steps), BEYOND)
            return select(is_whole, quantize(steps, *own, rounding), low if zero(output) >= 0 else high)

        if rule == AWAY:
            away = wrapped(X / step, "away")
            return Grouped(away, away, 1)
        return Grouped(wrapped(X * times, "even"), wrapped(Cast(X, "float64") / Const(step), "away"), EIGHT)


def requantized(call: Call) -> Grouped:
    """Stored numbers with the data's scale and zero point in those of the output."""
    data, output = call.tensor(0), call.output
    rule, value = rounding(call, data.dtype), centred(X, data)
    if rule == INTEGER:
        factor = int(np.rint(256 * (scale(data) / scale(output))))
        rounded: Expr = shifted(value * Const(factor), 8, output)
        return Grouped(rounded, rounded, 1)
    ratio = np.asarray(float(scale(data)) / float(scale(output)))
    away, _ = multiple(value, ratio, AWAY, output, "NONE", 1)
    if rule == AWAY or not {data.dtype, output.dtype} <= set(BYTES) or ratio == 1:
        return Grouped(away, away, 1)
    up, _ = multiple(value, ratio, UP, output, "NONE", 1)
    return Grouped(up, away, SIXTEEN)


@op("DEQUANTIZE")
class Dequantize(Op):
    """The float32 values that stored numbers stand for: (x - zero) * scale. Constants may have scales by slice.

    float16 values are converted; constants while compiling.
    """

    types = ("float16",)
    results: ClassVar = {0: FLOATS}
    quantized = (*QUANTIZED, *PACKED)
    quantized_results: ClassVar = {0: FLOATS}

    def problems(self, call: Call) -> Iterator[str]:
        source = call.tensor(0)
        if source.sparsity is not None:
            yield "DEQUANTIZE: input 0 is a sparse constant."
        if source.is_constant and source.is_quantized:
            yield from dequantization_problems(call, 0)
        elif source.dtype in PACKED:
            yield f"DEQUANTIZE from {source.dtype} is supported on constants only."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        if not call.tensor(0).is_constant:
            yield from per_tensor_problems(call, call.tensor(0))

    def lowering(self, call: Call) -> Lowering:
        return cast(call.index(0), call.shape(0), "float32")

    def quantized_lowering(self, call: Call) -> Lowering:
        """LiteRT's optimized kernel makes a float32 of its own of the zero point's share."""
        data = call.tensor(0)
        whole = rest = real_value(X, data)
        rule = rounding(call, data.dtype) if data.dtype in BYTES and zero(data) else EVEN
        if rule in (APART, FUSED):
            share = Const(float(np.float32(-zero(data) * float(scale(data)))))
            whole = plus(Cast(X, "float32"), float(scale(data)), share, is_fused=rule == FUSED)
        return Grouped(whole, rest, EIGHT).lowering(call)

    def foldable(self, call: Call) -> bool:
        return call.tensor(0).is_constant

    def fold(self, call: Call) -> list[np.ndarray]:
        return [real_numbers(call.tensor(0))]

    def grid(self, call: Call) -> Quant | None:
        return call.tensor(0).quant if call.tensor(0).is_quantized else None

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = (array for array in arrays if array is not None)
        return [data.astype(np.float32)]
