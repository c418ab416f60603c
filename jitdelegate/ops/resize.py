"""Operators that resample the H and W of an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir import forms
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case, ints
from jitdelegate.ops.convolution import image_problems
from jitdelegate.ops.quantization import same_scale_problems
from jitdelegate.ops.registry import FLOATS, HALF, Lowering, Op, op
from jitdelegate.ops.rounding import FUSED, rounding

MAX_SIZE = 1 << 20
"""Most rows or columns of a result: a table in the program holds the source of each, 24 bytes a row."""


def scale(size: int, count: int, align_corners: bool) -> np.float32:
    """The distance between `count` samples over `size` pixels; TFLite computes it in float32."""
    if align_corners and count > 1:
        return np.float32(size - 1) / np.float32(count - 1)
    return np.float32(size) / np.float32(count)


def nearest_places(size: int, count: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """int64[count]: the index of the pixel, of `size` pixels, that each sample reads."""
    positions = np.arange(count, dtype=np.float32) + np.float32(0.5 if half_pixel_centers else 0)
    exact = positions * scale(size, count, align_corners)
    rounded = np.floor(exact + np.float32(0.5)) if align_corners else np.floor(exact)
    return np.asarray(np.clip(rounded.astype(np.int64), 0, size - 1))


def bilinear_places(
    size: int, count: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each of `count` samples the lower and the upper of the two pixels that it mixes, int64[count] each, and the
    weight of the upper pixel, float32[count]."""
    positions, step = np.arange(count, dtype=np.float32), scale(size, count, align_corners)
    half = np.float32(0.5)
    exact = (positions + half) * step - half if half_pixel_centers else positions * step
    lower = np.clip(np.floor(exact).astype(np.int64), 0, size - 1)  # rounding must not lead beyond the last pixel
    upper = np.minimum(np.ceil(exact).astype(np.int64), size - 1)
    return lower, np.maximum(upper, 0), (exact - lower.astype(np.float32)).astype(np.float32)


def fixed_places(
    size: int, count: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `bilinear_places`, but for positions in whole 1024ths of a pixel, as LiteRT calculates them for integers."""
    ends = align_corners and count > 1
    pixels, steps = (size - 1, count - 1) if ends else (size, count)
    step = (1024 * pixels + steps // 2) // steps
    exact = np.arange(count, dtype=np.int64) * step
    if half_pixel_centers:
        exact = exact + (step // 2 - 512)
    lower = np.clip(exact >> 10, 0, size - 1)
    upper = np.clip((exact + 1023) >> 10, 0, size - 1)
    return lower, upper, exact - 1024 * lower


def sample_places(form: forms.Resize, size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `bilinear_places`, with the form's weights: float32, or whole 1024ths or 2048ths as int64.

    A nearest sample is both pixels, and the weight is 0.
    """
    options = size, count, form.align_corners, form.half_pixel_centers
    if form.kind == "nearest":
        nearest = nearest_places(*options)
        return nearest, nearest, np.zeros(count, np.float32)
    if form.weights == "fixed10":
        return fixed_places(*options)
    lower, upper, weight = bilinear_places(*options)
    if form.weights == "fixed11":
        return lower, upper, np.rint(np.maximum(weight, 0) * 2048).astype(np.int64)
    return lower, upper, weight


def _is_every_pixel(form: forms.Resize, size: int, count: int) -> bool:
    """Whether the samples are the pixels themselves, in order."""
    lower, _, weight = sample_places(form, size, count)
    return np.array_equal(lower, np.arange(size)) and not weight.any()


class Resizing(Op):
    """Operands (NHWC image, [height, width]); options `align_corners` and `half_pixel_centers`."""

    least = most = 2
    parameters = (1,)
    quantized = ("int8", "uint8", "int16")
    kind: ClassVar[str]
    cases = tuple(
        Case(((2, height, width, 5), ints(*size)), options)
        for height, width, size in ((4, 5, (8, 10)), (5, 7, (9, 3)), (1, 3, (4, 6)), (6, 6, (1, 1)), (3, 3, (3, 3)))
        for options in ({}, {"align_corners": True}, {"half_pixel_centers": True})
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from image_problems(call, 0)
        size = call.integers(1)
        if call.shape(1) != (2,) or min(size) < 1:
            yield f"{self.name}: the size is {list(size)}, expected two positive numbers."
        if max(size) > MAX_SIZE:
            yield f"{self.name}: the size is {list(size)}, expected at most {MAX_SIZE}."
        both = call.option("align_corners", False) and call.option("half_pixel_centers", False)
        if both and self.kind == "bilinear":
            yield f"{self.name} with both align_corners and half_pixel_centers is not supported."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from same_scale_problems(call, call.tensor(0), call.output)

    def shape(self, call: Call) -> Shape:
        batch, _, _, channels = call.shape(0)
        return (batch, *call.integers(1), channels)

    def lowering(self, call: Call) -> Lowering:
        align, half = bool(call.option("align_corners", False)), bool(call.option("half_pixel_centers", False))
        form = forms.Resize(kind=self.kind, align_corners=align, half_pixel_centers=half)
        same = all(_is_every_pixel(form, *sizes) for sizes in zip(call.shape(0)[1:3], call.integers(1), strict=True))
        return Lowering(forms.View() if same else form, (call.index(0),))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, size = given(arrays)
        options = bool(attrs.get("align_corners")), bool(attrs.get("half_pixel_centers"))
        for axis, count in ((1, int(size[0])), (2, int(size[1]))):
            data = self.resampled(data, axis, count, options)
        return [np.asarray(data).astype(given(arrays)[0].dtype)]

    def resampled(self, data: np.ndarray, axis: int, count: int, options: tuple[bool, bool]) -> np.ndarray:
        """The data with `count` samples along `axis`."""
        raise NotImplementedError


@op("RESIZE_BILINEAR")
class ResizeBilinear(Resizing):
    """Every sample mixes the four pixels around it."""

    kind = "bilinear"

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from super().quantized_problems(call)
        if rounding(call, call.output.dtype) == FUSED:
            yield f"RESIZE_BILINEAR of {call.output.dtype} is supported on {call.graph.quantized.cpu} in XNNPACK only."

    def quantized_lowering(self, call: Call) -> Lowering:
        lowering = self.lowering(call)
        if not isinstance(lowering.form, forms.Resize):
            return lowering
        return replace(lowering, form=replace(lowering.form, weights=rounding(call, call.output.dtype)))

    def resampled(self, data: np.ndarray, axis: int, count: int, options: tuple[bool, bool]) -> np.ndarray:
        lower, upper, part = bilinear_places(data.shape[axis], count, *options)
        shape = [1] * data.ndim
        shape[axis] = count
        weight = part.reshape(shape).astype(np.float64)
        return np.take(data, lower, axis) * (1 - weight) + np.take(data, upper, axis) * weight


@op("RESIZE_NEAREST_NEIGHBOR")
class ResizeNearestNeighbor(Resizing):
    """Every sample is one pixel."""

    kind = "nearest"
    types = (*FLOATS, *Resizing.quantized)
    narrow = HALF
    cases = (
        *Resizing.cases,
        *(
            Case(((1, 3, 5, 2), ints(*size)), {"align_corners": True, "half_pixel_centers": True})
            for size in ((3, 5), (7, 2), (1, 9))
        ),
    )

    def resampled(self, data: np.ndarray, axis: int, count: int, options: tuple[bool, bool]) -> np.ndarray:
        return np.take(data, nearest_places(data.shape[axis], count, *options), axis)
