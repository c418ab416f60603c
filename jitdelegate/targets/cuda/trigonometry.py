"""Sine and cosine of every float32, in registers alone: libdevice reduces large angles through local memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from math import pi

from jitdelegate.targets.cuda.device_code import F32, I32, I64, Code, Value

TWO_OVER_PI = (0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
"""The fraction's first 224 bits."""
BEFORE = 2
"""Words of zeros before it, so that numbers from 0.5 on find their first bit."""
WORD = 32
FRACTION_BITS = 62
EXPONENT_OF_BIT_0 = 88
"""The biased exponent of numbers whose first bit that counts is bit 0 of those words."""
SMALL = 0.5
"""Below it an angle needs no reduction."""
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""Coefficients of (sin(r) - r) / r^3 in r^2, highest first. Source: Cephes, sinf.c."""
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""Coefficients of (cos(r) - 1 + r^2 / 2) / r^4 in r^2, highest first. Source: Cephes, sinf.c."""


def sine(code: Code, x: Value) -> Value:
    """Within 2 ulp; NaN of what is not finite."""
    quarters, rest = _reduced(code, code.call("__nv_fabsf", [x]))
    near, across = _sine_near_0(code, rest), _cosine_near_0(code, rest)
    size = code.select((quarters & 1).equals(0), near, across)
    sign = (code.bits(x) & -(1 << 31)) ^ (quarters & 2) << 30
    return _of_finite(code, x, code.from_bits(code.bits(size) ^ sign))


def cosine(code: Code, x: Value) -> Value:
    """Within 2 ulp; NaN of what is not finite."""
    quarters, rest = _reduced(code, code.call("__nv_fabsf", [x]))
    near, across = _cosine_near_0(code, rest), _sine_near_0(code, rest)
    size = code.select((quarters & 1).equals(0), near, across)
    return _of_finite(code, x, code.from_bits(code.bits(size) ^ ((quarters + 1) & 2) << 30))


def _of_finite(code: Code, x: Value, result: Value) -> Value:
    difference = x - x
    return code.select(difference.equals(0.0), result, difference)


def _sine_near_0(code: Code, r: Value) -> Value:
    square = r * r
    return code.fma(_polynomial(code, SINE, square) * square, r, r)


def _cosine_near_0(code: Code, r: Value) -> Value:
    square = r * r
    return code.fma(
        _polynomial(code, COSINE, square) * square, square, code.fma(square, code.real(-0.5), code.real(1.0))
    )


def _polynomial(code: Code, coefficients: Sequence[float], x: Value) -> Value:
    return reduce(lambda total, c: code.fma(total, x, code.real(c)), coefficients[1:], code.real(coefficients[0]))


def _reduced(code: Code, size: Value) -> tuple[Value, Value]:
    """Of an angle that is not negative: the nearest number of quarter turns, of which the last two bits count, and
    the rest as an angle of at most an eighth turn."""
    turns = _quarter_turns(code, size)
    quarters = (turns + (1 << FRACTION_BITS - 1)) >> FRACTION_BITS
    rest = Value(code, code.builder.sitofp((turns - (quarters << FRACTION_BITS)).value, F32))
    is_small = size < SMALL
    found = Value(code, code.builder.trunc(quarters.value, I32))
    return code.select(is_small, 0, found), code.select(is_small, size, rest * (pi / 2 / (1 << FRACTION_BITS)))


def _quarter_turns(code: Code, size: Value) -> Value:
    """size * 2 / pi modulo 4 as an int64 with FRACTION_BITS bits of fraction.

    The number is a mantissa of 24 bits; it is multiplied by the 96 bits of 2 / pi that neither make multiples of 4
    nor are too small to count.
    """
    bits = code.bits(size)
    mantissa = _wide(code, bits & 0x7FFFFF | 0x800000)
    high, middle, low = (_wide(code, word) for word in _window(code, (bits >> 23) - EXPONENT_OF_BIT_0))
    lower = mantissa * middle + (mantissa * low >> WORD)
    upper = mantissa * high + (lower >> WORD)
    return (upper << WORD) | (lower & 0xFFFFFFFF)


def _window(code: Code, first: Value) -> list[Value]:
    """The 96 bits of 2 / pi from bit `first` on, 38 at least, as three int32."""
    word, shift = first >> 5, first & WORD - 1
    table = [*[0] * BEFORE, *TWO_OVER_PI]
    last = len(table) - 4
    found = [code.integer(_signed(table[last + k])) for k in range(4)]
    for start in reversed(range(1, last)):
        here = word.equals(start)
        found = [code.select(here, _signed(table[start + k]), value) for k, value in enumerate(found)]
    return [_joined(code, *pair, shift) for pair in pairwise(found)]


def _signed(word: int) -> int:
    """The int32 with the same bits."""
    return word - (word >> WORD - 1 << WORD)


def _joined(code: Code, high: Value, low: Value, shift: Value) -> Value:
    """The upper word of (high, low) shifted left."""
    both = (_wide(code, high) << WORD) | _wide(code, low)
    return Value(code, code.builder.trunc((both << _wide(code, shift) >> WORD).value, I32))


def _wide(code: Code, number: Value) -> Value:
    """An int32 without sign as int64."""
    return Value(code, code.builder.zext(number.value, I64))
