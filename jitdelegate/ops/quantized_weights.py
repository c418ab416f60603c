"""Convolutions and fully connected layers of quantized data: the float lowering with integer sums instead.

sum (x - zero(x)) * (w - zero(w)) + bias, in 32 bits (64 for int16 data), times scale(x) * scale(w) / scale(y).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Cast, Expr
from jitdelegate.ir.forms import Contract, Depthwise, IndexMap
from jitdelegate.ir.graph import ABSENT, Tensor
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import OPTION, Call, constant_problems, scale, zero
from jitdelegate.ops.quantization import (
    HIGHEST_RESULT,
    factor_problems,
    group_problems,
    multiple,
    per_tensor_problems,
    reach,
    result_problems,
)
from jitdelegate.ops.registry import Lowering
from jitdelegate.ops.rounding import AWAY, DOUBLE, EIGHTS, EVEN, HALF_UP, ONCE, UP, WIDE, product_rule, rounding

MIDDLE = 128
"""Subtracted from weights of type uint8, which then are an int8."""
WEIGHTS = {"int8": ("int8",), "uint8": ("uint8",), "int16": ("int8",)}
"""Type of the data -> types of the weights."""
BIASES = {"int8": ("int32",), "uint8": ("int32",), "int16": ("int64", "int32")}
"""Type of the data -> types of the bias."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Numbers of a node's operands, and the filter's axis of output channels."""

    data: int
    filter: int
    bias: int
    channel_axis: int


def weight_problems(call: Call, operands: Operands) -> Iterator[str]:
    """Reasons to refuse quantized data, filter and bias."""
    data, weights = call.tensor(operands.data), call.tensor(operands.filter)
    yield from per_tensor_problems(call, data, call.output)
    yield from constant_problems(call, operands.filter)
    yield from bias_problems(call, operands)
    if weights.dtype not in WEIGHTS[data.dtype]:
        yield f"{call.node.op}: the filter of {data.dtype} is {weights.dtype}, expected {WEIGHTS[data.dtype][0]}."
    yield from scale_problems(call, weights, operands.channel_axis)
    yield from group_problems(call, sum_rule(call, operands))
    yield from factor_problems(call, float(sum_factors(data, weights, call.output, EVEN).max()))
    yield from _overflow_problems(call, operands)


def bias_problems(call: Call, operands: Operands) -> Iterator[str]:
    """Reasons to refuse the bias of quantized data, if there is one."""
    if not call.given(operands.bias):
        return
    yield from constant_problems(call, operands.bias)
    data, bias = call.tensor(operands.data), call.tensor(operands.bias)
    if bias.dtype not in BIASES[data.dtype]:
        yield f"{call.node.op}: the bias of {data.dtype} is {bias.dtype}, expected {BIASES[data.dtype][0]}."
    if bias.quant is not None and any(bias.quant.zero_points):
        yield f"{call.node.op}: the bias '{bias.title}' has a zero point, expected 0."
    if _is_misread(call, bias, call.tensor(operands.filter)):
        yield f"{call.node.op}: the bias '{bias.title}' is {bias.dtype}, but quantized_bias_type does not say so."


def _overflow_problems(call: Call, operands: Operands) -> Iterator[str]:
    """A reason to refuse sums times factors that LiteRT's whole numbers of 32 bits do not hold."""
    data, weights = call.tensor(operands.data), call.tensor(operands.filter)
    factors = sum_factors(data, weights, call.output, EVEN)
    channels = weights.shape[operands.channel_axis]
    most = weights.size // channels << 8
    if sum_rule(call, operands) in (EVEN, HALF_UP) or most * reach(data) * float(factors.max()) < HIGHEST_RESULT:
        return
    numbers = np.abs(call.array(operands.filter).astype(np.int64) - zero(weights))
    sums = np.moveaxis(numbers, operands.channel_axis, 0).reshape(channels, -1).sum(1) * reach(data)
    if call.given(operands.bias):
        sums = sums + np.abs(call.array(operands.bias).reshape(-1).astype(np.int64))
    yield from result_problems(call, float((sums * factors).max()))


def _is_misread(call: Call, bias: Tensor, weights: Tensor) -> bool:
    """Whether LiteRT reads an int32 bias of int16 data as int64. Its kernel of FULLY_CONNECTED looks at the type, but
    with weights of int16 reads an int64 as int32."""
    if weights.dtype == "int16":
        return bool((bias.dtype == "int64") != (call.option("quantized_bias_type", "FLOAT32") == "INT64"))
    is_checked = call.node.op == "FULLY_CONNECTED" and call.graph.quantized.rounding != "reference"
    is_word = call.output.dtype == "int16" and bias.dtype == "int32"
    return bool(is_word and not is_checked and call.option("quantized_bias_type", "FLOAT32") != "INT32")


