"""Sine, cosine and atan2, computed in registers only: no table and no local memory."""

from __future__ import annotations

from math import pi

from jitdelegate.targets.maths.builder import Builder, V, native, polynomial

SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""Coefficients of (sin(r) - r) / r^3 in r^2, highest first. Source: Cephes, sinf.c."""
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""Coefficients of (cos(r) - 1 + r^2 / 2) / r^4 in r^2, highest first. Source: Cephes, sinf.c."""
ARC = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
"""Coefficients of (atan(t) - t) / t^3 in t^2, highest first. Source: Cephes, atanf.c."""
ARC_LIMIT = 0.414213562373095
"""tan(pi / 8): beyond it, atan(t) is pi / 4 + atan((t - 1) / (t + 1))."""
PI_HIGH, PI_LOW = 3.1415927410125732, -8.7422776573475858e-8
TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
"""The binary digits of 2 / pi, 32 per word, after 32 zeros."""
IMPLICIT = 0x00800000
"""The leading bit of a normal float's 24-bit significand, which is not stored."""
SIGN = -(1 << 31)
SMALL = 0.5
"""Below this size no multiple of pi / 2 is subtracted; from it on, the exponent of a float is at least 126."""


def sin(b: Builder[V], x: V) -> V:
    """Within 2 ulp for every float; NaN at infinities."""
    quadrant, angle = _reduced(b, native(b, "abs", x))
    return _wave(b, quadrant, angle, (quadrant & 2) << 30 ^ _bits(b, x) & SIGN)


def cos(b: Builder[V], x: V) -> V:
    """Within 2 ulp for every float; NaN at infinities."""
    quadrant, angle = _reduced(b, native(b, "abs", x))
    following = quadrant + 1
    return _wave(b, following, angle, (following & 2) << 30)


def _wave(b: Builder[V], quadrant: V, r: V, sign: V) -> V:
    """sin(r), or cos(r) for an odd quadrant, negated if the first bit of `sign` is set."""
    square = r * r
    sine = b.fma(polynomial(b, square, SINE) * square, r, r)
    cosine = b.fma(polynomial(b, square, COSINE) * square, square, b.fma(square, -0.5, 1.0))
    value = b.select(b.compare("ne", quadrant & 1, 0), cosine, sine)
    return b.convert("bitcast", _bits(b, value) ^ sign, "float")


def _reduced(b: Builder[V], size: V) -> tuple[V, V]:
    """(quadrant, r) with size = quadrant * pi / 2 + r modulo 2 pi, and r in [-pi / 4, pi / 4].

    Source: Payne and Hanek, "Radian reduction for trigonometric functions" (1983). Only 96 digits of 2 / pi matter for
    size * 2 / pi: those that the exponent of `size` moves to the quadrant's two bits and the fraction.
    """
    bits = _bits(b, size)
    high, middle, low = _digits(b, (bits >> 23) - 120)
    factor = _wide(b, bits & (IMPLICIT - 1) | IMPLICIT)
    lowest = _wide(b, low) * factor >> 32
    top = (_wide(b, high) * factor << 32) + _wide(b, middle) * factor + lowest
    quadrant = top + (1 << 61) >> 62
    fraction = top - (quadrant << 62)
    angle = b.convert("sitofp", fraction, "float") * (pi / 2 * 2.0**-62)
    small = b.compare("olt", size, SMALL)
    angle = b.select(b.compare("olt", size, float("inf")), b.select(small, size, angle), size - size)
    quadrant = b.convert("trunc", quadrant, "i32")
    return b.select(small, 0, quadrant), angle


def _digits(b: Builder[V], first: V) -> list[V]:
    """Three words of TWO_OVER_PI's digits, starting at digit number `first`."""
    word, distance = first >> 5, first & 31
    words = []
    for following in range(4):
        value = b.like(_signed(TWO_OVER_PI[following]), first)
        for number in range(1, 5):
            value = b.select(b.compare("eq", word, number), _signed(TWO_OVER_PI[number + following]), value)
        words.append(value)
    return [b.fshl(words[k], words[k + 1], distance) for k in range(3)]


def _signed(word: int) -> int:
    """The int32 with the same bits."""
    return word - (word >> 31 << 32)


def atan2(b: Builder[V], y: V, x: V) -> V:
    """The angle of the point (x, y), within 3 ulp; signed zeros and infinities as in C's atan2f."""
    along, across = native(b, "abs", x), native(b, "abs", y)
    steep = b.compare("ogt", across, along)
    less, more = b.select(steep, along, across), b.select(steep, across, along)
    t = less / more
    t = b.select(b.compare("oeq", more, 0.0), 0.0, t)
    t = b.select(b.compare("oeq", less, float("inf")), 1.0, t)
    beyond = b.compare("ogt", t, ARC_LIMIT)
    t = b.select(beyond, (t - 1.0) / (t + 1.0), t)
    square = t * t
    angle = b.fma(polynomial(b, square, ARC) * square, t, t)
    angle = b.select(beyond, _less(angle, -0.25), angle)
    angle = b.select(steep, 0.0 - _less(angle, 0.5), angle)
    angle = b.select(b.compare("slt", _bits(b, x), 0), 0.0 - _less(angle, 1.0), angle)
    angle = b.select(b.compare("uno", x, y), x + y, angle)
    return native(b, "copysign", angle, y)


def _less(angle: V, part: float) -> V:
    """angle - part * pi, rounded once."""
    return (angle - part * PI_HIGH) - part * PI_LOW


def _bits(b: Builder[V], x: V) -> V:
    return b.convert("bitcast", x, "i32")


def _wide(b: Builder[V], word: V) -> V:
    """32 bits, zero-extended to 64."""
    return b.convert("zext", word, "i64")
