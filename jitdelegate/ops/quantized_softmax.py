"""SOFTMAX of quantized data, in LiteRT's three ways.

Bytes: by default, float32 exponentials from a table, summed one after another; in LiteRT's reference kernels, fixed
point throughout. int16: tables of 513 entries, interpolated. Source: LiteRT's kernels (tflite/kernels/internal/
optimized/optimized_ops.h, reference/softmax.h), by experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, floor, log2

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, minimum, select, unary
from jitdelegate.ir.fixed_point import Arrays, FixedPoint, exponential
from jitdelegate.ir.forms import IndexMap, Reduce
from jitdelegate.ir.index_forms import Scan
from jitdelegate.ir.quantized import DIGITS, Table, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.pointwise import X, Y, Z, mapped
from jitdelegate.ops.quantization import FIXED, half_away, limits, multiplier
from jitdelegate.ops.registry import Lowering, moved
from jitdelegate.ops.rounding import AWAY
from jitdelegate.ops.scales import scale, zero

PAIRS = (("int8", "int8"), ("int8", "int16"), ("uint8", "uint8"), ("int16", "int16"))
"""Types of data and output."""
WHOLE, SUM_WHOLE = 5, 12
"""Integer bits of a difference from the largest number, and of the sum of exponentials."""
BELOW = Cast(Cast(Y, "int32") - Cast(X, "int32"), "uint8")
"""How far an 8-bit number, X, is below the largest one, Y."""
HALF, RANGE = 1 << 15, (1 << 16) - 1
EXPONENT = 32
POLYNOMIAL = tuple(
    c / EXPONENT**k for c, k in ((0.05550361559341535, 3), (0.2402284522445722, 2), (0.6931471806916203, 1))
)
"""Of 2**(r / EXPONENT), by powers of r: source: glibc, sysdeps/ieee754/flt-32/e_exp2f_data.c."""
LONGEST = 10.0
"""The difference, in real numbers, that int16's table of exponentials reaches down to."""


def quantized_softmax(call: Call) -> Lowering:
    """The lowering of a node of quantized data."""
    if call.tensor(0).dtype == "int16":
        return _interpolated(call)
    if call.graph.quantized.rounding == "reference":
        return _fixed_point(call)
    return _by_floats(call)


def reduced(kind: str, source: int | Lowering, shape: Shape, dtype: str) -> tuple[Lowering, Shape]:
    """A number for each row of a value of `shape`; and the shape of these numbers."""
    column = (*shape[:-1], 1)
    form = Reduce(kind=kind, axes=(len(shape) - 1,), accumulator=dtype if kind == "sum" else "")
    return Lowering(form, (source,), column, dtype), column


def summed_in_order(source: Lowering, shape: Shape) -> tuple[Lowering, Shape]:
    """The sum of each row of float32, added up from its first element on, as LiteRT's loops do."""
    column, last = (*shape[:-1], 1), len(shape) - 1
    sums = Lowering(Scan(axis=last), (source,), shape, "float32")
    start = (0,) * last + (shape[-1] - 1,)
    return moved(sums, IndexMap.along(*range(last), -1, starts=start), column, "float32"), column


def exponentials(step: np.float32) -> Table:
    """e**(-step * how far a number is below the largest one), in float32."""
    return Table(BELOW, tuple(exponential_32(-step * np.arange(256, dtype=np.float32)).tolist()), "float32")


def exponential_32(x: np.ndarray) -> np.ndarray:
    """e**x of float32 as glibc's expf gives it, which not always is the nearest float32: 2**(k / 32) * a polynomial."""
    turns = x.astype(np.float64) * (EXPONENT * log2(e))
    k = np.rint(turns)
    cubic, square, line = POLYNOMIAL
    r = turns - k
    found = (cubic * r + square) * (r * r) + (line * r + 1)
    return np.asarray(found * np.exp2(k / EXPONENT), np.float32)


def _by_floats(call: Call) -> Lowering:
    shape, output = call.shape(0), call.output
    data = call.index(0), shape
    top = reduced("max", call.index(0), shape, call.tensor(0).dtype)
    step = np.float32(call.option("beta", 0.0)) * scale(call.tensor(0))
    powers = mapped(exponentials(step), data, top, shape=shape)
    total, column = summed_in_order(powers, shape)
    share = mapped(Const(1.0) / (X * Const(float(scale(output)))), (total, column), shape=column)
    found = quantize(unary("trunc", X * Y + 0.5), output.dtype, zero(output))
    return mapped(found, (powers, shape), (share, column), shape=shape, dtype=output.dtype)