def scale_problems(call: Call, weights: Tensor, axis: int) -> Iterator[str]:
    """Reasons to refuse scales and zero points of a constant filter."""
    name, quant = f"{call.node.op}: the filter '{weights.title}'", weights.quant
    if quant is None or not quant.scales:
        yield f"{name} has no scales."
        return
    if quant.block_size or (len(quant.scales) > 1 and quant.axis != axis):
        yield f"{name} has scales along axis {quant.axis}, expected one per output channel."
    if not all(0 < scale < np.inf for scale in quant.scales):
        yield f"{name} has scales that are not positive."
    if len(set(quant.zero_points)) > 1 or (weights.dtype == "int8" and any(quant.zero_points)):
        yield f"{name} has zero points {sorted(set(quant.zero_points))[:4]}, expected 0."
    element = ELEMENT_TYPES[weights.dtype]
    if not element.minimum <= zero(weights) <= element.maximum:
        yield f"{name} has the zero point {zero(weights)}, which is no {weights.dtype}."


def integer_sums(call: Call, lowering: Lowering, operands: Operands) -> Lowering:
    """The lowering of a node as if it were of floats, with sums of integers, and results rounded once.

    Args:
        lowering: a Contract or a Depthwise of data and filter; its inputs are in this order.
    """
    data, weights, output = call.tensor(operands.data), call.tensor(operands.filter), call.output
    assert weights.quant is not None and isinstance(lowering.form, Contract | Depthwise)
    form = replace(
        lowering.form,
        accumulator=ELEMENT_TYPES[data.dtype].accumulator,
        input_zero=zero(data),
        halo_value=float(zero(data)),
    )
    shape = lowering.shape or output.shape
    filters, form = centred_filter(call.array(operands.filter), zero(weights), form)
    rule = sum_rule(call, operands)
    is_wide = rule in (UP, ONCE, AWAY, EIGHTS) and data.dtype == "int16"
    total: Expr = Cast(RESULT, "int32") if is_wide else RESULT
    bias = call.array(operands.bias).reshape(-1) if call.given(operands.bias) else None
    factors = sum_factors(data, weights, output, rule)
    rounded, constants = multiple(total, factors, rule, output, call.option(OPTION, "NONE"), 1)
    own = (lowering.inputs[0], filters, ABSENT if bias is None else bias.astype(form.accumulator))
    form = replace(form, epilogue=rounded, operands=(IndexMap.along(len(shape) - 1),) * len(constants))
    return replace(lowering, form=form, inputs=(*own, *constants))


def centred_filter(
    weights: np.ndarray, offset: int, form: Contract | Depthwise
) -> tuple[np.ndarray, Contract | Depthwise]:
    """Weights less their zero point as far as they fit in their type, and the form that subtracts the rest."""
    if weights.dtype == np.int8:
        return weights, form
    if isinstance(form, Depthwise):
        return weights.astype(np.int16) - np.int16(offset), form
    shifted = (weights.astype(np.int16) - MIDDLE).astype(np.int8)
    return shifted, replace(form, filter_zero=offset - MIDDLE)


def sum_rule(call: Call, operands: Operands) -> str:
    """How the sums are rounded. Those of int16 data with an int32 bias have 32 bits in LiteRT, and other kernels; those
    of groups have its reference kernel."""
    rule = rounding(call, call.tensor(operands.data).dtype)
    if rule == WIDE and not _wide_sums(call, operands):
        is_reference = call.graph.quantized.rounding == "reference"
        rule = AWAY if is_reference else EIGHTS if call.node.op == "TRANSPOSE_CONV" else product_rule(call)
    if rule == DOUBLE and call.graph.quantized.rounding == "litert" and not _wide_sums(call, operands):
        rule = product_rule(call)
    return AWAY if rule in (UP, ONCE) and _is_grouped(call, operands) else rule


def _is_grouped(call: Call, operands: Operands) -> bool:
    weights = call.shape(operands.filter)
    return len(weights) == 4 and operands.channel_axis == 0 and weights[3] != call.shape(operands.data)[3]


def _wide_sums(call: Call, operands: Operands) -> bool:
    """Whether LiteRT sums up int16 data in 64 bits."""
    asked = call.option("quantized_bias_type", "FLOAT32")
    if call.given(operands.bias):
        return call.tensor(operands.bias).dtype == "int64"
    return bool(asked == "INT64" or (asked == "FLOAT32" and call.node.op != "FULLY_CONNECTED"))


def sum_factors(data: Tensor, weights: Tensor, output: Tensor, rule: str) -> np.ndarray:
    """f64[channels] or f64[]: scale(x) * scale(w) / scale(y), calculated as the kernels of the rule do it: those of a
    FULLY_CONNECTED that round UP or ONCE, or of two int16, take one scale times the other as a float32."""
    assert weights.quant is not None
    scales = np.array(weights.quant.scales, np.float32)
    scales = scales[0] if len(scales) == 1 else scales
    if rule in (EVEN, HALF_UP):
        return np.asarray(scale(data) * scales / scale(output), np.float64)
    is_single = len(weights.shape) == 2 and scales.ndim == 0
    if data.dtype == "uint8" or (is_single and (rule in (UP, ONCE) or weights.dtype == "int16")):
        return np.asarray(scale(data) * scales, np.float64) / np.float64(scale(output))
    return np.asarray(np.float64(scale(data)) * scales.astype(np.float64) / np.float64(scale(output)))
