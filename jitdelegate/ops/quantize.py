"""QUANTIZE and DEQUANTIZE: from real numbers to stored ones, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.dequantize import real_numbers
from jitdelegate.ir.expr import Const, Expr
from jitdelegate.ir.graph import Quant, Tensor
from jitdelegate.ir.quantized import quantize
from jitdelegate.ops.call import Call, dequantization_problems
from jitdelegate.ops.pointwise import X, mapped
from jitdelegate.ops.quantization import centred, limits, multiple, per_tensor_problems, real_value, shifted
from jitdelegate.ops.registry import BYTES, FLOATS, QUANTIZED, Lowering, Op, op
from jitdelegate.ops.rounding import AWAY, EVEN, INTEGER, UP, rounding
from jitdelegate.ops.scales import scale, zero

VECTOR = 16
"""Bytes that LiteRT's optimized kernel rescales at once."""


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
        elif _rounds_in_vectors(call) and data.size > VECTOR and data.size % VECTOR and scale(data) != scale(output):
            yield f"QUANTIZE: LiteRT rounds the last {data.size % VECTOR} of {data.size} bytes in another way."

    def quantized_lowering(self, call: Call) -> Lowering:
        data, output = call.tensor(0), call.output
        found = self._from_float(call) if data.dtype == "float32" else requantized(call, data, output)
        return mapped(found, (call.index(0), data.shape), shape=data.shape, dtype=output.dtype)

    @staticmethod
    def _from_float(call: Call) -> Expr:
        output, (low, high) = call.output, limits(call.output)
        if rounding(call, "float32") == EVEN:
            real = X * Const(float(np.float32(1) / scale(output)))
            return quantize(real, output.dtype, zero(output), low, high)
        return quantize(X / Const(float(scale(output))), output.dtype, zero(output), low, high, "away")


def _rounds_in_vectors(call: Call) -> bool:
    """Whether LiteRT's optimized kernel for bytes runs: it takes halves up, but those of the last bytes away from 0."""
    return call.output.dtype in BYTES and call.tensor(0).dtype in BYTES and rounding(call, call.tensor(0).dtype) == UP


def requantized(call: Call, data: Tensor, output: Tensor) -> Expr:
    """Stored numbers with the scale and zero point of `data` in those of `output`."""
    rule, value = rounding(call, data.dtype), centred(X, data)
    if rule == UP and (data.size < VECTOR or not _rounds_in_vectors(call)):
        rule = AWAY
    if rule == INTEGER:
        factor = int(np.rint(256 * (scale(data) / scale(output))))
        return shifted(value * Const(factor), 8, output)
    ratio = np.asarray(float(scale(data)) / float(scale(output)))
    found, _ = multiple(value, ratio, rule, output, "NONE", 1)
    return found


@op("DEQUANTIZE")
class Dequantize(Op):
    """The float32 values that stored numbers stand for: (x - zero) * scale. Constants may have scales by slice.

    Constants of float16 are converted while compiling.
    """

    types = ("float16",)
    results: ClassVar = {0: FLOATS}
    quantized = (*QUANTIZED, "int4")
    quantized_results: ClassVar = {0: FLOATS}

    def problems(self, call: Call) -> Iterator[str]:
        source = call.tensor(0)
        if source.dtype == "float16" and not source.is_constant:
            yield "DEQUANTIZE from float16 is supported on constants only."
        if source.sparsity is not None:
            yield "DEQUANTIZE: input 0 is a sparse constant."
        if source.is_constant and source.is_quantized:
            yield from dequantization_problems(call, 0)
        elif source.dtype == "int4":
            yield "DEQUANTIZE from int4 is supported on constants only."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        if not call.tensor(0).is_constant:
            yield from per_tensor_problems(call, call.tensor(0))

    def quantized_lowering(self, call: Call) -> Lowering:
        data = call.tensor(0)
        return mapped(real_value(X, data), (call.index(0), data.shape), shape=data.shape)

    def foldable(self, call: Call) -> bool:
        return call.tensor(0).is_constant

    def fold(self, call: Call) -> list[np.ndarray]:
        return [real_numbers(call.tensor(0))]

    def grid(self, call: Call) -> Quant | None:
        return call.tensor(0).quant if call.tensor(0).is_quantized else None

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = (array for array in arrays if array is not None)
        return [data.astype(np.float32)]
