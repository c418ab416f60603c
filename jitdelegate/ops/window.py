"""The geometry of windows that slide over images: TFLite's output sizes and paddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.ops.call import Call

EXPLICIT_PADDING = "explicit_padding"
"""Our own option, set by `passes.fuse_pad`: (top, bottom, left, right) zeros around the image, before `padding`."""

Attributes = Mapping[str, Any]
Pair = tuple[int, int]
Borders = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window of `kernel` over an image, pairs as (h, w), padding as (top, bottom, left, right)."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Borders
    output: Pair

    @property
    def geometry(self) -> dict[str, Any]:
        """The fields of `ir.forms.Window`."""
        return {name: getattr(self, name) for name in ("kernel", "stride", "dilation", "padding")}


def stride(attrs: Attributes) -> Pair:
    """(h, w); the schema's default is 0, which no operator accepts."""
    return int(attrs.get("stride_h", 0)), int(attrs.get("stride_w", 0))


def dilation(attrs: Attributes) -> Pair:
    """(h, w)."""
    return int(attrs.get("dilation_h_factor", 1)), int(attrs.get("dilation_w_factor", 1))


def slide(image: Pair, kernel: Pair, attrs: Attributes) -> Sliding:
    """TFLite's placement: SAME covers the image and puts the odd zero at the bottom and right, VALID pads nothing."""
    borders = attrs.get(EXPLICIT_PADDING, (0, 0, 0, 0))
    strides, dilations, same = stride(attrs), dilation(attrs), attrs.get("padding", "SAME") == "SAME"
    output, padding = [], []
    for axis in (0, 1):
        before, after = borders[2 * axis], borders[2 * axis + 1]
        size, step, reach = image[axis] + before + after, strides[axis], (kernel[axis] - 1) * dilations[axis] + 1
        count = -(-(size if same else size - reach + 1) // step)
        zeros = max(0, (count - 1) * step + reach - size) if same else 0
        output.append(max(count, 0))
        padding += [before + zeros // 2, after + zeros - zeros // 2]
    return Sliding(kernel, strides, dilations, _borders(padding), (output[0], output[1]))


def slide_back(image: Pair, output: Pair, kernel: Pair, attrs: Attributes) -> Borders:
    """The rows and columns that a transposed convolution crops at (top, bottom, left, right); negative where zeros
    extend the output."""
    same = attrs.get("padding", "SAME") == "SAME"
    padding: list[int] = []
    for axis, step in enumerate(stride(attrs)):
        count = -(-output[axis] // step)
        before = max(0, (count - 1) * step + kernel[axis] - output[axis]) // 2 if same else 0
        padding += [before, (image[axis] - 1) * step + kernel[axis] - output[axis] - before]
    return _borders(padding)


def _borders(padding: list[int]) -> Borders:
    top, bottom, left, right = padding
    return top, bottom, left, right


def window_problems(call: Call) -> Iterator[str]:
    """Reasons to refuse the options of a sliding window."""
    name, attrs = call.node.op, call.node.attrs
    if attrs.get("padding", "SAME") not in ("SAME", "VALID"):
        yield f"{name} with padding {attrs['padding']} is not supported."
    if min(stride(attrs)) < 1:
        yield f"{name}: the strides are {list(stride(attrs))}, expected at least 1."
    if min(dilation(attrs)) < 1:
        yield f"{name}: the dilation factors are {list(dilation(attrs))}, expected at least 1."


def patches(image: np.ndarray, window: Sliding, fill: float) -> Iterator[tuple[int, int, np.ndarray]]:
    """For every tap (ky, kx) of the window, what it reads: an array [N, output h, output w, C] of `image`'s type."""
    top, bottom, left, right = window.padding
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    (sy, sx), (dy, dx), (h, w) = window.stride, window.dilation, window.output
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            y, x = ky * dy, kx * dx
            yield ky, kx, padded[:, y : y + (h - 1) * sy + 1 : sy, x : x + (w - 1) * sx + 1 : sx]
