"""Rescale, Quantize, Table, FixedPoint and RandomBits, as `ir.quantized`, `ir.fixed_point` and `ir.random_bits` define
them."""

from __future__ import annotations

import struct
from typing import Any, Generic

from jitdelegate.ir.expr import Const
from jitdelegate.ir.fixed_point import FUNCTIONS, FixedPoint
from jitdelegate.ir.quantized import DIGITS, ROUNDINGS, Quantize, Rescale, Table
from jitdelegate.ir.random_bits import GENERATORS, RandomBits
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.maths.builder import Builder, V, native
from jitdelegate.targets.maths.cast import cast

NARROW = (1 << 31) - (1 << 16)
"""Results up to this size fit an int32 even after adding a zero point."""

WORD_BITS, HALF_WORD = 16, 1 << 15
LONGEST = 46
"""The largest shift by which a sum of products by words is divided: half of its last bit fits an int32 beside them."""
MAGIC, MAGIC_BITS = 1.5 * 2.0**23, 0x4B400000
"""A float32 to which whole numbers up to 2**22 may be added without rounding, and its bits."""
BELOW_HALF = {32: 0.5 - 2.0**-25, 64: 0.5 - 2.0**-54}
"""The largest number below one half, by the bits of its type."""


def rescale(b: Builder[V], expr: Rescale, parts: list[V], types: tuple[str, ...], arguments: tuple[str, ...]) -> V:
    """The product is computed in 64 bits, in 32 bits by two products of 16 bits if the value is small and the target is
    faster then; the limits are applied in 32 bits if the result is known to fit.

    Args:
        arguments: the types of the Args of the expression.
    """
    result, calculated = _by_words(b, expr, parts[0], types[0], arguments), "int32"
    if result is None:
        value, multiplier, shift = (cast(b, part, dtype, "int64") for part, dtype in zip(parts, types, strict=True))
        value = value - expr.input_zero if expr.input_zero else value
        result = b.ashr(value * multiplier + _rounding(b, expr, value, shift), shift)
        largest, calculated = expr.largest(arguments), "int64"
        if largest is not None and largest <= NARROW and expr.high < 1 << 31:
            result, calculated = b.convert("trunc", result, "i32"), "int32"
    limited = b.minimum(b.maximum(result + expr.output_zero, expr.low), expr.high)
    return cast(b, limited, calculated, expr.dtype)


def _by_words(b: Builder[V], expr: Rescale, value: V, source: str, arguments: tuple[str, ...]) -> V | None:
    """The result before the zero point is added, of a value that fits 16 bits; None for others and where the target has
    no such products.

    The upper 16 bits of the multiplier and the lower ones, which have a sign, are multiplied apart. What is added for
    rounding has no bits below the sixteen that the lower product loses.
    """
    if not isinstance(expr.multiplier, Const) or not isinstance(expr.shift, Const):
        return None
    multiplier, shift = int(expr.multiplier.value), int(expr.shift.value)
    low = (multiplier + HALF_WORD) % (2 * HALF_WORD) - HALF_WORD
    high = (multiplier - low) >> WORD_BITS
    if not WORD_BITS < shift <= LONGEST or max(high, expr.centred(arguments)) >= HALF_WORD or expr.high >= 1 << 31:
        return None
    value = cast(b, value, source, "int32") - expr.input_zero
    upper, lower = (b.word_product(value, factor) for factor in (high, low))
    if upper is None or lower is None:
        return None
    not_negative, negative = ROUNDINGS[expr.rounding] if shift > 31 else (0, 0)
    total = upper + b.ashr(lower, WORD_BITS) + ((1 << shift - 1) + not_negative >> WORD_BITS)
    if negative != not_negative:
        total = total + (b.ashr(value, 31) & (negative - not_negative >> WORD_BITS))
    return b.ashr(total, shift - WORD_BITS)


def _rounding(b: Builder[V], expr: Rescale, value: V, shift: V) -> V:
    """Half of the last bit that is kept, plus the contribution of a second rounding."""
    half = b.like(1, shift) << shift - 1
    not_negative, negative = ROUNDINGS[expr.rounding]
    if not_negative == negative == 0:
        return half
    twice = b.select(b.compare("slt", value, 0), b.like(negative, value), not_negative)
    return half + b.select(b.compare("sgt", shift, 31), twice, 0)


