"""The arithmetic of quantized operators: scales, zero points, limits, and one rounding of a real multiple.

Source: LiteRT's kernels and XNNPACK's, by experiment; gemmlowp's fixed point
(https://github.com/google/gemmlowp/blob/master/doc/quantization.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, frexp

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, clamp, evaluate, select
from jitdelegate.ir.graph import Tensor
from jitdelegate.ir.quantized import Table, half_away, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import Call, parameters, scale, zero
from jitdelegate.ops.rounding import AWAY, DOUBLE, EIGHTS, EVEN, FUSED, HALF_UP, INTEGER, ONCE, SIXTEENS, UP, WIDE

XNNPACK = (EVEN, INTEGER, HALF_UP, FUSED)
"""Roundings of operators with a fused activation that XNNPACK alone has."""
EIGHT, SIXTEEN = 8, 16
FIXED = {AWAY: "double", UP: "double_up", WIDE: "single", HALF_UP: "single", ONCE: "single"}
"""A rounding with a fixed-point multiplier -> the Rescale's."""
SCALES = 2.0**-64, 2.0**24
"""The least and the largest scale of quantized data."""
HIGHEST_RATIOS = {"int8": 2.0**22, "uint8": 2.0**22, "int16": 2.0**15}
"""Type -> the largest ratio of an operand's scale to the output's: LiteRT's products of larger ones overflow."""
HIGHEST_RATIO = 2.0**24
"""The same of other types."""
HIGHEST_FACTOR = 2.0**12
"""The largest factor of a product. Far larger ones have no fixed-point multiplier, and all their results are limits."""

LEAST_FACTOR = 2.0**-32
"""The least factor for which LiteRT's kernels shift an int32 by no more than its bits. They do without a check."""
HIGHEST_RESULT = 2.0**30
"""Of sums in steps of the output: the first that LiteRT's kernels, not XNNPACK's, may let overflow."""


def centred(value: Expr, tensor: Tensor) -> Expr:
    """The stored number minus the zero point, an int32."""
    wide, middle = Cast(value, "int32"), zero(tensor)
    return wide - Const(middle) if middle else wide


def real_value(value: Expr, tensor: Tensor) -> Expr:
    """The float32 that a stored number stands for."""
    return Cast(centred(value, tensor), "float32") * Const(float(scale(tensor)))


def plus(value: Expr, factor: float, addend: Expr, *, is_fused: bool) -> Expr:
    """value * factor + addend in float32; fused, it is rounded once.

    A float64 holds the product, and the sum of all but very different numbers.
    """
    if not is_fused:
        return value * Const(factor) + addend
    return Cast(Cast(value, "float64") * Const(factor) + Cast(addend, "float64"), "float32")


def parameter_problems(tensor: Tensor, most: float = SCALES[1]) -> Iterator[str]:
    """What is wrong with a tensor that has not one scale for all elements, at most `most`, or a zero point that is none
    of its type."""
    scales = tensor.quant.scales if tensor.is_quantized and tensor.quant else ()
    if len(scales) != 1:
        yield f"'{tensor.title}' has {len(scales)} scales, expected one."
    elif not SCALES[0] <= scales[0] <= most:
        yield f"the scale of '{tensor.title}' is {scales[0]}, expected {SCALES[0]:.3g} to {most:.3g}."
    element, middle = ELEMENT_TYPES[tensor.dtype], zero(tensor)
    if not element.minimum <= middle <= element.maximum:
        yield f"the zero point of '{tensor.title}' is {middle}, which is no {tensor.dtype}."


def tensor_problems(call: Call, *tensors: Tensor, most: float = SCALES[1]) -> Iterator[str]:
    """Reasons to refuse a node whose tensors have `parameter_problems`."""
    for tensor in tensors:
        yield from (f"{call.node.op}: {problem}" for problem in parameter_problems(tensor, most))


def per_tensor_problems(call: Call, *tensors: Tensor) -> Iterator[str]:
    """Reasons to refuse tensors with `parameter_problems`, or too large a ratio to the scale of the output."""
    yield from tensor_problems(call, *tensors)
    if any(tensor is call.output for tensor in tensors):
        for tensor in tensors:
            ratio, most = float(scale(tensor) / scale(call.output)), HIGHEST_RATIOS.get(tensor.dtype, HIGHEST_RATIO)
            if ratio > most:
                problem = f"an operand's scale is {ratio:.3g} times the output's, expected up to {most:.3g}."
                yield f"{call.node.op}: {problem}"


