"""Quantized elementwise operators that LiteRT does not compute as a float formula, rounded half away from zero.

Formulas give the output's stored number for the stored number X. `looked_up` makes tables of them for types of 8 bits.

Source: experiments with LiteRT 2.3, and the kernels of its sources (tflite/kernels).
"""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.expr import Cast, Const, Expr, binary, clamp, evaluate, maximum, select
from jitdelegate.ir.fixed_point import Arrays, FixedPoint, halved, product, root_factor, root_shift
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.quantized import Table, half_away, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, scale, zero
from jitdelegate.ops.pointwise import X, Y, Z
from jitdelegate.ops.quantization import (
    all_real,
    all_stored,
    centred,
    limits,
    multiple,
    multiplier,
    shifted,
    table,
    wide_multiplier,
)
from jitdelegate.ops.quantized_words import approximate_gelu, exact_gelu
from jitdelegate.ops.rounding import AWAY, EVEN, INTEGER, rounding


def looked_up(formula: Expr, data: Tensor, output: Tensor) -> Expr:
    """The formula's value for each of the 256 stored numbers; the formula itself for wider types."""
    element = ELEMENT_TYPES[data.dtype]
    if element.bits > 8:
        return formula
    return Table(X, tuple(evaluate(formula, [all_stored(data)]).tolist()), output.dtype)


def magnitude(data: Tensor, output: Tensor) -> Expr:
    """ABS."""
    value = centred(X, data)
    factor = np.asarray(scale(data) / scale(output), np.float64)
    rounded, _ = multiple(maximum(value, -value), factor, AWAY, output, "NONE", 1)
    return looked_up(rounded, data, output)


def leaky_relu(call: Call) -> Expr:
    """LEAKY_RELU: two multiples; XNNPACK's have factors with 8 bits behind the point."""
    data, output = call.tensor(0), call.output
    value, ratio = centred(X, data), scale(data) / scale(output)
    slope = scale(data) * np.float32(call.option("alpha", 0.0)) / scale(output)
    if rounding(call, data.dtype) == INTEGER:
        slope = ratio * np.float32(call.option("alpha", 0.0))
        factors = [Const(int(np.rint(256 * factor))) for factor in (ratio, slope)]
        result = shifted(value * select(binary("gt", value, 0), *factors), 8, output)
    else:
        positive, _ = multiple(value, np.asarray(ratio, np.float64), AWAY, output, "NONE", 1)
        below = value if slope >= 0 else -value
        negative, _ = multiple(below, np.asarray(abs(slope), np.float64), AWAY, output, "NONE", 1)
        result = select(binary("ge", value, 0), positive, negative)
    return looked_up(result, data, output)


def prelu(call: Call) -> Expr:
    """PRELU: X and the slopes Y: two multiples."""
    data, alpha, output = call.tensor(0), call.tensor(1), call.output
    value, ratio = centred(X, data), scale(data) / scale(output)
    slope = scale(data) * scale(alpha) / scale(output)
    positive, _ = multiple(value, np.asarray(ratio, np.float64), AWAY, output, "NONE", 2)
    negative, _ = multiple(value * centred(Y, alpha), np.asarray(slope, np.float64), AWAY, output, "NONE", 2)
    return select(binary("ge", value, 0), positive, negative)


def elu(call: Call) -> Expr:
    """ELU; XNNPACK rounds halves to the even stored number."""
    data, output = call.tensor(0), call.output
    real = all_real(data)
    curve = np.where(real < 0, np.expm1(np.minimum(real, 0).astype(np.float64)).astype(np.float32), real)
    steps = curve * (np.float32(1) / scale(output))
    if rounding(call, data.dtype) == EVEN:
        return table(np.rint(steps + np.float32(zero(output))), output)
    return table(half_away(steps) + zero(output), output)


def gelu(data: Tensor, output: Tensor, approximate: bool) -> Expr:
    """GELU: x / 2 * erfc(-x / sqrt(2)) in float32, or by tanh."""
    real = all_real(data)
    curve = (approximate_gelu if approximate else exact_gelu)(real)
    return table(half_away(curve * (np.float32(1) / scale(output))) + zero(output), output)


