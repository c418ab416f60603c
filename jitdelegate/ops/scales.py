"""The scale and the zero point of a tensor that has one for all its elements."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.graph import Tensor


def scale(tensor: Tensor) -> np.float32:
    """The scale of a tensor that has one for all its elements."""
    assert tensor.quant is not None
    return np.float32(tensor.quant.scales[0])


def zero(tensor: Tensor) -> int:
    """The zero point of a tensor that has one for all its elements; 0 without quantization."""
    return int(tensor.quant.zero_points[0]) if tensor.is_quantized and tensor.quant else 0


def parameters(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point: equal for tensors whose stored numbers stand for the same."""
    return float(scale(tensor)), zero(tensor)


def same_axis(a: Tensor, b: Tensor) -> bool:
    """Whether the scales of both lie along the same axis, which XNNPACK looks at even where there is one scale."""
    return (a.quant.axis if a.quant else 0) == (b.quant.axis if b.quant else 0)