def factor_problems(call: Call, *factors: float | np.floating, least: float = 0.0) -> Iterator[str]:
    """Reasons to refuse a node whose products are multiplied by one of these factors."""
    for factor in factors:
        if not least <= factor <= HIGHEST_FACTOR:
            scaled = f"its scales give the factor {factor:.3g}"
            yield f"{call.node.op}: {scaled}, expected {least:.3g} to {HIGHEST_FACTOR:.3g}."


def result_problems(call: Call, reach: float) -> Iterator[str]:
    """A reason to refuse a node whose results reach so many steps of the output before they are limited."""
    if reach >= HIGHEST_RESULT:
        results = f"its results reach {reach:.3g} steps of the output"
        yield f"{call.node.op}: {results}, expected below {HIGHEST_RESULT:.3g}."


def reach(tensor: Tensor) -> int:
    """How far the stored numbers of a type lie from the zero point."""
    element, middle = ELEMENT_TYPES[tensor.dtype], zero(tensor)
    return int(max(element.maximum - middle, middle - element.minimum))


def same_scale_problems(call: Call, *tensors: Tensor) -> Iterator[str]:
    """Reasons to refuse tensors whose equal stored numbers do not stand for the same real number."""
    yield from per_tensor_problems(call, *tensors)
    if len({parameters(tensor) for tensor in tensors}) > 1:
        yield f"{call.node.op}: the quantization parameters of inputs and output differ."


def limits(tensor: Tensor, activation: str = "NONE", rounding: str = AWAY) -> tuple[int, int]:
    """The smallest and the largest stored number after a fused activation of a node whose results are rounded so."""
    element = ELEMENT_TYPES[tensor.dtype]
    low, high = element.minimum, element.maximum
    if activation in ("RELU", "RELU6", "RELU_0_TO_1"):
        low = max(low, _stored(0.0, tensor, rounding))
    if activation == "RELU6":
        high = min(high, _stored(6.0, tensor, rounding))
    if activation == "RELU_0_TO_1":
        high = min(high, _stored(1.0, tensor, rounding))
    if activation == "RELU_N1_TO_1":
        low, high = max(low, _stored(-1.0, tensor, rounding)), min(high, _stored(1.0, tensor, rounding))
    return low, max(low, high)


def _stored(real: float, tensor: Tensor, rounding: str) -> int:
    """LiteRT's kernels round away from zero, then add the zero point. XNNPACK adds it first and rounds to even."""
    steps, middle = np.float32(real) / scale(tensor), zero(tensor)
    return int(np.rint(steps + np.float32(middle))) if rounding in XNNPACK else middle + int(half_away(steps))


def multiplier(real: float) -> tuple[int, int]:
    """(m, shift): real = m / 2**shift, m in [2**30, 2**31) rounded half up, or (0, 31) for what is too small."""
    mantissa, exponent = frexp(real)
    m = floor(mantissa * 2**31 + 0.5)
    if m == 2**31:
        m, exponent = m // 2, exponent + 1
    return (m, 31 - exponent) if real > 0 and exponent >= -31 else (0, 31)


def wide_multiplier(real: float) -> tuple[int, int]:
    """(m, shift) as `multiplier`, with the 15 bits that LiteRT leaves to a multiplier of 64-bit sums."""
    m, shift = multiplier(real)
    return min((m + (1 << 15)) >> 16, (1 << 15) - 1), shift - 16


def multiple(
    value: Expr, factors: np.ndarray, rounding: str, output: Tensor, activation: str, first: int
) -> tuple[Expr, tuple[np.ndarray, ...]]:
    """An integer times a factor, rounded to the output's type: (expression, constants that it reads).

    Args:
        value: an int32 or int64.
        factors: f64[] or f64[channels] of the last axis; for EVEN they are used as float32.
        activation: the fused activation, which limits the result.
        first: number of the Arg that reads the first of the constants, which have an element per channel.
    """
    if rounding in (EIGHTS, SIXTEENS):
        return _in_groups(value, factors, rounding, output, activation, first)
    low, high = limits(output, activation, rounding)
    if rounding == EVEN:
        (factor,), constants = _operands([np.asarray(factors, np.float32)], first)
        return quantize(Cast(value, "float32") * factor, output.dtype, zero(output), low, high), constants
    if rounding == DOUBLE:  # tensors have no float64: a whole number of 53 bits and a power of two
        mantissas, exponents = np.frexp(factors)
        whole_numbers, powers = np.asarray(mantissas * 2.0**53), np.asarray(2.0 ** (exponents - 53))
        parts: Sequence[np.ndarray] = (whole_numbers.astype(np.int64), powers.astype(np.float32))
        (whole, power), constants = _operands(parts, first)
        factor = Cast(whole, "float64") * Cast(power, "float64")
        return quantize(Cast(value, "float64") * factor, output.dtype, zero(output), low, high, "away"), constants
    find = wide_multiplier if rounding == WIDE else multiplier
    pairs = np.array([find(float(factor)) for factor in np.ravel(factors)], np.int32)
    (m, shift), constants = _operands([column.reshape(np.shape(factors)) for column in pairs.T], first)
    fixed = FIXED[rounding]
    wide = zero(output) if ELEMENT_TYPES[output.dtype].bits <= 16 else 0
    rounded = rescale(value, m, shift, output.dtype, output_zero=wide, low=low, high=high, rounding=fixed)
    return rounded, constants


