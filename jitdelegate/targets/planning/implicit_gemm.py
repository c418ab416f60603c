"""Geometry of implicit GEMM: which pixels meet which taps of the filter. Also strides between a batch's matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.forms import Contract, Shape


@dataclass(frozen=True, slots=True)
class AxisPhase:
    """Output rows (or columns) that meet the same taps.

    For t < size, output row first + step * t reads data row start + stride * t + spacing * j for the j-th of `taps`.
    """

    size: int
    first: int
    step: int
    start: int
    stride: int
    spacing: int
    taps: slice


@dataclass(frozen=True, eq=False)
class GridPhase:
    """Output pixels that meet the same taps; `weights` are f32[O, kh, kw, I] of these taps only."""

    rows: AxisPhase
    columns: AxisPhase
    weights: np.ndarray


def grid_phases(form: Contract, target: Sequence[int], weights: np.ndarray) -> Iterator[GridPhase]:
    """One phase; for a transposed convolution, one per (output row mod stride, output column mod stride).

    Args:
        target: the output's shape as an image.
        weights: f32[O, kh, kw, I], from `filters_of`.
    """
    for rows in _along(form, 0, target[1]):
        for columns in _along(form, 1, target[2]):
            yield GridPhase(rows, columns, weights[:, rows.taps][:, :, columns.taps])


def _along(form: Contract, axis: int, size: int) -> Iterator[AxisPhase]:
    """The phases along `axis` (0 for H, 1 for W) of `size` output pixels."""
    stride, padding = form.stride[axis], form.padding[2 * axis]
    if not form.transposed:
        yield AxisPhase(size, 0, 1, -padding, stride, form.dilation[axis], slice(0, None))
        return
    for first in range(min(stride, size)):
        # Tap rest + stride * j adds source row (first + padding) // stride + t - j to output row first + stride * t.
        start, rest = divmod(first + padding, stride)
        yield AxisPhase(len(range(first, size, stride)), first, stride, start, 1, -1, slice(rest, None, stride))


def filters_of(weights: np.ndarray) -> np.ndarray:
    """A Contract's weights as f32[O, kh, kw, I]; matrices f32[O, I] get a 1x1 kernel."""
    return weights if weights.ndim == 4 else weights[:, None, None]


def permuted(numbers: Sequence[int], order: Sequence[int]) -> Shape:
    """One number per axis in another order of axes; without `order`, in the same one."""
    return tuple(numbers[axis] for axis in order) if order else tuple(numbers)


def matrix_strides(shape: Shape, distances: Sequence[int], count: int) -> list[int]:
    """Distances between matrices along a product's `count` leading axes; 0 where the operand of `shape` is repeated.

    Args:
        distances: distance between neighbours along each axis of the operand, in any unit.
    """
    own = [0 if size == 1 else far for size, far in zip(shape[:-2], distances, strict=False)]
    return [0] * (count - len(own)) + own
