"""Narrows int32 to bytes by instructions that saturate, and so rounds floats to quantized bytes.

They take vectors that hold, in every 16 bytes, four channels each of the 16 that become neighbouring bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.ir.expr import Arg, Const, result_type
from jitdelegate.ir.quantized import Quantize
from jitdelegate.targets.cpu.epilogue import Epilogue
from jitdelegate.targets.cpu.vector_ir import Function, Value, vector
from jitdelegate.targets.scalar.expression import emit

WIDTHS = {
    64: ("x86.avx512.packssdw.512", "x86.avx512.packsswb.512", "x86.avx512.packuswb.512"),
    32: ("x86.avx2.packssdw", "x86.avx2.packsswb", "x86.avx2.packuswb"),
    16: ("x86.sse2.packssdw.128", "x86.sse2.packsswb.128", "x86.sse2.packuswb.128"),
}
"""Bytes of a vector -> LLVM's functions that narrow int32 to int16, and int16 to int8 and to uint8."""
ROUND = {64: "x86.avx512.mask.cvtps2dq.512", 32: "x86.avx.cvt.ps2dq.256", 16: "x86.sse2.cvtps2dq"}
"""Bytes of a vector -> LLVM's function that rounds floats to int32; those out of range become the smallest one."""


def to_words(f: Function, parts: Sequence[Value]) -> list[Value]:
    """Four vectors of int32 as two of int16."""
    lanes = 2 * parts[0].lanes
    return [f.machine_call(WIDTHS[2 * lanes][0], vector(lanes, "i16"), *parts[k : k + 2]) for k in (0, 2)]


def to_bytes(f: Function, words: Sequence[Value], dtype: str) -> Value:
    """Two vectors of int16 as one of int8 or uint8."""
    width = 2 * words[0].lanes
    return f.machine_call(WIDTHS[width][1 + (dtype == "uint8")], vector(width, "i8"), *words)


@dataclass(frozen=True)
class Limits:
    """What a Quantize to bytes needs besides its value: the highest value, the zero point and the lowest result."""

    high: Value
    zero: Value
    low: Value

    @classmethod
    def of(cls, f: Function, epilogue: Epilogue, numbers: Value | None, width: int) -> Limits | None:
        """The limits for vectors of `width` bytes; None if the epilogue is no such Quantize, by XNNPACK's rounding, or
        its limits are no constants."""
        expr, types = epilogue.expr, epilogue.types
        first = len(types) - len(epilogue.numbers)
        if not isinstance(expr, Quantize) or expr.rounding != "even" or result_type(expr.value, types) != "float32":
            return None
        if not all(
            isinstance(part, Const) or (isinstance(part, Arg) and part.index >= first) for part in expr.parts[1:]
        ):
            return None
        arguments = [f.index(0)] * first + epilogue.numbers_at(f, numbers, 1)
        kinds = ("float32", "float32", "int32")
        low, high, zero = (
            emit(f, part, arguments, types, kind) for part, kind in zip(expr.parts[1:], kinds, strict=True)
        )
        lowest = f.convert("fptosi", low, "i32") + zero
        return cls(
            f.splat(high, width // 4),
            f.splat(f.convert("trunc", zero, "i16"), width // 2),
            f.splat(f.convert("trunc", lowest, "i8"), width),
        )

    def quantized(self, f: Function, values: Sequence[Value], dtype: str) -> Value:
        """Four vectors of floats as one of bytes. What is too low is the smallest number after every step, so that the
        lower limit is applied to bytes."""
        words = to_words(f, [_rounded(f, f.minimum(value, self.high)) for value in values])
        found = to_bytes(f, [f.intrinsic("sadd.sat", word.type, word, self.zero) for word in words], dtype)
        return f.intrinsic("smax" if dtype == "int8" else "umax", found.type, found, self.low)


def _rounded(f: Function, value: Value) -> Value:
    """Floats as int32, rounded to the nearest, halves to even."""
    type_ = vector(value.lanes, "i32")
    name = ROUND[4 * value.lanes]
    if ".mask." not in name:
        return f.machine_call(name, type_, value)
    all_lanes, as_always = f.literal("i16", -1), f.literal("i32", 4)
    return f.machine_call(name, type_, value, f.literal(type_, 0), all_lanes, as_always)
