"""Sine, cosine and the angle of a point, as polynomials of vectors."""

from __future__ import annotations

from math import pi

from jitdelegate.targets.cpu.exponential import polynomial
from jitdelegate.targets.cpu.vector_ir import INDEX, Function, Value, lanes_of, vector

SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""Coefficients of (sin(r) - r) over r^3, highest first. Source: Cephes, sinf.c."""
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""Coefficients of (cos(r) - 1 + r^2 / 2) over r^4, highest first. Source: Cephes, sinf.c."""
ARC = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
"""Coefficients of (atan(t) - t) over t^3, highest first. Source: Cephes, atanf.c."""
ARC_LIMIT = 0.414213562373095
"""tan(pi / 8): beyond it, atan(t) is pi / 4 + atan((t - 1) / (t + 1))."""
PI_HIGH, PI_LOW = 3.1415927410125732, -8.7422776573475858e-8
TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
"""The binary digits of 2 / pi, 32 a word, behind 32 zeros."""
IMPLICIT = 0x00800000
"""The leading digit of a normal float's 24, which is not stored."""
SMALL = 0.5
"""Below it no multiple of pi / 2 is taken off; above it the exponent of a float is at least 126."""


def sin(f: Function, x: Value) -> Value:
    """Within 2 ulp for every float; NaN at infinities."""
    size = f.intrinsic("fabs", x.type, x)
    value = _wave(f, *_reduced(f, size))
    return f.select(f.compare("slt", _bits(f, x), 0), f.emit(x.type, f"fneg {value}"), value)


def cos(f: Function, x: Value) -> Value:
    """Within 2 ulp for every float; NaN at infinities."""
    quadrant, angle = _reduced(f, f.intrinsic("fabs", x.type, x))
    return _wave(f, quadrant + 1, angle)


def _wave(f: Function, quadrant: Value, r: Value) -> Value:
    """sin(quadrant * pi / 2 + r)."""
    square = r * r
    sine = f.fma(polynomial(f, square, SINE) * square, r, r)
    cosine = f.fma(polynomial(f, square, COSINE) * square, square, f.fma(square, f.literal(r.type, -0.5), _one(f, r)))
    value = f.select(f.compare("ne", _and(f, quadrant, 1), 0), cosine, sine)
    return f.select(f.compare("ne", _and(f, quadrant, 2), 0), f.emit(r.type, f"fneg {value}"), value)


def _reduced(f: Function, size: Value) -> tuple[Value, Value]:
    """(quadrant, r) with size = quadrant * pi / 2 + r, but for multiples of 2 pi, and r in [-pi / 4, pi / 4].

    Source: Payne and Hanek, "Radian reduction for trigonometric functions" (1983): of size * 2 / pi, only the 96
    digits of 2 / pi count that the size's exponent moves to where the quadrant's two bits and the fraction are.
    """
    bits = _bits(f, size)
    first = f.intrinsic("smax", bits.type, _shifted(f, "lshr", bits, 23) - 120, f.literal(bits.type, 0))
    high, middle, low = _digits(f, first)
    wide = vector(lanes_of(size.type), INDEX)
    mantissa = _or(f, _and(f, bits, IMPLICIT - 1), IMPLICIT)
    factor = f.cast("zext", mantissa, wide)
    lowest = _shifted(f, "lshr", f.cast("zext", low, wide) * factor, 32)
    top = _shifted(f, "shl", f.cast("zext", high, wide) * factor, 32) + f.cast("zext", middle, wide) * factor + lowest
    quadrant = _shifted(f, "lshr", top + (1 << 61), 62)
    fraction = top - _shifted(f, "shl", quadrant, 62)
    angle = f.cast("sitofp", fraction, size.type) * (pi / 2 * 2.0**-62)
    small = f.compare("olt", size, SMALL)
    angle = f.select(f.compare("olt", size, float("inf")), f.select(small, size, angle), size - size)
    quadrant = f.cast("trunc", quadrant, bits.type)
    return f.select(small, f.literal(bits.type, 0), quadrant), angle


def _digits(f: Function, first: Value) -> tuple[Value, Value, Value]:
    """Three words of TWO_OVER_PI's digits, from the digit number `first` on."""
    word, shift = _shifted(f, "lshr", first, 5), _and(f, first, 31)
    words = []
    for following in range(4):
        value = f.literal(first.type, TWO_OVER_PI[following])
        for number in range(1, 5):
            chosen = f.literal(first.type, TWO_OVER_PI[number + following])
            value = f.select(f.compare("eq", word, number), chosen, value)
        words.append(value)
    high, middle, low = (f.intrinsic("fshl", first.type, words[k], words[k + 1], shift) for k in range(3))
    return high, middle, low


def atan2(f: Function, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), within 3 ulp; signed zeros and infinities as C's atan2f has them."""
    a, b = f.intrinsic("fabs", x.type, x), f.intrinsic("fabs", x.type, y)
    steep = f.compare("ogt", b, a)
    less, more = f.select(steep, a, b), f.select(steep, b, a)
    t = less / more
    t = f.select(f.compare("oeq", more, 0.0), f.literal(x.type, 0.0), t)
    t = f.select(f.compare("oeq", less, float("inf")), _one(f, x), t)
    beyond = f.compare("ogt", t, ARC_LIMIT)
    t = f.select(beyond, (t - 1.0) / (t + 1.0), t)
    square = t * t
    angle = f.fma(polynomial(f, square, ARC) * square, t, t)
    angle = f.select(beyond, _less(f, angle, -0.25), angle)
    angle = f.select(steep, f.literal(x.type, 0.0) - _less(f, angle, 0.5), angle)
    angle = f.select(f.compare("slt", _bits(f, x), 0), f.literal(x.type, 0.0) - _less(f, angle, 1.0), angle)
    angle = f.select(f.compare("uno", x, y), x + y, angle)
    return f.intrinsic("copysign", x.type, angle, y)


def _less(f: Function, angle: Value, part: float) -> Value:
    """angle - part * pi, rounded once."""
    return (angle - part * PI_HIGH) - part * PI_LOW


def _one(f: Function, x: Value) -> Value:
    return f.literal(x.type, 1.0)


def _bits(f: Function, x: Value) -> Value:
    return f.cast("bitcast", x, vector(lanes_of(x.type), "i32"))


def _and(f: Function, x: Value, bits: int) -> Value:
    return f.emit(x.type, f"and {x}, {f.literal(x.type, bits).text}")


def _or(f: Function, x: Value, bits: int) -> Value:
    return f.emit(x.type, f"or {x}, {f.literal(x.type, bits).text}")


def _shifted(f: Function, operation: str, x: Value, bits: int) -> Value:
    """`shl lshr ashr` by a constant."""
    return f.emit(x.type, f"{operation} {x}, {f.literal(x.type, bits).text}")
