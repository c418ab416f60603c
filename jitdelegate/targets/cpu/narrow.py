"""Narrows vectors of int32 to bytes, and rounds floats to bytes, by instructions that take two vectors and saturate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, minimum, result_type
from jitdelegate.ir.quantized import Quantize, Rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.vector_ir import Function, Value, vector
from jitdelegate.targets.scalar.expression import emit

QUAD = 4
"""Vectors of int32 that give one vector of bytes."""
NARROW = {
    64: ("x86.avx512.packssdw.512", "x86.avx512.packsswb.512", "x86.avx512.packuswb.512"),
    32: ("x86.avx2.packssdw", "x86.avx2.packsswb", "x86.avx2.packuswb"),
    16: ("x86.sse2.packssdw.128", "x86.sse2.packsswb.128", "x86.sse2.packuswb.128"),
}
"""Bytes of a vector -> LLVM's functions that narrow int32 to int16, and int16 to int8 and to uint8."""
ROUND = {64: "x86.avx512.mask.cvtps2dq.512", 32: "x86.avx.cvt.ps2dq.256", 16: "x86.sse2.cvtps2dq"}
"""Bytes of a vector -> LLVM's function that rounds floats to int32; those out of range become the smallest one."""


def wide(expr: Expr) -> Expr:
    """A byte as an int32."""
    return replace(expr, dtype="int32") if isinstance(expr, Quantize | Rescale) else Cast(expr, "int32")


def interleaved_bytes(f: Function, parts: Sequence[Value], dtype: str) -> Value:
    """Four vectors of int32 as one of `dtype`, int8 or uint8: four bytes of each in turn, within every 16 bytes."""
    return to_bytes(f, to_words(f, parts), dtype)


def to_words(f: Function, parts: Sequence[Value]) -> list[Value]:
    """Four vectors of int32 as two of int16."""
    lanes = 2 * parts[0].lanes
    return [f.machine_call(NARROW[2 * lanes][0], vector(lanes, "i16"), *parts[k : k + 2]) for k in (0, 2)]


def to_bytes(f: Function, words: Sequence[Value], dtype: str) -> Value:
    """Two vectors of int16 as one of int8 or uint8."""
    size = 2 * words[0].lanes
    return f.machine_call(NARROW[size][1 + (dtype == "uint8")], vector(size, "i8"), *words)


def emitted(f: Function, expr: Expr, arguments: Sequence[Value], types: Sequence[str], dtype: str, lanes: int) -> Value:
    """As `scalar.expression.emit`, with the last step of XNNPACK's roundings by packs, for whole registers of bytes."""
    width = 4 * f.module.machine.lanes
    inner, low, zero = _inside(expr, types) if lanes == width and f.module.machine.has_fma else (None, 0, 0)
    if inner is None:
        return emit(f, expr, arguments, types, dtype, lanes)
    value = emit(f, inner, arguments, types, "int32", lanes)
    parts = [f.part(value, first, lanes // 4) for first in range(0, lanes, lanes // 4)]
    words = to_words(f, [_rounded(f, part) if part.is_float else part for part in parts])
    if zero:
        zeros = f.literal(words[0].type, zero)
        words = [f.intrinsic("sadd.sat", word.type, word, zeros) for word in words]
    groups = f.cast("bitcast", to_bytes(f, words, dtype), vector(lanes // 4, "i32"))
    order = [4 * at + part for part in range(4) for at in range(lanes // 16)]
    found = f.cast("bitcast", f.shuffle(groups, groups, order), vector(lanes, "i8"))
    if low == ELEMENT_TYPES[dtype].minimum:
        return found
    return f.intrinsic("smax" if dtype == "int8" else "umax", found.type, found, f.constant(dtype, low, lanes))


def _inside(expr: Expr, types: Sequence[str]) -> tuple[Expr | None, int, int]:
    """(x, low, zero) of an expression that is max(pack(x) + zero, low) where x is an int32, or a float32 to be rounded;
    x is None for others. Packs have the upper limits of their types, and floats too low or NaN are the lowest int32."""
    match expr:
        case Quantize(value, Const(low), Const(high), Const(zero), "int8" | "uint8", "even"):
            if result_type(value, types) == "float32":
                return minimum(value, high), int(low + zero), int(zero)
        case Cast(Apply("min", (Apply("max", (value, Const(low))), Const(high))), "int8" | "uint8" as dtype):
            element = ELEMENT_TYPES[dtype]
            if result_type(value, types) == "int32" and element.minimum <= low <= high <= element.maximum:
                return value if high == element.maximum else minimum(value, high), int(low), 0
    return None, 0, 0


@dataclass(frozen=True)
class Limits:
    """What a Quantize to bytes needs besides its value: the highest value, the zero point and the lowest result."""

    high: Value
    zero: Value
    low: Value

    @classmethod
    def of(cls, f: Function, expr: Expr, types: Sequence[str], numbers: Sequence[Value], width: int) -> Limits | None:
        """The limits for vectors of `width` bytes; None if `expr` is no Quantize that rounds floats as XNNPACK does, or
        if its limits are no constants.

        Args:
            types: of the Args of `expr`.
            numbers: the last of the Args, which are constants.
        """
        first = len(types) - len(numbers)
        if not isinstance(expr, Quantize) or expr.rounding != "even" or result_type(expr.value, types) != "float32":
            return None
        limits = expr.parts[1:]
        if not all(isinstance(one, Const) or (isinstance(one, Arg) and one.index >= first) for one in limits):
            return None
        pairs = zip(limits, ("float32", "float32", "int32"), strict=True)
        low, high, zero = (emit(f, one, [*[f.index(0)] * first, *numbers], types, dtype) for one, dtype in pairs)
        lowest = f.convert("fptosi", low, "i32") + zero
        zeros, lows = f.convert("trunc", zero, "i16"), f.convert("trunc", lowest, "i8")
        return cls(f.splat(high, width // 4), f.splat(zeros, width // 2), f.splat(lows, width))

    def quantized(self, f: Function, values: Sequence[Value], dtype: str) -> Value:
        """Four vectors of floats as one of bytes, in the order of `interleaved_bytes`.

        What is too low is the smallest number after every step, so that the lower limit is applied to bytes.
        """
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
