"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION of quantized data.

LiteRT has four ways for a SOFTMAX. Bytes: by default, float32 exponentials from a table, summed one after another, or
on aarch64 exponentials of 16 bits; in its reference kernels, fixed point throughout. int16: tables of 513 entries,
interpolated. Source: LiteRT's kernels (tflite/kernels/internal/optimized/optimized_ops.h, reference/softmax.h,
reference/l2normalization.h), by experiment.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log2

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, minimum, select, unary
from jitdelegate.ir.fixed_point import Arrays, FixedPoint, exponential
from jitdelegate.ir.forms import Normalize, Statistic
from jitdelegate.ir.quantized import Table, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, scale, zero
from jitdelegate.ops.pointwise import X
from jitdelegate.ops.quantization import FIXED, centred, limits, multiplier, plus
from jitdelegate.ops.quantized_words import HALF, RANGE, exponential_32, interpolated, table_16
from jitdelegate.ops.registry import Lowering
from jitdelegate.ops.rounding import AWAY, FUSED, UINT16, rounding

PAIRS = (("int8", "int8"), ("int8", "int16"), ("uint8", "uint8"), ("int16", "int16"))
"""Types of data and output."""
WHOLE, SUM_WHOLE = 5, 12
"""Integer bits of a difference from the largest number, and of the sum of exponentials."""
NUMBER, TOP, TOTAL = Cast(X, "int32"), Arg(1), Arg(2)
"""A number, the largest one of its row, and the sum of its row."""
LARGEST = Statistic("max", NUMBER, "int32")
BELOW = Cast(TOP - NUMBER, "uint8")
"""How far an 8-bit number is below the largest one."""
FRACTION = 7
"""Bits of fraction of what L2_NORMALIZATION gives."""
MOST_WORDS, LEAST_STEP = 1 << 15, 2.0**-30
"""Most exponentials of 16 bits whose sum fits an int32, and the least scale of their shares."""
LONGEST = 10.0
"""The difference, in real numbers, that int16's table of exponentials reaches down to."""


def quantized_softmax(call: Call) -> Lowering:
    """The lowering of a node of quantized data."""
    if call.tensor(0).dtype == "int16":
        return _interpolated(call)
    if call.graph.quantized.rounding == "reference":
        return _fixed_point(call)
    return _by_words(call) if _has_words(call) else _by_floats(call)


def softmax_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse a SOFTMAX whose exponentials have 16 bits."""
    if _has_words(call) and (call.shape(0)[-1] > MOST_WORDS or scale(call.output) < LEAST_STEP):
        found = f"rows of {call.shape(0)[-1]} elements in steps of {scale(call.output):.3g}"
        yield f"SOFTMAX: {found}, expected at most {MOST_WORDS} in steps of at least {LEAST_STEP:.3g}."


def _has_words(call: Call) -> bool:
    data = call.tensor(0).dtype
    return data == call.output.dtype != "int16" and rounding(call, data) == UINT16


def rows(call: Call, result: Expr, *statistics: Statistic) -> Lowering:
    """The result for every number, from the number and the statistics of its row."""
    return Lowering(Normalize(axes=(len(call.shape(0)) - 1,), statistics=statistics, result=result), (call.index(0),))


def exponentials(step: np.float32) -> Table:
    """e**(-step * how far a number is below the largest one), in float32."""
    return Table(BELOW, tuple(exponential_32(-step * np.arange(256, dtype=np.float32)).tolist()), "float32")


def summed_in_order(value: Expr) -> Statistic:
    """The sum of float32s, added up from the first one on, as LiteRT's loops do."""
    return Statistic("sum", value, in_order=True)


def quantized_log_softmax(call: Call) -> Lowering:
    """The logarithms of the shares, in float32."""
    output, step = call.output, scale(call.tensor(0))
    is_fused = rounding(call, output.dtype) == FUSED
    most = plus(Cast(TOP, "float32"), float(step), unary("log", TOTAL), is_fused=is_fused)
    below = -(most / Const(float(scale(output))))
    difference = plus(Cast(X, "float32"), float(step / scale(output)), below, is_fused=is_fused)
    rounded = quantize(difference, output.dtype, zero(output))
    return rows(call, rounded, LARGEST, summed_in_order(exponentials(step)))


def quantized_l2_normalization(call: Call) -> Lowering:
    """Each number times the inverse square root of the sum of squares, in steps of 1 / 128."""
    data, output, total = call.tensor(0), call.output, Arg(1)
    value, low, high = centred(X, data), *limits(output)
    # LiteRT shifts an int8 to the left later than a uint8, where the last of two roundings sees it
    bits = 0 if output.dtype == "int8" else FRACTION
    factor, right = FixedPoint("root_factor", total), FixedPoint("root_shift", total) + Const(31 - FRACTION + bits)
    middle = 0 if output.dtype == "int8" else 1 << FRACTION
    left = value * Const(1 << bits)
    rounded = rescale(left, factor, right, output.dtype, output_zero=middle, low=low, high=high)
    return rows(call, rounded, Statistic("sum", value * value, "int32"))


