"""Operators that reduce a sliding window of an image, channel by channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import RESULT, Cast, clamp, substitute, unary
from jitdelegate.ir.forms import Pool
from jitdelegate.ops.call import OPTION, Call, Shape, activated, given
from jitdelegate.ops.case import Case
from jitdelegate.ops.convolution import image_problems
from jitdelegate.ops.pointwise import X, mapped
from jitdelegate.ops.quantization import limits, same_scale_problems
from jitdelegate.ops.registry import BYTES, HALF, Lowering, Op, op
from jitdelegate.ops.rounding import AWAY, rounding
from jitdelegate.ops.window import Sliding, patches, slide, window_problems


def _case(shape: Shape, kernel: tuple[int, int], stride: tuple[int, int], padding: str, activation: str) -> Case:
    sizes = {"filter_height": kernel[0], "filter_width": kernel[1], "stride_h": stride[0], "stride_w": stride[1]}
    return Case((shape,), {**sizes, "padding": padding, OPTION: activation})


class Pooling(Op):
    """A window over an NHWC image, with a fused activation; elements outside the image do not count."""

    folds = 0
    activates = True
    kind: ClassVar[str]
    quantized: ClassVar[tuple[str, ...]] = (*BYTES, "int16")
    cases: ClassVar[tuple[Case, ...]] = (
        _case((1, 8, 8, 4), (2, 2), (2, 2), "VALID", "NONE"),
        _case((1, 9, 7, 17), (3, 3), (2, 2), "SAME", "RELU"),
        _case((2, 7, 7, 5), (7, 7), (1, 1), "VALID", "NONE"),
        _case((1, 8, 6, 16), (3, 3), (2, 2), "SAME", "NONE"),
        _case((1, 5, 6, 3), (3, 2), (1, 3), "SAME", "RELU6"),
        _case((1, 6, 6, 3), (1, 1), (2, 2), "VALID", "RELU_N1_TO_1"),
    )

    def window(self, image: Sequence[int], attrs: Mapping[str, Any]) -> Sliding:
        """How the window slides over an image of shape [N, H, W, C]."""
        kernel = int(attrs.get("filter_height", 0)), int(attrs.get("filter_width", 0))
        return slide((image[1], image[2]), kernel, attrs)

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        yield from window_problems(call)
        sizes = [call.option("filter_height", 0), call.option("filter_width", 0)]
        if min(sizes) < 1:
            yield f"{self.name}: the window's size is {sizes}, expected at least 1."
        if 0 in self.window(call.shape(0), call.node.attrs).output:
            yield f"{self.name}: a window of {sizes} does not fit into the input's shape {list(call.shape(0))}."

    def shape(self, call: Call) -> Shape:
        batch, _, _, channels = call.shape(0)
        return (batch, *self.window(call.shape(0), call.node.attrs).output, channels)

    def work(self, call: Call) -> int:
        window = int(call.option("filter_height", 1)) * int(call.option("filter_width", 1))
        return prod(call.output.shape) * window

    def lowering(self, call: Call) -> Lowering | tuple[Lowering, ...]:
        window = self.window(call.shape(0), call.node.attrs)
        return Lowering(Pool(self.epilogue(call), (), **window.geometry, kind=self.kind), (call.index(0),))

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from same_scale_problems(call, call.tensor(0), call.output)

    def quantized_lowering(self, call: Call) -> Lowering:
        """The stored numbers are pooled as they are: input and output have the same scale. LiteRT adds up 32 bits, also
        of int16, whose sums then wrap in a window of more than 65,535 elements."""
        window = self.window(call.shape(0), call.node.attrs)
        dtype = call.output.dtype
        low, high = limits(call.output, call.option(OPTION, "NONE"), self.limit_rounding(call))
        result = Cast(clamp(RESULT, low, high), dtype)
        form = Pool(result, (), **window.geometry, kind=self.kind, accumulator="int32")
        return Lowering(form, (call.index(0),))

    def limit_rounding(self, call: Call) -> str:
        """How the limits of a fused activation are rounded to stored numbers."""
        return AWAY

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        return [activated(attrs.get(OPTION, "NONE"), self.pooled(data, self.window(data.shape, attrs)))]

    def pooled(self, data: np.ndarray, window: Sliding) -> np.ndarray:
        """The reduced windows, before the activation."""
        raise NotImplementedError


def means(data: np.ndarray, window: Sliding) -> np.ndarray:
    """The mean of the part of every window that lies inside the image, in float64."""
    total = sum(seen for _, _, seen in patches(data.astype(np.float64), window, 0))
    count = sum(seen for _, _, seen in patches(np.ones_like(data), window, 0))
    return np.asarray(total / count)


@op("AVERAGE_POOL_2D")
class AveragePool2D(Pooling):
    """The mean of the part of the window that lies inside the image."""

    kind = "mean"
    narrow = HALF

    def pooled(self, data: np.ndarray, window: Sliding) -> np.ndarray:
        return means(data, window)


@op("MAX_POOL_2D")
class MaxPool2D(Pooling):
    """The largest value of the part of the window that lies inside the image."""

    kind = "max"

    def limit_rounding(self, call: Call) -> str:
        return rounding(call, call.output.dtype)

    def pooled(self, data: np.ndarray, window: Sliding) -> np.ndarray:
        return np.asarray(np.maximum.reduce([seen for _, _, seen in patches(data, window, -np.inf)]))


@op("L2_POOL_2D")
class L2Pool2D(Pooling):
    """The root of the mean of squares of the part of the window that lies inside the image."""

    kind = "mean"
    quantized = ()

    def lowering(self, call: Call) -> Lowering:
        shape, window = call.shape(0), self.window(call.shape(0), call.node.attrs)
        squares = mapped(X * X, (call.index(0), shape), shape=shape)
        root = substitute(self.epilogue(call), [unary("sqrt", RESULT)])
        return Lowering(Pool(root, (), **window.geometry, kind=self.kind), (squares,))

    def pooled(self, data: np.ndarray, window: Sliding) -> np.ndarray:
        return np.asarray(np.sqrt(means(data.astype(np.float64) ** 2, window)))
