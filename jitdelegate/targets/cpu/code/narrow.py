"""Narrows vectors of int32 to bytes, and rounds floats to bytes, by instructions that take two vectors and saturate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, evaluate, minimum, result_type, select
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import Quantize, Rescale, Table
from jitdelegate.ir.random_bits import RandomBits
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.shuffles import joined
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, lanes_of, register, vector
from jitdelegate.targets.maths.expression import emit

QUAD = 4
"""Vectors of int32 that give one vector of bytes."""
NARROW = {
    64: ("x86.avx512.packssdw.512", "x86.avx512.packsswb.512", "x86.avx512.packuswb.512"),
    32: ("x86.avx2.packssdw", "x86.avx2.packsswb", "x86.avx2.packuswb"),
    16: ("x86.sse2.packssdw.128", "x86.sse2.packsswb.128", "x86.sse2.packuswb.128"),
}
"""Bytes of a vector -> LLVM's functions that narrow int32 to int16, and int16 to int8 and to uint8."""
RESULTS = ("int16", "int8", "uint8")
"""What they narrow to."""
ROUND = {64: "x86.avx512.mask.cvtps2dq.512", 32: "x86.avx.cvt.ps2dq.256", 16: "x86.sse2.cvtps2dq"}
"""Bytes of a vector -> LLVM's function that rounds floats to int32; those out of range become the smallest one."""
HALF_RANGE = 1 << 30
"""Floats of smaller magnitude surely fit an int32."""
BYTES = ("int8", "uint8")
LEAST_OPERATIONS, LEAST_BY_ROWS = 3, 10
"""Operations from which on a look-up takes fewer instructions, in 128 entries and in 16 entries at once."""
COSTS = {Rescale: 8, FixedPoint: 100, RandomBits: 200, Table: 5}
"""Expression -> the operations whose time it takes; 1 if it is not here."""
KEPT = 256
"""Tables that are kept: kernels emit the same one many times."""


def wide(expr: Expr) -> Expr:
    """A byte as an int32, which packs limit to the range of bytes."""
    match expr:
        case Apply("select", (condition, a, b)):
            return select(condition, wide(a), wide(b))
        case Rescale(dtype="int8" | "uint8" as dtype):
            whole, word = ELEMENT_TYPES[dtype], ELEMENT_TYPES["int32"]
            low = word.minimum if expr.low == whole.minimum else expr.low
            return replace(expr, dtype="int32", low=low, high=word.maximum if expr.high == whole.maximum else expr.high)
        case Quantize():
            return replace(expr, dtype="int32")
    return Cast(expr, "int32")


def interleaved_bytes(f: Function, parts: Sequence[Value], dtype: str) -> Value:
    """Four vectors of int32 as one of `dtype`, int8 or uint8: four bytes of each in turn, within every 16 bytes."""
    return to_bytes(f, to_words(f, parts), dtype)


def to_words(f: Function, parts: Sequence[Value]) -> list[Value]:
    """Four vectors of int32 as two of int16."""
    return [_narrowed(f, parts[k : k + 2], "int16") for k in (0, 2)]


def to_bytes(f: Function, words: Sequence[Value], dtype: str) -> Value:
    """Two vectors of int16 as one of int8 or uint8."""
    return _narrowed(f, words, dtype)


def _narrowed(f: Function, pair: Sequence[Value], dtype: str) -> Value:
    """Two vectors of integers as one of half their width, within the limits of `dtype`."""
    element, type_ = ELEMENT_TYPES[dtype], vector(2 * pair[0].lanes, register(dtype))
    if f.module.machine.narrows == "packs":
        return f.machine_call(NARROW[lanes_of(type_) * element.nbytes][RESULTS.index(dtype)], type_, *pair)
    both = joined(f, pair)
    return f.convert("trunc", f.minimum(f.maximum(both, element.minimum), element.maximum), register(dtype))


