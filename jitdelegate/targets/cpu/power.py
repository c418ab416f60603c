"""Powers: of floats by logarithms in double precision, of integers by squaring."""

from __future__ import annotations

from math import factorial, log

from jitdelegate.targets.cpu.exponential import polynomial
from jitdelegate.targets.cpu.vector_ir import DOUBLE, INDEX, Function, Value, element_type, lanes_of, vector

LOG2 = tuple(2 / log(2) / (2 * k + 1) for k in reversed(range(9)))
"""log2((1 + s) / (1 - s)) = s * LOG2(s^2), by the series of the inverse hyperbolic tangent, highest first: of |s| up to
0.172, what is left out is below 2^-50 of it."""
EXP2 = tuple(log(2) ** k / factorial(k) for k in reversed(range(11)))
"""2^r = EXP2(r) by its series, highest first: for |r| up to 1/2, what is left out is below 2^-41."""
LOWEST, HIGHEST = -160.0, 130.0
"""Exponents whose powers of two are 0 and infinite in float32."""
ROOT_HALF = 0.7071067811865476


def power(f: Function, x: Value, y: Value) -> Value:
    """x to the power of y within 1 ulp; zeros, infinities and NaN as C's powf has them."""
    lanes = lanes_of(x.type)
    double = vector(lanes, DOUBLE)
    size = f.intrinsic("fabs", x.type, x)
    logarithm = _log2(f, f.cast("fpext", size, double))
    exponent = f.cast("fpext", y, double) * logarithm
    exponent = f.select(f.compare("oeq", size, 1.0), f.literal(double, 0.0), exponent)
    result = f.cast("fptrunc", _exp2(f, exponent), x.type)
    whole = f.compare("oeq", f.intrinsic("rint", y.type, y), y)
    half = y * 0.5
    odd = _both(f, whole, f.compare("une", f.intrinsic("rint", y.type, half), half))
    result = f.select(odd, f.intrinsic("copysign", x.type, result, x), result)
    nan = f.literal(x.type, float("nan"))
    negative = _both(f, f.compare("olt", x, 0.0), f.compare("une", size, float("inf")))
    broken = f.emit(whole.type, f"xor {whole}, {f.literal(whole.type, -1 if lanes == 1 else 1).text}")
    result = f.select(_both(f, negative, broken), nan, result)
    result = f.select(f.compare("uno", x, y), nan, result)
    one = f.literal(x.type, 1.0)
    return f.select(f.compare("oeq", x, 1.0), one, f.select(f.compare("oeq", y, 0.0), one, result))


def _both(f: Function, a: Value, b: Value) -> Value:
    return f.emit(a.type, f"and {a}, {b.text}")


def _log2(f: Function, x: Value) -> Value:
    """Of doubles that were floats and are not negative, NaN aside; -infinity at 0."""
    wide = vector(lanes_of(x.type), INDEX)
    bits = f.cast("bitcast", x, wide)
    exponent = f.arithmetic("sub", f.emit(wide, f"lshr {bits}, {f.literal(wide, 52).text}"), 1022)
    fraction = f.emit(wide, f"and {bits}, {f.literal(wide, (1 << 52) - 1).text}")
    m = f.cast("bitcast", f.emit(wide, f"or {fraction}, {f.literal(wide, 1022 << 52).text}"), x.type)
    small = f.compare("olt", m, ROOT_HALF)
    m = f.select(small, m + m, m)
    n = f.cast("sitofp", f.cast("trunc", exponent, vector(lanes_of(x.type), "i32")), x.type)
    s = (m - 1.0) / (m + 1.0)
    result = f.fma(polynomial(f, s * s, LOG2), s, f.select(small, n - 1.0, n))
    result = f.select(f.compare("oeq", x, 0.0), f.literal(x.type, float("-inf")), result)
    return f.select(f.compare("oeq", x, float("inf")), x, result)


def _exp2(f: Function, x: Value) -> Value:
    """Of doubles, as exact as a float32 needs it."""
    x = f.minimum(f.maximum(x, f.literal(x.type, LOWEST)), f.literal(x.type, HIGHEST))
    n = f.intrinsic("rint", x.type, x)
    wide = vector(lanes_of(x.type), INDEX)
    whole = f.cast("sext", f.cast("fptosi", n, vector(lanes_of(x.type), "i32")), wide)
    scale = f.emit(wide, f"shl {f.arithmetic('add', whole, 1023)}, {f.literal(wide, 52).text}")
    return polynomial(f, x - n, EXP2) * f.cast("bitcast", scale, x.type)


def integer_power(f: Function, x: Value, y: Value) -> Value:
    """x to the power of y, which is not negative; it wraps."""
    bits = 64 if element_type(x.type) == INDEX else 32

    def square(i: Value, result: Value, base: Value, left: Value) -> list[Value]:
        one = f.literal(x.type, 1)
        odd = f.compare("ne", f.emit(x.type, f"and {left}, {one.text}"), 0)
        return [f.select(odd, result * base, result), base * base, f.emit(x.type, f"lshr {left}, {one.text}")]

    return f.loop(bits - 1, square, f.literal(x.type, 1), x, y)[0]
