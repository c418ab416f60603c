"""The walks that a contraction is made of: which pixels meet which taps, and where each step of K lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.layout import FLOAT_BYTES, Layout

QUAD = 4
"""Steps of K in one round of the main loop; what a tap has left of channels goes one by one."""


@dataclass(frozen=True)
class Sweep:
    """One rectangular walk of a contraction: which pixels of A meet which taps and where the results go.

    Attributes:
        rows, columns: output pixels of this sweep.
        a_start, a_row, a_pixel: bytes from A's element (0,0,0,0) to the first tap of the first output pixel, and
            between output rows and pixels.
        taps: (count in y, count in x, bytes between taps in y, in x).
        depth: channels per tap, contiguous but for `a_block` bytes from one block of lanes to the next.
        c_start, c_row, c_pixel: the same for the output.
        y, x, step: output row y + step * row, output column x + step * column.
        weights: f32[O, K].
    """

    rows: int
    columns: int
    a_start: int
    a_row: int
    a_pixel: int
    a_block: int
    taps: tuple[int, int, int, int]
    depth: int
    c_start: int
    c_row: int
    c_pixel: int
    weights: np.ndarray
    y: int = 0
    x: int = 0
    step_y: int = 1
    step_x: int = 1

    @property
    def pixels(self) -> int:
        return self.rows * self.columns

    def offsets(self, lanes: int) -> np.ndarray:
        """int64[K]: where each k lies, in bytes from the first tap."""
        taps_y, taps_x, tap_y, tap_x = self.taps
        channel = np.arange(self.depth)
        within = channel // lanes * self.a_block + channel % lanes * FLOAT_BYTES
        taps = np.arange(taps_y)[:, None] * tap_y + np.arange(taps_x) * tap_x
        return (taps[:, :, None] + within).ravel()

    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """The ks that make quads of neighbouring channels, in order, and those left over."""
        single = np.arange(self.taps[0] * self.taps[1] * self.depth) % max(self.depth, 1) >= self.depth // QUAD * QUAD
        return np.flatnonzero(~single), np.flatnonzero(single)


def sweeps(form: Contract, a: Layout, c: Layout, weights: np.ndarray) -> Iterator[Sweep]:
    """The sweeps of one group; `weights` are f32[O, kh, kw, I]."""
    yield from _transposed(form, a, c, weights) if form.transposed else [_direct(form, a, c, weights)]


def _direct(form: Contract, a: Layout, c: Layout, weights: np.ndarray) -> Sweep:
    kernel_y, kernel_x = form.kernel
    depth = weights.shape[3]
    taps_x = kernel_x
    if not a.blocked and form.dilation[1] == 1 and depth == a.shape[3]:
        depth, taps_x = depth * kernel_x, 1  # the taps of a row lie one after another
    return Sweep(
        rows=c.shape[1],
        columns=c.shape[2],
        a_start=-form.padding[0] * a.row - form.padding[2] * a.pixel,
        a_row=form.stride[0] * a.row,
        a_pixel=form.stride[1] * a.pixel,
        a_block=a.block,
        taps=(kernel_y, taps_x, form.dilation[0] * a.row, form.dilation[1] * a.pixel),
        depth=depth,
        c_start=0,
        c_row=c.row,
        c_pixel=c.pixel,
        weights=weights.reshape(weights.shape[0], -1),
    )


def _transposed(form: Contract, a: Layout, c: Layout, weights: np.ndarray) -> Iterator[Sweep]:
    """One sweep for each phase (output row mod stride, output column mod stride), over that phase's taps only."""
    for phase_y in _phases(c.shape[1], form.stride[0], form.padding[0], form.kernel[0]):
        for phase_x in _phases(c.shape[2], form.stride[1], form.padding[2], form.kernel[1]):
            part = weights[:, phase_y.taps][:, :, phase_x.taps]
            yield Sweep(
                rows=phase_y.count,
                columns=phase_x.count,
                a_start=phase_y.source * a.row + phase_x.source * a.pixel,
                a_row=a.row,
                a_pixel=a.pixel,
                a_block=a.block,
                taps=(part.shape[1], part.shape[2], -a.row, -a.pixel),
                depth=part.shape[3],
                c_start=phase_y.first * c.row + phase_x.first * c.pixel,
                c_row=form.stride[0] * c.row,
                c_pixel=form.stride[1] * c.pixel,
                weights=part.reshape(part.shape[0], -1),
                y=phase_y.first,
                x=phase_x.first,
                step_y=form.stride[0],
                step_x=form.stride[1],
            )


@dataclass(frozen=True)
class Phase:
    """Outputs first, first + stride, ... (`count`): output t reads input source + t - j for the j-th of `taps`."""

    first: int
    count: int
    source: int
    taps: slice


def _phases(size: int, stride: int, padding: int, kernel: int) -> Iterator[Phase]:
    for residue in range(stride):
        first = (residue - padding) % stride
        count = len(range(first, size, stride))
        if count:
            yield Phase(first, count, (first + padding - residue) // stride, slice(residue, kernel, stride))