def _in_groups(
    value: Expr, factors: np.ndarray, rounding: str, output: Tensor, activation: str, first: int
) -> tuple[Expr, tuple[np.ndarray, ...]]:
    """As `multiple`, by a kernel that computes several results at once and rounds a rest of them in another way."""
    size, own = (output.shape[-1], EIGHT) if rounding == EIGHTS else (output.size, SIXTEEN)
    whole = size - size % own
    up, constants = multiple(value, factors, UP, output, activation, first)
    if whole == size:
        return up, constants
    away, _ = multiple(value, factors, AWAY, output, activation, first)
    if not whole:
        return away, constants
    assert rounding == EIGHTS
    is_whole = binary("ge", Arg(first + len(constants)), 1)
    return select(is_whole, up, away), (*constants, (np.arange(size) < whole).astype(np.int32))


def group_problems(call: Call, rule: str) -> Iterator[str]:
    """A reason to refuse a node whose last results LiteRT rounds in another way than the others."""
    output, rest = call.output, call.output.size % SIXTEEN
    if rule == SIXTEENS and output.size > SIXTEEN and rest:
        yield f"{call.node.op}: LiteRT rounds the last {rest} of {output.size} bytes in another way."


def _operands(arrays: Sequence[np.ndarray], first: int) -> tuple[list[Expr], tuple[np.ndarray, ...]]:
    """Each array as an expression: a number if all its elements are equal, else an Arg; and the arrays of the Args."""
    expressions: list[Expr] = []
    constants: list[np.ndarray] = []
    for array in arrays:
        if (array == array.flat[0]).all():
            expressions.append(Const(array.flat[0].item()))
        else:
            expressions.append(Arg(first + len(constants)))
            constants.append(array)
    return expressions, tuple(constants)


def shifted(total: Expr, shift: int, output: Tensor, activation: str = "NONE") -> Expr:
    """An int32 divided by 2**shift, halves up, in the output's type: the last step of XNNPACK's integer factors."""
    whole = binary("shift_right", total + Const(1 << shift - 1), Const(shift)) + Const(zero(output))
    return Cast(clamp(whole, *limits(output, activation, INTEGER)), output.dtype)


def all_stored(data: Tensor) -> np.ndarray:
    """All stored numbers of a type of 8 bits, in order."""
    element = ELEMENT_TYPES[data.dtype]
    return np.arange(element.minimum, element.maximum + 1).astype(data.dtype)


def all_real(data: Tensor) -> np.ndarray:
    """What `all_stored` stand for, as float32."""
    return np.asarray(scale(data) * (all_stored(data).astype(np.int32) - zero(data)).astype(np.float32))


def table(results: np.ndarray, output: Tensor) -> Expr:
    """The table of whole numbers, one for each of `all_stored`, limited to the output's type."""
    return Table(Arg(0), tuple(np.clip(results, *limits(output)).astype(np.int64).tolist()), output.dtype)


def tabulated(formula: Expr, data: Tensor, output: Tensor) -> Expr:
    """A function of real numbers as a table of all 256 stored ones, as LiteRT's kernels make it in float32."""
    with np.errstate(all="ignore"):
        steps = half_away(evaluate(formula, [all_real(data)]) * (np.float32(1) / scale(output))) + zero(output)
    return table(np.nan_to_num(steps, nan=limits(output)[0]), output)


def fixed(value: Expr, factor: float) -> Expr:
    """An int32 times a factor, an int32."""
    return rescale(value, *multiplier(factor), "int32", rounding=FIXED[AWAY])