def _in_order(f: Function, interleaved: Value, count: int) -> Value:
    """Of `interleaved_bytes`, those of the first `count` vectors, one vector's after the other's."""
    lanes = interleaved.lanes // QUAD
    if lanes == QUAD and count < QUAD:
        return f.part(interleaved, 0, count * lanes)
    dwords = f.cast("bitcast", interleaved, vector(lanes, "i32"))
    order = [QUAD * piece + part for part in range(count) for piece in range(lanes // QUAD)]
    return f.cast("bitcast", f.shuffle(dwords, dwords, order), vector(count * lanes, "i8"))


def emitted(f: Function, expr: Expr, arguments: Sequence[Value], types: Sequence[str], dtype: str, lanes: int) -> Value:
    """As `maths.expression.emit`, for whole registers of bytes: functions of one byte as tables, where that takes fewer
    instructions, and the last step of XNNPACK's roundings by packs."""
    machine = f.module.machine
    if lanes == 4 * machine.lanes and (machine.shuffle_bytes or machine.look_up_parts):
        expr = _tabulated(expr, tuple(types), LEAST_OPERATIONS if machine.look_up_bytes else LEAST_BY_ROWS)
    inner, low, zero = _inside(expr, types) if lanes == 4 * machine.lanes and machine.narrows else (None, 0, 0)
    if inner is None:
        return emit(f, expr, arguments, types, dtype, lanes)
    value = emit(f, inner, arguments, types, "int32", lanes)
    parts = [f.part(value, first, lanes // 4) for first in range(0, lanes, lanes // 4)]
    words = to_words(f, [_rounded(f, part) if part.is_float else part for part in parts])
    if zero:
        zeros = f.literal(words[0].type, zero)
        words = [f.intrinsic("sadd.sat", word.type, word, zeros) for word in words]
    result = _in_order(f, to_bytes(f, words, dtype), QUAD)
    if low == ELEMENT_TYPES[dtype].minimum:
        return result
    return f.intrinsic("smax" if dtype == "int8" else "umax", result.type, result, f.constant(dtype, low, lanes))


@lru_cache(KEPT)
def _tabulated(expr: Expr, types: tuple[str, ...], least: int) -> Expr:
    """The expression with tables in place of its parts that take so many operations from one byte to one byte."""
    parts = list(_all_parts(expr))
    if sum(COSTS.get(type(part), 1) for part in parts if part.parts) < least:
        return expr
    operands, dtype = {part for part in parts if isinstance(part, Arg)}, result_type(expr, types)
    if len(operands) != 1 or dtype not in BYTES or not all(types[operand.index] in BYTES for operand in operands):
        return expr.rebuilt(tuple(_tabulated(part, types, least) for part in expr.parts))
    (operand,) = operands
    source = types[operand.index]
    element = ELEMENT_TYPES[source]
    every = np.arange(element.minimum, element.maximum + 1).astype(source)
    return Table(operand, tuple(evaluate(expr, [every] * (operand.index + 1)).tolist()), dtype)


def _all_parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    for part in expr.parts:
        yield from _all_parts(part)


def _inside(expr: Expr, types: Sequence[str]) -> tuple[Expr | None, int, int]:
    """(x, low, zero) of an expression that is max(pack(x) + zero, low) where x is an int32, or a float32 to be rounded;
    x is None for others. Packs have the upper limits of their types, and floats too low or NaN are the lowest int32."""
    match expr:
        case Quantize(value, Const(low), Const(high), Const(zero), "int8" | "uint8", "even"):
            if result_type(value, types) == "float32":
                return minimum(value, high), int(low + zero), int(zero)
        case Cast(Apply("min", (Apply("max", (value, Const(low))), Const(high))), dtype) if _is_limited(expr, types):
            return value if high == ELEMENT_TYPES[dtype].maximum else minimum(value, high), int(low), 0
    return None, 0, 0


def _is_limited(expr: Expr, types: Sequence[str]) -> bool:
    """Whether the last step is a Cast to a byte, of an int32 that has been limited to its range."""
    match expr:
        case Cast(Apply("min", (Apply("max", (value, Const(low))), Const(high))), "int8" | "uint8" as dtype):
            element = ELEMENT_TYPES[dtype]
            return result_type(value, types) == "int32" and element.minimum <= low <= high <= element.maximum
    return False


@dataclass(frozen=True)
class Steps:
    """Which steps after the products of a Quantize to bytes are needed: some change no result of a layer.

    Attributes:
        first: values may not fit an int32 and are limited before they are rounded.
        zero: the zero point is added.
        low, high: bytes are limited.
    """

    first: bool = True
    zero: bool = True
    low: bool = True
    high: bool = False

    @classmethod
    def of(cls, expr: Expr, largest: float) -> Steps:
        """The steps of an expression whose values have magnitudes of at most `largest` before they are rounded."""
        match expr:
            case Quantize(_, Const(low), Const(high), Const(zero), dtype):
                element, first = ELEMENT_TYPES[dtype], largest >= HALF_RANGE
                is_lower = high + zero < element.maximum
                return cls(first, zero != 0, low + zero > element.minimum, is_lower and not first)
        return cls()


EVERY_STEP = Steps()


@dataclass(frozen=True)
class Limits:
    """What a Quantize to bytes needs besides its value: the highest value, the zero point, and the lowest and the
    highest result."""

    first: Value
    zero: Value
    low: Value
    high: Value
    steps: Steps

    @classmethod
    def of(
        cls, f: Function, expr: Expr, types: Sequence[str], numbers: Sequence[Value], width: int, steps: Steps
    ) -> Limits | None:
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
        zeros = f.splat(f.convert("trunc", zero, "i16"), width // 2)
        ends = (f.convert("fptosi", end, "i32") + zero for end in (low, high))
        lowest, highest = (f.splat(f.convert("trunc", end, "i8"), width) for end in ends)
        return cls(f.splat(high, width // 4), zeros, lowest, highest, steps)

    def quantized(self, f: Function, values: Sequence[Value], dtype: str) -> Value:
        """Four vectors of floats as one of bytes, in the order of `interleaved_bytes`.

        What is too low is the smallest number after every step, so that the lower limit is applied to bytes.
        """
        steps, sign = self.steps, "s" if dtype == "int8" else "u"
        limited = [f.minimum(value, self.first) for value in values] if steps.first else values
        words = to_words(f, [_rounded(f, value) for value in limited])
        if steps.zero:
            words = [f.intrinsic("sadd.sat", word.type, word, self.zero) for word in words]
        result = to_bytes(f, words, dtype)
        result = f.intrinsic(f"{sign}min", result.type, result, self.high) if steps.high else result
        return f.intrinsic(f"{sign}max", result.type, result, self.low) if steps.low else result


def without_cast(epilogue: Epilogue) -> Epilogue:
    """An epilogue whose last step is a Cast to a byte, of an int32 that is within its range, without this step."""
    is_limited = _is_limited(epilogue.expr, epilogue.types)
    return replace(epilogue, expr=epilogue.expr.parts[0]) if is_limited else epilogue


@dataclass(frozen=True)
class Narrowing:
    """An epilogue with results of bytes, perhaps `without_cast`, in two steps.

    Attributes:
        epilogue: the first step, for single vectors; its results have 32 bits.
        dtype: of the bytes.
        limits: of the second step, for four vectors; None where it narrows int32.
    """

    epilogue: Epilogue
    dtype: str
    limits: Limits | None

    @classmethod
    def of(
        cls, f: Function, epilogue: Epilogue, numbers: Value | None, lanes: int, steps: Steps = EVERY_STEP
    ) -> Narrowing:
        """For vectors of `lanes` results; what is the same for all results is computed at once."""
        expr, known = epilogue.expr, epilogue.numbers_at(f, numbers, 1)
        limits = Limits.of(f, expr, epilogue.types, known, QUAD * lanes, steps)
        is_wide = result_type(expr, epilogue.types) == "int32"
        first, computed = (expr.parts[0], "float32") if limits else (expr if is_wide else wide(expr), "int32")
        return cls(replace(epilogue, expr=first, dtype=computed), epilogue.dtype, limits)

    def in_order(self, f: Function, parts: Sequence[Value]) -> Value:
        """One to four vectors as one of bytes, one part after the other."""
        count = len(parts)
        pair = (parts[0], parts[-1] if count < 3 else parts[1])
        four = (*pair, *((parts[2], parts[-1]) if count > 2 else pair))
        return _in_order(f, self.interleaved(f, four), count)

    def interleaved(self, f: Function, parts: Sequence[Value]) -> Value:
        """Four vectors as one of bytes, in the order of `interleaved_bytes`."""
        return (self.limits.quantized if self.limits else interleaved_bytes)(f, parts, self.dtype)


def _rounded(f: Function, value: Value) -> Value:
    """Floats as int32, rounded to the nearest, halves to even."""
    type_ = vector(value.lanes, "i32")
    name = f.module.machine.nearest or ROUND[4 * value.lanes]
    if ".mask." not in name:
        return f.machine_call(name, type_, value)
    all_lanes, as_always = f.literal("i16", -1), f.literal("i32", 4)
    return f.machine_call(name, type_, value, f.literal(type_, 0), all_lanes, as_always)
