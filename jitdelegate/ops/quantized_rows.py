"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION of quantized data.

LiteRT has three ways for a SOFTMAX. Bytes: by default, float32 exponentials from a table, summed one after another; in
its reference kernels, fixed point throughout. int16: tables of 513 entries, interpolated. Source: LiteRT's kernels
(tflite/kernels/internal/optimized/optimized_ops.h, reference/softmax.h, reference/l2normalization.h), by experiment.
"""

from __future__ import annotations

from math import floor

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, binary, minimum, select, unary
from jitdelegate.ir.fixed_point import Arrays, FixedPoint, exponential
from jitdelegate.ir.forms import Reduce
from jitdelegate.ir.index_forms import Scan
from jitdelegate.ir.quantized import Table, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, Shape, scale, zero
from jitdelegate.ops.pointwise import X, Y, Z, mapped
from jitdelegate.ops.quantization import FIXED, centred, limits, multiplier
from jitdelegate.ops.quantized_words import HALF, RANGE, exponential_32, interpolated, table_16
from jitdelegate.ops.registry import Lowering
from jitdelegate.ops.rounding import AWAY

PAIRS = (("int8", "int8"), ("int8", "int16"), ("uint8", "uint8"), ("int16", "int16"))
"""Types of data and output."""
WHOLE, SUM_WHOLE = 5, 12
"""Integer bits of a difference from the largest number, and of the sum of exponentials."""
BELOW = Cast(Cast(Y, "int32") - Cast(X, "int32"), "uint8")
"""How far an 8-bit number, X, is below the largest one, Y."""
FRACTION = 7
"""Bits of fraction of what L2_NORMALIZATION gives."""
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
    column = (*shape[:-1], 1)
    return Lowering(Scan(axis=len(shape) - 1, total=True), (source,), column, "float32"), column


def exponentials(step: np.float32) -> Table:
    """e**(-step * how far a number is below the largest one), in float32."""
    return Table(BELOW, tuple(exponential_32(-step * np.arange(256, dtype=np.float32)).tolist()), "float32")


def quantized_log_softmax(call: Call) -> Lowering:
    """The logarithms of the shares, in float32."""
    shape, output = call.shape(0), call.output
    data, step = (call.index(0), shape), scale(call.tensor(0))
    top = reduced("max", call.index(0), shape, call.tensor(0).dtype)
    total = summed_in_order(mapped(exponentials(step), data, top, shape=shape), shape)
    most = (Cast(Y, "float32") * Const(float(step)) + unary("log", X)) / Const(float(scale(output)))
    below = mapped(most, total, top, shape=total[1])
    difference = Cast(X, "float32") * Const(float(step / scale(output))) - Y
    return mapped(
        quantize(difference, output.dtype, zero(output)), data, (below, total[1]), shape=shape, dtype=output.dtype
    )


def quantized_l2_normalization(call: Call) -> Lowering:
    """Each number times the inverse square root of the sum of squares, in steps of 1 / 128."""
    shape, data, output = call.shape(0), call.tensor(0), call.output
    value, low, high = centred(X, data), *limits(output)
    squares = mapped(value * value, (call.index(0), shape), shape=shape, dtype="int32")
    total = reduced("sum", squares, shape, "int32")
    factor = mapped(FixedPoint("root_factor", X), total, shape=total[1], dtype="int32")
    # LiteRT shifts an int8 to the left later than a uint8, where the last of two roundings sees it
    bits = 0 if output.dtype == "int8" else FRACTION
    right = FixedPoint("root_shift", X) + Const(31 - FRACTION + bits)
    shift = mapped(right, total, shape=total[1], dtype="int32")
    middle = 0 if output.dtype == "int8" else 1 << FRACTION
    rounded = rescale(value * Const(1 << bits), Y, Z, output.dtype, output_zero=middle, low=low, high=high)
    columns = [(column, total[1]) for column in (factor, shift)]
    return mapped(rounded, (call.index(0), shape), *columns, shape=shape, dtype=output.dtype)


def _by_floats(call: Call) -> Lowering:
    shape, output = call.shape(0), call.output
    data = call.index(0), shape
    top = reduced("max", call.index(0), shape, call.tensor(0).dtype)
    step = np.float32(call.option("beta", 0.0)) * scale(call.tensor(0))
    powers = mapped(exponentials(step), data, top, shape=shape)
    total, column = summed_in_order(powers, shape)
    share = mapped(Const(1.0) / (X * Const(float(scale(output)))), (total, column), shape=column)
    if output.dtype == "uint8":  # LiteRT adds a half, which makes 1 of the largest number below a half
        rounded = quantize(unary("trunc", X * Y + 0.5), output.dtype, zero(output))
    else:
        rounded = quantize(X * Y, output.dtype, zero(output), rounding="away")
    return mapped(rounded, (powers, shape), (share, column), shape=shape, dtype=output.dtype)


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
    columns = [(column, total[1]) for column in (factor, shift)]
    return mapped(share, data, top, *columns, shape=shape, dtype=output.dtype)


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
    shape = call.shape(0)
    data, top = (call.index(0), shape), reduced("max", call.index(0), shape, "int16")
    factor = float(scale(call.tensor(0))) * float(call.option("beta", 0.0)) / (LONGEST / RANGE)
    below = rescale(Cast(X, "int32") - Cast(Y, "int32"), *multiplier(factor), "int32", rounding=FIXED[AWAY])
    power = interpolated(below + Const(HALF - 1), table_16(np.exp, LONGEST / RANGE, HALF - 1, 2.0 / RANGE, "float64"))
    powers = mapped(Cast(power, "int16"), data, top, shape=shape, dtype="int16")
    total = reduced("sum", powers, shape, "int32")
    # the sum is 1 + x, times a power of two; x is a number from the lowest int16 on, and rounded to the largest at most
    limited = minimum(FixedPoint("normalized", X), (1 << 31) - 1 - (1 << 13))
    over = binary("shift_right", limited + Const(1 << 13), Const(14)) - Const(3 * HALF)
    entries = table_16(lambda x: 1 / (1 + x), 1.0 / RANGE, -HALF, 2.0 / RANGE, "float64")
    share = mapped(interpolated(over, entries), total, shape=total[1], dtype="int32")
    shift = mapped(Const(31) - FixedPoint("leading_zeros", X), total, shape=total[1], dtype="int32")
    rounded = rescale(X, Y, Z, "int16", low=0, rounding="single")
    return mapped(rounded, (powers, shape), (share, total[1]), (shift, total[1]), shape=shape, dtype="int16")
