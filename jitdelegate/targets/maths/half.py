"""Conversions from and to float16, as its bits, and to bfloat16, by an instruction or by arithmetic of integers."""

from __future__ import annotations

from jitdelegate.targets.maths.builder import Builder, V, native

SIGN, INFINITY, MANTISSA, QUIET = 0x8000, 0x7C00, 0x3FF, 0x7E00
SHIFT = 13
"""Bits that a float32's mantissa has more."""
BIAS = 112 << 23
"""What a float32's exponent is larger by, in its place."""
LEAST_NORMAL, LEAST_INFINITE, FLOAT_INFINITY = 0x38800000, 0x477FF000, 0x7F800000
"""Bits of 2**-14, of 65520, from which on numbers are rounded to infinity, and of infinity, all as float32."""
STEP = 2.0**-24
"""Of numbers below 2**-14."""


def to_float(b: Builder[V], half: V) -> V:
    """The float32 of a float16's bits, an i16."""
    if b.has_half:
        return b.convert("fpext", b.convert("bitcast", half, "half"), "float")
    bits = b.convert("zext", half, "i32")
    magnitude = bits & ~SIGN
    is_infinite = b.compare("uge", magnitude, INFINITY)
    normal = (magnitude << SHIFT) + b.select(is_infinite, b.like(2 * BIAS, bits), BIAS)
    small = b.convert("bitcast", b.convert("sitofp", magnitude, "float") * STEP, "i32")
    number = b.select(b.compare("ugt", magnitude, MANTISSA), normal, small)
    return b.convert("bitcast", number | (bits & SIGN) << 16, "float")


def to_half(b: Builder[V], number: V) -> V:
    """The bits, an i16, of the float16 nearest to a float32; of two, the even one."""
    if b.has_half:
        return b.convert("bitcast", b.convert("fptrunc", number, "half"), "i16")
    bits = b.convert("bitcast", number, "i32")
    magnitude = bits & 0x7FFFFFFF
    rounded = magnitude + ((magnitude >> SHIFT & 1) + ((1 << SHIFT - 1) - 1))
    normal = (rounded - BIAS) >> SHIFT
    small = native(b, "nearest", b.convert("bitcast", magnitude, "float") * (1 / STEP))
    finite = b.select(b.compare("ult", magnitude, LEAST_NORMAL), small, normal)
    odd = b.select(b.compare("ugt", magnitude, FLOAT_INFINITY), magnitude >> SHIFT & MANTISSA | QUIET, INFINITY)
    half = b.select(b.compare("uge", magnitude, LEAST_INFINITE), odd, finite)
    return b.convert("trunc", half | bits >> 16 & SIGN, "i16")


def rounded_to_bfloat16(b: Builder[V], number: V) -> V:
    """The bfloat16 nearest to a float32, of two the even one, as a float32."""
    bits = b.convert("bitcast", number, "i32")
    is_nan = b.compare("ugt", bits & 0x7FFFFFFF, FLOAT_INFINITY)
    nearest = b.select(is_nan, bits | 0x400000, bits + ((bits >> 16 & 1) + 0x7FFF))
    return b.convert("bitcast", nearest & ~0xFFFF, "float")
