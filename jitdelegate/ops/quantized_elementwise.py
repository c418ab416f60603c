"""Quantized elementwise operators that LiteRT does not compute as a float formula, rounded half away from zero.

Formulas give the output's stored number for the stored number X. `looked_up` makes tables of them for types of 8 bits.

Source: experiments with LiteRT 2.3, and the kernels of its sources (tflite/kernels).
"""

from __future__ import annotations

from math import erfc

import numpy as np

from jitdelegate.ir.expr import Arg, Const, Expr, binary, evaluate, maximum, select
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.quantized import Table
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call
from jitdelegate.ops.quantization import centred, half_away, limits, multiple, multiplier, shifted
from jitdelegate.ops.rounding import AWAY, EVEN, INTEGER, rounding
from jitdelegate.ops.scales import scale, zero

X, Y = Arg(0), Arg(1)


def looked_up(formula: Expr, data: Tensor, output: Tensor) -> Expr:
    """The formula's value for each of the 256 stored numbers; the formula itself for wider types."""
    element = ELEMENT_TYPES[data.dtype]
    if element.bits > 8:
        return formula
    return Table(X, tuple(evaluate(formula, [_stored(data)]).tolist()), output.dtype)


def _stored(data: Tensor) -> np.ndarray:
    """All stored numbers of a type of 8 bits, in order."""
    element = ELEMENT_TYPES[data.dtype]
    return np.arange(element.minimum, element.maximum + 1).astype(data.dtype)


def _table(results: np.ndarray, output: Tensor) -> Expr:
    """The table of whole numbers, limited to the output's type."""
    return Table(X, tuple(np.clip(results, *limits(output)).astype(np.int64).tolist()), output.dtype)


def _real(data: Tensor) -> np.ndarray:
    """What all stored numbers stand for, as float32."""
    return np.asarray(scale(data) * (_stored(data).astype(np.int32) - zero(data)).astype(np.float32))


def magnitude(data: Tensor, output: Tensor) -> Expr:
    """ABS."""
    value = centred(X, data)
    factor = np.asarray(scale(data) / scale(output), np.float64)
    found, _ = multiple(maximum(value, -value), factor, AWAY, output, "NONE", 1)
    return looked_up(found, data, output)


def leaky_relu(call: Call) -> Expr:
    """LEAKY_RELU: two multiples; XNNPACK's have factors with 8 bits behind the point."""
    data, output = call.tensor(0), call.output
    value, ratio = centred(X, data), scale(data) / scale(output)
    slope = scale(data) * np.float32(call.option("alpha", 0.0)) / scale(output)
    if rounding(call, data.dtype) == INTEGER:
        slope = ratio * np.float32(call.option("alpha", 0.0))
        factors = [Const(int(np.rint(256 * factor))) for factor in (ratio, slope)]
        found = shifted(value * select(binary("gt", value, 0), *factors), 8, output)
    else:
        positive, _ = multiple(value, np.asarray(ratio, np.float64), AWAY, output, "NONE", 1)
        below = value if slope >= 0 else -value
        negative, _ = multiple(below, np.asarray(abs(slope), np.float64), AWAY, output, "NONE", 1)
        found = select(binary("ge", value, 0), positive, negative)
    return looked_up(found, data, output)


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
    real = _real(data)
    curve = np.where(real < 0, np.expm1(np.minimum(real, 0).astype(np.float64)).astype(np.float32), real)
    steps = curve * (np.float32(1) / scale(output))
    if rounding(call, data.dtype) == EVEN:
        return _table(np.rint(steps + np.float32(zero(output))), output)
    return _table(half_away(steps) + zero(output), output)


def gelu(data: Tensor, output: Tensor) -> Expr:
    """GELU without approximation: x / 2 * erfc(-x / sqrt(2)) in float32."""
    real = _real(data)
    tails = [erfc(value) for value in (real * np.float32(-(0.5**0.5))).tolist()]
    steps = np.float32(0.5) * real * np.array(tails, np.float32) * (np.float32(1) / scale(output))
    return _table(half_away(steps) + zero(output), output)


def hard_swish(data: Tensor, output: Tensor) -> Expr:
    """HARD_SWISH in 16 bits: x * 128 by two factors of 15 bits, of which the second gives relu6(x + 3) / 6."""
    fine = np.float32(1 / 128) * scale(data)
    first, first_exponent = _word_factor(fine / scale(output))
    second, second_exponent = _word_factor(fine / np.float32(3 / 32768))
    value = (_stored(data).astype(np.int64) - zero(data)) << 7
    scaled = _word_product(value, first)
    gate = np.clip(value << max(0, second_exponent - 1), -(1 << 15), (1 << 15) - 1)
    gate = _word_product(gate, second)
    gate = np.clip(gate << 1, -(1 << 15), (1 << 15) - 1) if second_exponent > 0 else _divided(gate, -second_exponent)
    gate = (gate + (1 << 15)) >> 1
    product = np.sign(gate * scaled) * np.right_shift(abs(gate * scaled), 15)
    return _table(_divided(product, max(0, -first_exponent)) + zero(output), output)


def _word_factor(real: np.float32) -> tuple[int, int]:
    """(m, exponent): real = m * 2**(exponent - 15), m of 15 bits."""
    m, shift = multiplier(float(real))
    return min((m + (1 << 15)) >> 16, (1 << 15) - 1), 31 - shift


def _word_product(value: np.ndarray, factor: int) -> np.ndarray:
    """gemmlowp's SaturatingRoundingDoublingHighMul of 16 bits: value * factor / 2**15."""
    nudged = value * factor + np.where(value * factor >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.sign(nudged) * np.right_shift(abs(nudged), 15))


def _divided(value: np.ndarray, exponent: int) -> np.ndarray:
    """value / 2**exponent, halves away from zero."""
    half = 1 << exponent >> 1
    return np.asarray(np.sign(value) * np.right_shift(abs(value) + half, exponent))
