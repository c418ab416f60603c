"""Functions around the exponential one, as polynomials of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from jitdelegate.targets.cpu.vector_ir import FLOAT, Function, Value, lanes_of, vector

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
"""Here the quotient below is above 1."""
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
"""Here the quotient below is above 1."""
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


def polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, highest coefficient first."""
    first = f.literal(x.type, coefficients[0])
    return reduce(lambda total, c: f.fma(total, x, f.literal(x.type, c)), coefficients[1:], first)


def _integers(value: Value) -> str:
    return vector(lanes_of(value.type), "i32")


def _power_of_two(f: Function, exponent: Value) -> Value:
    """2 ** exponent for 32-bit integers in the range of normal floats."""
    biased = f.arithmetic("add", exponent, 127)
    bits = f.emit(exponent.type, f"shl {biased}, {f.literal(exponent.type, 23).text}")
    return f.cast("bitcast", bits, vector(lanes_of(exponent.type), FLOAT))


def exp(f: Function, x: Value) -> Value:
    """Within 2 ulp; infinity above 88.73, denormals below -87.3, 0 below -104."""
    x = f.minimum(f.maximum(x, f.literal(x.type, -104.0)), f.literal(x.type, 89.0))
    n = f.intrinsic("rint", x.type, x * LOG2_E)
    r = f.fma(n, f.literal(x.type, -LN2_HIGH), x)
    r = f.fma(n, f.literal(x.type, -LN2_LOW), r)
    p = f.fma(polynomial(f, r, EXP), r * r, r) + 1.0
    return _scaled(f, p, n)


def _scaled(f: Function, p: Value, n: Value) -> Value:
    """p * 2 ** n for whole numbers n, whatever the result's size."""
    if f.has_avx512(p.type):
        return f.scale(p, n)
    # Two steps: a single 2 ** n leaves the range of normal floats at both ends.
    whole = f.cast("fptosi", n, _integers(p))
    half = f.emit(whole.type, f"ashr {whole}, {f.literal(whole.type, 1).text}")
    return p * _power_of_two(f, half) * _power_of_two(f, f.arithmetic("sub", whole, half))


def log(f: Function, x: Value) -> Value:
    """Within 2 ulp; -infinity at 0, NaN below."""
    integers = _integers(x)
    denormal = f.compare("olt", x, SMALLEST_NORMAL)
    bits = f.cast("bitcast", f.select(denormal, x * 2.0**23, x), integers)
    exponent = f.emit(integers, f"lshr {bits}, {f.literal(integers, 23).text}")
    exponent = f.arithmetic("sub", exponent, 126)
    mantissa = f.emit(integers, f"and {bits}, {f.literal(integers, 0x007FFFFF).text}")
    mantissa = f.emit(integers, f"or {mantissa}, {f.literal(integers, 0x3F000000).text}")
    m = f.cast("bitcast", mantissa, x.type)
    small = f.compare("olt", m, 0.707106781186547524)
    n = f.cast("sitofp", exponent, x.type)
    n = f.select(small, n - 1.0, n)
    n = f.select(denormal, n - 23.0, n)
    r = f.select(small, m + m, m) - 1.0
    square = r * r
    p = polynomial(f, r, LOG) * r * square
    p = f.fma(n, f.literal(x.type, LN2_LOW), p)
    p = f.fma(square, f.literal(x.type, -0.5), p)
    result = f.fma(n, f.literal(x.type, LN2_HIGH), r + p)
    result = f.select(f.compare("oeq", x, 0.0), f.literal(x.type, float("-inf")), result)
    result = f.select(f.compare("oeq", x, float("inf")), x, result)
    return f.select(f.compare("oge", x, 0.0), result, f.literal(x.type, float("nan")))


def tanh(f: Function, x: Value) -> Value:
    """Within 6 ulp, and exactly 1 where float32 has nothing closer."""
    return _saturating(f, x, TANH_ONE, TANH_ODD, TANH_EVEN)


def _saturating(f: Function, x: Value, one: float, odd: Sequence[float], even: Sequence[float]) -> Value:
    """x * odd(x^2) / even(x^2), which reaches 1 before x does `one`, and 1 beyond; the same below 0."""
    limited = _limited(f, x, one)
    square = limited * limited
    return _limited(f, limited * polynomial(f, square, odd) / polynomial(f, square, even), 1.0)


def _limited(f: Function, x: Value, limit: float) -> Value:
    return f.minimum(f.maximum(x, f.literal(x.type, -limit)), f.literal(x.type, limit))


def erf(f: Function, x: Value) -> Value:
    """Within 6 ulp, and exactly 1 where float32 has nothing closer."""
    return _saturating(f, x, ERF_ONE, ERF_ODD, ERF_EVEN)


def logistic(f: Function, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    one = f.literal(x.type, 1.0)
    return one / (exp(f, negate(f, x)) + one)


def negate(f: Function, x: Value) -> Value:
    return f.emit(x.type, f"fneg {x}")