def inverse_root(data: Tensor, output: Tensor) -> Expr:
    """RSQRT: a root with 20 more bits, then one multiple; the largest number for 0."""
    m, shift = multiplier(float(1 / (np.sqrt(scale(data)) * scale(output))))
    value, arrays = all_stored(data).astype(np.int64) - zero(data), Arrays()
    roots, rights = (function(arrays, np.maximum(value, 0), 0) for function in (root_factor, root_shift))
    operands = [np.ones(256, np.int32), roots.astype(np.int32), (rights + (31 - 20)).astype(np.int32)]
    fine = evaluate(rescale(X, Y, Z, "int32"), operands)
    inverse = evaluate(rescale(X, m, shift + 20, "int32"), [fine])
    return table(np.where(value > 0, inverse + zero(output), limits(output)[1]), output)


def quotient(a: Expr, b: Expr, factor: float) -> Expr:
    """DIV: a / b * factor, int32s, as LiteRT's kernel rounds it: three products of 32 bits with the reciprocal of b.

    The last step divides by 2**right, halves away from zero. LiteRT does not limit `right` to 0 ... 31: beyond, it
    shifts by its last five bits, and adds 1 unless the number is negative.
    """
    is_negative = binary("lt", b, 0)
    a, b = select(is_negative, -a, a), select(is_negative, -b, b)
    size = maximum(a, -a)
    normal = FixedPoint("normalized", maximum(size, 1), 0)
    below = select(binary("eq", normal, 1 << 30), Const(-(1 << 31)), -normal)
    left = select(binary("lt", a, 0), below, select(binary("gt", a, 0), normal, Const(0)))
    moved = FixedPoint("leading_zeros", size + Cast(binary("lt", a, 0), "int32") * Const(-1), 0) - Const(1)
    reciprocal = FixedPoint("normal_reciprocal", FixedPoint("normalized", b, 0), 0)
    m, shift = multiplier(factor)
    ratio: Expr = rescale(left, reciprocal, 31, "int32", rounding="single")
    ratio = rescale(ratio, m, 31, "int32", rounding="single")
    right = moved + Const(shift) - FixedPoint("leading_zeros", b, 0)
    is_below = binary("lt", ratio, 0)
    near = rescale(maximum(ratio, -ratio), 4, clamp(right, 0, 31) + Const(2), "int32", rounding="single")
    far = binary("shift_right", ratio, binary("and", right, Const(31))) + Cast(binary("ge", ratio, 0), "int32")
    is_near = binary("eq", clamp(right, 0, 31), right)
    return select(is_near, select(is_below, -near, near), far)


def hard_swish(data: Tensor, output: Tensor, *, is_up: bool = False) -> Expr:
    """HARD_SWISH in 16 bits: x * 128 by two factors of 15 bits, of which the second gives relu6(x + 3) / 6.

    Args:
        is_up: whether halves are rounded up, and the product of both down.
    """
    divided = _divided_up if is_up else _divided
    fine, arrays = np.float32(1 / 128) * scale(data), Arrays()
    first, first_shift = wide_multiplier(float(fine / scale(output)))
    second, second_shift = wide_multiplier(float(fine / np.float32(3 / 32768)))
    value = (all_stored(data).astype(np.int64) - zero(data)) << 7
    scaled = product(arrays, value, first, 16)
    left = 15 - second_shift
    gate = np.clip(value << max(0, left - 1), -(1 << 15), (1 << 15) - 1)
    gate = product(arrays, gate, second, 16)
    gate = np.clip(gate << 1, -(1 << 15), (1 << 15) - 1) if left > 0 else divided(gate, -left)
    gate = (gate + (1 << 15)) >> 1
    sign = 1 if is_up else np.sign(gate * scaled)
    both = sign * np.right_shift(sign * gate * scaled, 15)
    return table(divided(both, max(0, first_shift - 15)) + zero(output), output)


def _divided_up(value: np.ndarray, exponent: int) -> np.ndarray:
    """value / 2**exponent, halves up."""
    return np.asarray(np.right_shift(value + (1 << exponent >> 1), exponent))


def _divided(value: np.ndarray, exponent: int) -> np.ndarray:
    """value / 2**exponent, halves away from zero."""
    return halved(Arrays(), value, exponent) if exponent else value
