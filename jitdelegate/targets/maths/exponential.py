"""exp, log, tanh and erf by polynomials."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.targets.maths.builder import Builder, V, native, polynomial

LOG2_E = 1.44269504088896341
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440e-4
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Coefficients of exp(r) - 1 - r over r^2, highest first. Source: Cephes, expf.c."""
SMALLEST_NORMAL = 2.0**-126
LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
"""Coefficients of (log(1 + r) - r + r^2 / 2) over r^3, highest first. Source: Cephes, logf.c."""
TANH_ONE = 8.475
"""The quotient of polynomials for tanh exceeds 1 at this x."""
TANH_ODD = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
"""tanh(x) = x * odd(x^2) / even(x^2) for |x| <= TANH_ONE, highest first. Source: Eigen, MathFunctionsImpl.h."""
ERF_ONE = 4.1
"""The quotient of polynomials for erf exceeds 1 at this x."""
ERF_ODD = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
ERF_EVEN = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
"""erf(x) = x * odd(x^2) / even(x^2) for |x| <= ERF_ONE, highest first. Source: Eigen, MathFunctionsImpl.h."""


def exp(b: Builder[V], x: V) -> V:
    """Within 2 ulp; infinity above 88.73, denormals below -87.3, 0 below -104."""
    x = b.minimum(b.maximum(x, -104.0), 89.0)
    n = native(b, "round", x * LOG2_E)
    r = b.fma(n, -LN2_HIGH, x)
    r = b.fma(n, -LN2_LOW, r)
    p = b.fma(polynomial(b, r, EXP), r * r, r) + 1.0
    scaled = b.native("scale", p, n)
    return _scaled(b, p, n) if scaled is None else scaled


def _scaled(b: Builder[V], p: V, n: V) -> V:
    """p * 2**n in two steps: a single factor 2**n would leave the range of normal floats at both ends."""
    whole = b.convert("fptosi", n, "i32")
    half = b.ashr(whole, 1)
    return p * _power_of_two(b, half) * _power_of_two(b, whole - half)


def _power_of_two(b: Builder[V], exponent: V) -> V:
    """2**exponent as a float; `exponent` is a 32-bit integer in the range of normal floats."""
    return b.convert("bitcast", exponent + 127 << 23, "float")


def log(b: Builder[V], x: V) -> V:
    """Within 2 ulp; -infinity at 0, NaN below 0."""
    denormal = b.compare("olt", x, SMALLEST_NORMAL)
    bits = b.convert("bitcast", b.select(denormal, x * 2.0**23, x), "i32")
    exponent = (bits >> 23) - 126
    m = b.convert("bitcast", bits & 0x007FFFFF | 0x3F000000, "float")
    small = b.compare("olt", m, 0.707106781186547524)
    n = b.convert("sitofp", exponent, "float")
    n = b.select(small, n - 1.0, n)
    n = b.select(denormal, n - 23.0, n)
    r = b.select(small, m + m, m) - 1.0
    square = r * r
    p = polynomial(b, r, LOG) * r * square
    p = b.fma(n, LN2_LOW, p)
    p = b.fma(square, -0.5, p)
    result = b.fma(n, LN2_HIGH, r + p)
    result = b.select(b.compare("oeq", x, 0.0), float("-inf"), result)
    result = b.select(b.compare("oeq", x, float("inf")), x, result)
    return b.select(b.compare("oge", x, 0.0), result, float("nan"))


def tanh(b: Builder[V], x: V) -> V:
    """Within 6 ulp, and exactly 1 where float32 has nothing closer."""
    return _saturating(b, x, TANH_ONE, TANH_ODD, TANH_EVEN)


def erf(b: Builder[V], x: V) -> V:
    """Within 6 ulp, and exactly 1 where float32 has nothing closer."""
    return _saturating(b, x, ERF_ONE, ERF_ODD, ERF_EVEN)


def _saturating(b: Builder[V], x: V, one: float, odd: Sequence[float], even: Sequence[float]) -> V:
    """x * odd(x^2) / even(x^2), with x limited to +-`one` and the quotient to +-1."""
    limited = _limited(b, x, one)
    square = limited * limited
    return _limited(b, limited * polynomial(b, square, odd) / polynomial(b, square, even), 1.0)


def _limited(b: Builder[V], x: V, limit: float) -> V:
    return b.minimum(b.maximum(x, -limit), limit)
