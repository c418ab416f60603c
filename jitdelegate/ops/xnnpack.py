"""Which quantized nodes LiteRT hands to XNNPACK by default: the others round as LiteRT's own kernels do.

Source: experiments with LiteRT 2.3 on x86-64, where the two round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from jitdelegate.ops.call import Call
from jitdelegate.ops.scales import scale

SUM_RATIOS = 2.0**-10, 2.0**8
"""Of an addition: the least ratio of an input's scale to the output's, and the first that is too large."""
PRODUCT_RATIOS = 2.0**-16, 2.0**8
"""Of a product: the same of the product of both inputs' scales to the output's."""


def takes(call: Call) -> bool:
    """Whether XNNPACK takes the node, whose operator and types it knows."""
    condition = CONDITIONS.get(call.node.op)
    return condition is None or condition(call)


def _within(ratio: np.float32, limits: tuple[float, float]) -> bool:
    return bool(limits[0] <= ratio < limits[1])


def _sum(call: Call) -> bool:
    return all(_within(scale(tensor) / scale(call.output), SUM_RATIOS) for tensor in call.operands)


def _product(call: Call) -> bool:
    a, b = call.operands
    return _within(scale(a) * scale(b) / scale(call.output), PRODUCT_RATIOS)


CONDITIONS: Mapping[str, Callable[[Call], bool]] = {"ADD": _sum, "SUB": _sum, "MUL": _product}
"""Operator -> whether XNNPACK takes a node of it."""
