"""Which quantized nodes LiteRT hands to XNNPACK by default: the others round as LiteRT's own kernels do.

Source: experiments with LiteRT 2.3 on x86-64 and aarch64, where the two round differently, and the checks in its
tflite/delegates/xnnpack/xnnpack_delegate.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from jitdelegate.ir.graph import Tensor
from jitdelegate.ops.call import OPTION, Call, scale, zero
from jitdelegate.ops.window import stride

SUM_RATIOS = 2.0**-10, 2.0**8
"""Of an addition: the least ratio of an input's scale to the output's, and the first that is too large."""
PRODUCT_RATIOS = 2.0**-16, 2.0**8
"""Of a product: the same of the product of both inputs' scales to the output's."""

BYTE_RATIOS = 2.0**-8, 2.0**7
"""Of factors with 8 bits behind the point: the least ratio of the input's scale to the output's, and the largest."""
HIGHEST_RANK = 6
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


UNPACKED = "unpacked_weights"
"""Our own option, set by `passes.read_weights`: "int4" or "int2", as the file stores weights beside quantized data."""
FILTERS = {"BATCH_MATMUL": 1, "CONV_2D": 1, "DEPTHWISE_CONV_2D": 1, "FULLY_CONNECTED": 1, "TRANSPOSE_CONV": 1}
"""Operator -> its operand with weights, whose scale may be along any axis where it is one for all of an int8."""
LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""The smallest scale of weights: XNNPACK refuses numbers with fewer digits."""


def takes(call: Call) -> bool:
    """Whether XNNPACK takes the node, whose operator and types it knows."""
    if max(len(tensor.shape) for tensor in (*call.operands, *call.outputs)) > HIGHEST_RANK:
        return False
    if call.option(OPTION, "NONE") not in ACTIVATIONS or not all(map(_has_plain_scales, _tensors(call))):
        return False
    condition = CONDITIONS.get(call.node.op)
    return condition is None or condition(call)


def _tensors(call: Call) -> Iterator[Tensor]:
    """Those whose scales XNNPACK wants along axis 0, even one for all elements."""
    filters = FILTERS.get(call.node.op)
    for operand in filter(call.given, range(call.count)):
        if operand != filters or call.tensor(operand).dtype != "int8":
            yield call.tensor(operand)
    yield from call.outputs


def _has_plain_scales(tensor: Tensor) -> bool:
    return not tensor.is_quantized or tensor.quant is None or tensor.quant.axis == 0


def _within(ratio: np.float32, limits: tuple[float, float]) -> bool:
    return bool(limits[0] <= ratio < limits[1])


def _is_byte_ratio(ratio: np.float32) -> bool:
    return bool(BYTE_RATIOS[0] <= ratio <= BYTE_RATIOS[1])


def _sum(call: Call) -> bool:
    return all(_within(scale(tensor) / scale(call.output), SUM_RATIOS) for tensor in call.operands)


def _product(call: Call) -> bool:
    a, b = call.operands
    return _within(scale(a) * scale(b) / scale(call.output), PRODUCT_RATIOS)


def _is_normal(tensor: Tensor) -> bool:
    return tensor.quant is not None and all(LEAST_SCALE <= scale < np.inf for scale in tensor.quant.scales)


def _weighted(call: Call, bias: int) -> bool:
    """Whether weights have usual scales, and the bias, if any, has some: bias scales are looked at, not used."""
    is_usual = _is_normal(call.tensor(FILTERS[call.node.op]))
    return is_usual and (not call.given(bias) or (call.tensor(bias).is_quantized and _is_normal(call.tensor(bias))))


def _convolution(call: Call) -> bool:
    is_usual = call.given(2) and len(call.shape(2)) == 1 and not call.option(UNPACKED, "")
    return is_usual and _weighted(call, 2)


def _fully_connected(call: Call) -> bool:
    """XNNPACK takes weights of int4 and int2 in whole bytes, of int2 with a scale for each row."""
    weights, unpacked = call.tensor(1), call.option(UNPACKED, "")
    if unpacked and weights.shape[1] % {"int4": 2, "int2": 4}[unpacked]:
        return False
    if unpacked == "int2" and weights.quant is not None and len(weights.quant.scales) != weights.shape[0]:
        return False
    return weights.is_constant and _weighted(call, 2)


def _transpose_conv(call: Call) -> bool:
    if not _weighted(call, 3) or (call.given(3) and len(call.shape(3)) != 1):
        return False
    kernel = call.shape(1)[1:3]
    if call.option("padding", "SAME") == "SAME":
        return all(size >= step for size, step in zip(kernel, stride(call.node.attrs), strict=True))
    return all(size <= whole for size, whole in zip(kernel, call.output.shape[1:3], strict=True))


def _pool(call: Call) -> bool:
    window = int(call.option("filter_height", 1)), int(call.option("filter_width", 1))
    return all(size >= step for size, step in zip(window, stride(call.node.attrs), strict=True))


def _quantize(call: Call) -> bool:
    data, output = call.tensor(0), call.output
    if data.dtype == "float32":
        return output.dtype in ("int8", "uint8")
    return bool(data.dtype == output.dtype and _is_byte_ratio(scale(data) / scale(output)))


def _leaky_relu(call: Call) -> bool:
    ratio = scale(call.tensor(0)) / scale(call.output)
    slope = ratio * np.float32(call.option("alpha", 0.0))
    return _is_byte_ratio(ratio) and _is_byte_ratio(abs(slope)) and bool(slope >= BYTE_RATIOS[0] - BYTE_RATIOS[1])


def _batch_matmul(call: Call) -> bool:
    return zero(call.tensor(1)) == 0


CONDITIONS: Mapping[str, Callable[[Call], bool]] = {
    "ADD": _sum,
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _fully_connected,
    "LEAKY_RELU": _leaky_relu,
    "MAX_POOL_2D": _pool,
    "MUL": _product,
    "QUANTIZE": _quantize,
    "SUB": _sum,
    "TRANSPOSE_CONV": _transpose_conv,
}
"""Operator -> whether XNNPACK takes a node of it."""
