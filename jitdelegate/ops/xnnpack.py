"""Which quantized nodes LiteRT hands to XNNPACK by default: the others round as LiteRT's own kernels do.

Source: experiments with LiteRT 2.3 on x86-64, where the two round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from jitdelegate.ops.activation import OPTION
from jitdelegate.ops.call import Call
from jitdelegate.ops.scales import scale, zero

SUM_RATIOS = 2.0**-10, 2.0**8
"""Of an addition: the least ratio of an input's scale to the output's, and the first that is too large."""
PRODUCT_RATIOS = 2.0**-16, 2.0**8
"""Of a product: the same of the product of both inputs' scales to the output's."""

BYTE_RATIOS = 2.0**-8, 2.0**7
"""Of factors with 8 bits behind the point: the least ratio of the input's scale to the output's, and the largest."""
HIGHEST_RANK = 6
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def takes(call: Call) -> bool:
    """Whether XNNPACK takes the node, whose operator and types it knows."""
    if max(len(tensor.shape) for tensor in (*call.operands, *call.outputs)) > HIGHEST_RANK:
        return False
    if call.option(OPTION, "NONE") not in ACTIVATIONS:
        return False
    condition = CONDITIONS.get(call.node.op)
    return condition is None or condition(call)


def _within(ratio: np.float32, limits: tuple[float, float]) -> bool:
    return bool(limits[0] <= ratio < limits[1])


def _is_byte_ratio(ratio: np.float32) -> bool:
    return bool(BYTE_RATIOS[0] <= ratio <= BYTE_RATIOS[1])


def _sum(call: Call) -> bool:
    return all(_within(scale(tensor) / scale(call.output), SUM_RATIOS) for tensor in call.operands)


def _product(call: Call) -> bool:
    a, b = call.operands
    return _within(scale(a) * scale(b) / scale(call.output), PRODUCT_RATIOS)


def _has_bias(call: Call) -> bool:
    return call.given(2)


def _quantize(call: Call) -> bool:
    data, output = call.tensor(0), call.output
    return data.dtype == "float32" or (data.dtype == output.dtype and _is_byte_ratio(scale(data) / scale(output)))


def _leaky_relu(call: Call) -> bool:
    ratio = scale(call.tensor(0)) / scale(call.output)
    slope = ratio * np.float32(call.option("alpha", 0.0))
    return _is_byte_ratio(ratio) and _is_byte_ratio(abs(slope)) and bool(slope >= BYTE_RATIOS[0] - BYTE_RATIOS[1])


def _batch_matmul(call: Call) -> bool:
    return zero(call.tensor(1)) == 0


CONDITIONS: Mapping[str, Callable[[Call], bool]] = {
    "ADD": _sum,
    "BATCH_MATMUL": _batch_matmul,
    "DEPTHWISE_CONV_2D": _has_bias,
    "LEAKY_RELU": _leaky_relu,
    "MUL": _product,
    "QUANTIZE": _quantize,
    "SUB": _sum,
}
"""Operator -> whether XNNPACK takes a node of it."""
