"""Powers: of floats by logarithms in double precision, of integers by squaring."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, log

from jitdelegate.targets.maths.builder import Builder, V, native, polynomial

LOG2 = tuple(2 / log(2) / (2 * k + 1) for k in reversed(range(9)))
"""log2((1 + s) / (1 - s)) = s * LOG2(s^2), by the series of the inverse hyperbolic tangent, highest first. For |s|
up to 0.172, the relative error of truncation is below 2^-50."""
EXP2 = tuple(log(2) ** k / factorial(k) for k in reversed(range(11)))
"""2^r = EXP2(r) by its series, highest first. For |r| up to 1/2, the error of truncation is below 2^-41."""
LOWEST, HIGHEST = -160.0, 130.0
"""Exponents whose powers of two are 0 and infinity in float32."""
ROOT_HALF = 0.7071067811865476


def power(b: Builder[V], x: V, y: V) -> V:
    """x to the power of y within 1 ulp; zeros, infinities and NaN as in C's powf."""
    size = native(b, "abs", x)
    logarithm = _log2(b, b.convert("fpext", size, "double"))
    exponent = b.convert("fpext", y, "double") * logarithm
    exponent = b.select(b.compare("oeq", size, 1.0), 0.0, exponent)
    result = b.convert("fptrunc", _exp2(b, exponent), "float")
    whole = b.compare("oeq", native(b, "round", y), y)
    half = y * 0.5
    odd = whole & b.compare("une", native(b, "round", half), half)
    result = b.select(odd, native(b, "copysign", result, x), result)
    negative = b.compare("olt", x, 0.0) & b.compare("une", size, float("inf"))
    result = b.select(negative & (whole ^ 1), float("nan"), result)
    result = b.select(b.compare("uno", x, y), float("nan"), result)
    return b.select(b.compare("oeq", x, 1.0), 1.0, b.select(b.compare("oeq", y, 0.0), 1.0, result))


def _log2(b: Builder[V], x: V) -> V:
    """log2 of doubles that have float32 values and are not negative or NaN; -infinity at 0."""
    bits = b.convert("bitcast", x, "i64")
    exponent = (bits >> 52) - 1022
    m = b.convert("bitcast", bits & (1 << 52) - 1 | 1022 << 52, "double")
    small = b.compare("olt", m, ROOT_HALF)
    m = b.select(small, m + m, m)
    n = b.convert("sitofp", b.convert("trunc", exponent, "i32"), "double")
    s = (m - 1.0) / (m + 1.0)
    result = b.fma(polynomial(b, s * s, LOG2), s, b.select(small, n - 1.0, n))
    result = b.select(b.compare("oeq", x, 0.0), float("-inf"), result)
    return b.select(b.compare("oeq", x, float("inf")), x, result)


def _exp2(b: Builder[V], x: V) -> V:
    """2^x of doubles, exact enough for a float32 result."""
    x = b.minimum(b.maximum(x, LOWEST), HIGHEST)
    n = native(b, "round", x)
    whole = b.convert("sext", b.convert("fptosi", n, "i32"), "i64")
    scale = b.convert("bitcast", whole + 1023 << 52, "double")
    return polynomial(b, x - n, EXP2) * scale


def integer_power(b: Builder[V], x: V, y: V) -> V:
    """x to the power of y, a signed integer that is not negative; overflow wraps."""

    def square(i: V, result: V, base: V, left: V) -> Sequence[V]:
        odd = b.compare("ne", left & 1, 0)
        return b.select(odd, result * base, result), base * base, left >> 1

    return b.repeat(x.bits - 1, square, b.like(1, x), x, y)[0]