def _fixed_point(call: Call) -> Lowering:
    shape, output, dtype = call.shape(0), call.output, call.tensor(0).dtype
    data = call.index(0), shape
    top = reduced("max", call.index(0), shape, dtype)
    powers = fixed_point_exponentials(float(call.option("beta", 0.0)) * float(scale(call.tensor(0))))
    summands = [(power + (1 << SUM_WHOLE - 1)) >> SUM_WHOLE for power in powers]
    parts = mapped(Table(BELOW, tuple(summands), "int32"), data, top, shape=shape, dtype="int32")
    total = reduced("sum", parts, shape, "int32")
    # where 512 elements are as large as the largest one, LiteRT aborts; all shares round to 0
    zeros, inverse = FixedPoint("leading_zeros", X), FixedPoint("normal_reciprocal", FixedPoint("normalized", X))
    factor = mapped(select(binary("lt", zeros, 4), 0, inverse), total, shape=total[1], dtype="int32")
    # the product has 62 bits of fraction, and what is left of the sum's integer bits
    bits = ELEMENT_TYPES[output.dtype].bits
    shift = mapped(minimum(Const(62 + SUM_WHOLE - bits) - zeros, 62), total, shape=total[1], dtype="int32")
    low, high = limits(output)
    share = rescale(Table(BELOW, tuple(powers), "int32"), Arg(2), Arg(3), output.dtype, output_zero=low, high=high)
    columns = [(each, total[1]) for each in (factor, shift)]
    return mapped(share, data, top, *columns, shape=shape, dtype=output.dtype)


def fixed_point_exponentials(step: float) -> list[int]:
    """e**(-step * k) in 32 bits without integer bits, for every k of 8 bits; 0 for what is too small."""
    m, shift = multiplier(min(step * 2.0 ** (31 - WHOLE), 2.0**31 - 1))
    left = 31 - shift
    radius = floor(((1 << WHOLE) - 1) * 2.0 ** (31 - WHOLE) / 2.0**left)
    below = np.arange(min(radius, 255) + 1, dtype=np.int64)
    arrays = Arrays()
    found = exponential(arrays, arrays.high_product(-below << left, m), WHOLE, 32).tolist()
    return [*found, *[0] * (256 - len(found))]


def _interpolated(call: Call) -> Lowering:
    """Differences are scaled to the range of the exponentials' table, and the sum to that of the reciprocals'."""
    shape = call.shape(0)
    data, top = (call.index(0), shape), reduced("max", call.index(0), shape, "int16")
    factor = float(scale(call.tensor(0))) * float(call.option("beta", 0.0)) / (LONGEST / RANGE)
    below = rescale(Cast(X, "int32") - Cast(Y, "int32"), *multiplier(factor), "int32", rounding=FIXED[AWAY])
    power = interpolated(below + Const(HALF - 1), table_16(np.exp, LONGEST / RANGE, HALF - 1, 2.0 / RANGE))
    powers = mapped(Cast(power, "int16"), data, top, shape=shape, dtype="int16")
    total = reduced("sum", powers, shape, "int32")
    # the sum is 1 + x, times a power of two; x is a number from the lowest int16 on
    over = binary("shift_right", FixedPoint("normalized", X) + Const(1 << 13), Const(14)) - Const(3 * HALF)
    entries = table_16(lambda x: 1 / (1 + x), 1.0 / RANGE, -HALF, 2.0 / RANGE)
    share = mapped(interpolated(over, entries), total, shape=total[1], dtype="int32")
    shift = mapped(Const(31) - FixedPoint("leading_zeros", X), total, shape=total[1], dtype="int32")
    found = rescale(X, Y, Z, "int16", low=0, rounding="single")
    return mapped(found, (powers, shape), (share, total[1]), (shift, total[1]), shape=shape, dtype="int16")


def interpolated(value: Expr, entries: tuple[int, ...]) -> Expr:
    """A table's function of an int32, which is limited to the range of an int16 before."""
    found = Table(Cast(clamp(value, -HALF, HALF - 1), "int16"), entries, "int32")
    return binary("shift_right", found + Const(1 << DIGITS - 1), Const(DIGITS))


def table_16(
    function: Callable[[np.ndarray], np.ndarray], step: float, middle: int, result: float, dtype: str = "float64"
) -> tuple[int, ...]:
    """The 513 entries of a function of int16 numbers with scale `step` and zero point `middle`.

    Entries lie so that the largest errors between and at them are alike. LiteRT calculates them in `dtype`.
    """
    real = np.dtype(dtype).type
    first, last = (real(step) * real(limit - middle) for limit in (-HALF, HALF - 1))
    steps, fine = (last - first) / real(512), real(RANGE + 1) / (real(result) * real(RANGE))
    at = first + np.arange(512, dtype=dtype) * steps
    values, between = (half_away(function(each) * fine) for each in (at, at + steps / real(2)))
    following = function(first + np.arange(1, 513, dtype=dtype) * steps) * fine
    error = half_away((following + values) / real(2)) - between
    entries = np.append(values - half_away(error / real(2)), half_away(function(np.array([last])) * fine))
    return tuple(np.clip(entries, -HALF, HALF - 1).astype(int).tolist())