def quantize(b: Builder[V], expr: Quantize, parts: list[V]) -> V:
    """Limits come first: they are whole numbers, so the result is the same, and no later step can overflow. NaN becomes
    the lower limit."""
    value, low, high, zero = parts
    raised = b.native("fmax", value, low)
    if raised is None:
        limited = b.minimum(b.select(b.compare("ogt", value, low), value, low), high)
    else:
        limited = native(b, "fmin", raised, high)
    return cast(b, _nearest(b, limited, expr.rounding) + zero, "int32", expr.dtype)


def _nearest(b: Builder[V], value: V, rounding: str) -> V:
    """The nearest whole number of a small float, as an int32."""
    if rounding == "away":
        return b.convert("fptosi", _half_away(b, value), "i32")
    if value.bits == 64:
        return b.convert("fptosi", native(b, "round", value), "i32")
    found = b.native("nearest", value)
    if found is not None:
        return found
    # the sum's last bits are the whole number: floats of this size have no fraction
    return b.convert("bitcast", value + MAGIC, "i32") - MAGIC_BITS


def _half_away(b: Builder[V], value: V) -> V:
    """The largest number below one half leaves sums of all other numbers below the next whole one."""
    almost = BELOW_HALF[value.bits]
    return native(b, "trunc", value + native(b, "copysign", b.like(almost, value), value))


def table(b: Builder[V], expr: Table, value: V, source: str) -> V:
    """The table's entry for a value; for int16, the interpolation between two entries."""
    middle = -ELEMENT_TYPES[source].minimum
    if value.bits == ELEMENT_TYPES[expr.dtype].bits == 8:
        found = b.look_up_bytes([int(entry) for entry in (*expr.entries[middle:], *expr.entries[:middle])], value)
        if found is not None:
            return found
    place = cast(b, value, source, "int32") + middle
    if expr.dtype == "float32":
        return b.convert("bitcast", b.look_up([_bits(entry) for entry in expr.entries], place), "float")
    entries = [int(entry) for entry in expr.entries]
    if source != "int16":
        return cast(b, b.look_up(entries, place), "int32", expr.dtype)
    first = place >> DIGITS
    low, high = (b.look_up(entries, at) for at in (first, first + 1))
    return (low << DIGITS) + (high - low) * (place & (1 << DIGITS) - 1)


def _bits(number: float) -> int:
    """The bits of a float32, as an int32."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    assert isinstance(bits, int)
    return bits


def fixed_point(b: Builder[V], expr: FixedPoint, value: V, source: str) -> V:
    """A function of a fixed-point number, by instructions for integers."""
    found: V = FUNCTIONS[expr.function](_Emitted(b), cast(b, value, source, "int32"), expr.whole)
    return found


def random_bits(b: Builder[V], expr: RandomBits, values: list[V]) -> V:
    """A pair of words, by instructions for int64."""
    found: V = GENERATORS[expr.generator](_Emitted(b), *values)[expr.pair]
    return found


class _Emitted(Generic[V]):
    """`ir.fixed_point.Arithmetic` and `ir.random_bits.Arithmetic` by a target's instructions."""

    def __init__(self, builder: Builder[V]) -> None:
        self._builder = builder

    def ashr(self, value: V, distance: int) -> V:
        return self._builder.ashr(value, distance)

    def compare(self, condition: str, left: V, right: int) -> V:
        return self._builder.compare(condition, left, right)

    def select(self, condition: V, if_true: Any, if_false: Any) -> V:
        return self._builder.select(condition, if_true, if_false)

    def high_product(self, a: V, b: Any) -> V:
        first, second = (self._builder.convert("sext", self._builder.like(x, a), "i64") for x in (a, b))
        return self._builder.convert("trunc", self._builder.ashr(first * second + (1 << 30), 31), "i32")

    def word_product(self, a: V, b: Any) -> V:
        found = self._builder.word_product(a, b)
        return a * b if found is None else found