def _by_floats(call: Call) -> Lowering:
    output = call.output
    power = exponentials(np.float32(call.option("beta", 0.0)) * scale(call.tensor(0)))
    share = power * (Const(1.0) / (TOTAL * Const(float(scale(output)))))
    if output.dtype == "uint8":  # LiteRT adds a half, which makes 1 of the largest number below a half
        rounded = quantize(unary("trunc", share + 0.5), output.dtype, zero(output))
    else:
        rounded = quantize(share, output.dtype, zero(output), rounding="away")
    return rows(call, rounded, LARGEST, summed_in_order(power))


def _by_words(call: Call) -> Lowering:
    """Exponentials of 16 bits, times the reciprocal of their sum, a float32 that becomes a multiplier and a shift."""
    output, step = call.output, np.float32(call.option("beta", 0.0)) * scale(call.tensor(0))
    powers = exponential_32(-step * np.arange(256, dtype=np.float32)) * np.float32(RANGE)
    entries = np.minimum(np.floor(powers.astype(np.float64) + 0.5), RANGE).astype(int).tolist()
    words = Table(BELOW, tuple(entries), "int32")
    size, digits = Cast(TOTAL, "float32") * Const(float(scale(output))), -floor(log2(float(scale(output))))
    # the sum in steps of the output is at least 2**(bits - digits), and less than twice that
    bits = Const(31) - FixedPoint("leading_zeros", Cast(size * Const(2.0**digits), "int32"))
    power = Cast(binary("shift_left", Const(1), bits), "float32") * Const(2.0 ** (31 - digits))
    factor = Const(1.0) / size * power
    is_power = binary("ge", factor, 2.0**31)
    m = select(is_power, Const(1 << 30), Cast(factor, "int32"))
    shift = clamp(bits + Const(31 - digits) - Cast(is_power, "int32"), 2, 62)
    low, high = limits(output)
    share = rescale(words, m, shift, output.dtype, output_zero=low, low=low, high=high)
    return rows(call, share, LARGEST, Statistic("sum", words, "int32"))


def _fixed_point(call: Call) -> Lowering:
    output = call.output
    powers = fixed_point_exponentials(float(call.option("beta", 0.0)) * float(scale(call.tensor(0))))
    summands = [(power + (1 << SUM_WHOLE - 1)) >> SUM_WHOLE for power in powers]
    # where 512 elements are as large as the largest one, LiteRT aborts; all shares round to 0
    zeros, inverse = (
        FixedPoint("leading_zeros", TOTAL),
        FixedPoint("normal_reciprocal", FixedPoint("normalized", TOTAL)),
    )
    factor = select(binary("lt", zeros, 4), 0, inverse)
    # the product has 62 bits of fraction, and what is left of the sum's integer bits
    shift = minimum(Const(62 + SUM_WHOLE - ELEMENT_TYPES[output.dtype].bits) - zeros, 62)
    low, high = limits(output)
    share = rescale(Table(BELOW, tuple(powers), "int32"), factor, shift, output.dtype, output_zero=low, high=high)
    return rows(call, share, LARGEST, Statistic("sum", Table(BELOW, tuple(summands), "int32"), "int32"))


def fixed_point_exponentials(step: float) -> list[int]:
    """e**(-step * k) in 32 bits without integer bits, for every k of 8 bits; 0 for what is too small."""
    m, shift = multiplier(min(step * 2.0 ** (31 - WHOLE), 2.0**31 - 1))
    left = 31 - shift
    radius = floor(((1 << WHOLE) - 1) * 2.0 ** (31 - WHOLE) / 2.0**left)
    below = np.arange(min(radius, 255) + 1, dtype=np.int64)
    arrays = Arrays()
    powers = exponential(arrays, arrays.high_product(-below << left, m), WHOLE, 32).tolist()
    return [*powers, *[0] * (256 - len(powers))]


def _interpolated(call: Call) -> Lowering:
    """Differences are scaled to the range of the exponentials' table, and the sum to that of the reciprocals'."""
    factor = float(scale(call.tensor(0))) * float(call.option("beta", 0.0)) / (LONGEST / RANGE)
    below = rescale(NUMBER - TOP, *multiplier(factor), "int32", rounding=FIXED[AWAY])
    power = interpolated(below + Const(HALF - 1), table_16(np.exp, LONGEST / RANGE, HALF - 1, 2.0 / RANGE, "float64"))
    # the sum is 1 + x, times a power of two; x is a number from the lowest int16 on, and rounded to the largest at most
    limited = minimum(FixedPoint("normalized", TOTAL), (1 << 31) - 1 - (1 << 13))
    over = binary("shift_right", limited + Const(1 << 13), Const(14)) - Const(3 * HALF)
    share = interpolated(over, table_16(lambda x: 1 / (1 + x), 1.0 / RANGE, -HALF, 2.0 / RANGE, "float64"))
    shift = Const(31) - FixedPoint("leading_zeros", TOTAL)
    rounded = rescale(power, share, shift, "int16", low=0, rounding="single")
    return rows(call, rounded, LARGEST, Statistic("sum", power, "int32"))
