"""Indirect GEMM: the sweeps of a contraction, with the pixels and taps of each and the offset of each step of K."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.planning.implicit_gemm import GridPhase, grid_phases


@dataclass(frozen=True)
class Sweep:
    """A rectangle of output pixels that meet the same taps: which pixels of A they read, and where the results go.

    Attributes:
        rows, columns: numbers of output rows and columns in this sweep.
        a_start: bytes from A's element (0,0,0,0) to the first tap of the first output pixel.
        a_row, a_pixel: bytes in A between output rows and between output pixels.
        taps: (count in y, count in x, bytes between taps in y, bytes between taps in x).
        depth: channels per tap, `a_element` bytes apart within a block of lanes; blocks are `a_block` bytes apart.
        c_start, c_row, c_pixel: as a_start, a_row, a_pixel, for the output.
        y, x, step_y, step_x: the sweep's pixel (row, column) is output pixel (y + step_y * row, x + step_x * column).
        weights: [O, K], K being the taps' channels.
    """

    rows: int
    columns: int
    a_start: int
    a_row: int
    a_pixel: int
    a_block: int
    a_element: int
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

    def tap_channels(self, products: Products) -> int:
        """Channels of a tap, with those that are padded."""
        return -(-self.depth // products.multiple) * products.multiple

    def offsets(self, products: Products) -> np.ndarray:
        """int64[steps]: offset of each step, in bytes from the first tap."""
        taps_y, taps_x, tap_y, tap_x = self.taps
        channel = np.arange(0, self.tap_channels(products), products.channels)
        if products.is_exact:
            channel = np.minimum(channel, self.depth - products.channels)
        within = channel // products.lanes * self.a_block + channel % products.lanes * self.a_element
        taps = np.arange(taps_y)[:, None] * tap_y + np.arange(taps_x) * tap_x
        return (taps[:, :, None] + within).ravel()

    def filters(self, products: Products) -> np.ndarray:
        """[O, steps, channels of a step], with those by which taps are padded."""
        outputs, taps = len(self.weights), self.taps[0] * self.taps[1]
        padding = self.tap_channels(products) - self.depth
        filters = self.weights.reshape(outputs, taps, self.depth)
        filters = products.padded(filters, padding) if padding else filters
        return filters.reshape(outputs, taps * (self.depth + padding) // products.channels, products.channels)

    def order(self, products: Products) -> tuple[np.ndarray, np.ndarray]:
        """(steps that form quads of neighbouring channels, remaining steps), both in order."""
        steps = whole = self.tap_channels(products) // products.channels
        if products.is_exact:
            whole = self.depth // products.channels
        single = np.arange(self.taps[0] * self.taps[1] * steps) % max(steps, 1) >= whole // QUAD * QUAD
        return np.flatnonzero(~single), np.flatnonzero(single)


def sweeps(form: Contract, a: Layout, c: Layout, weights: np.ndarray) -> list[Sweep]:
    """The sweeps of one group, in the order of their first taps; `weights` are f32[O, kh, kw, I]."""
    phases = grid_phases(form, c.shape, weights)
    ordered = sorted(phases, key=lambda phase: (phase.rows.taps.start, phase.columns.taps.start))
    return [_sweep(phase, a, c) for phase in ordered]


def _sweep(phase: GridPhase, a: Layout, c: Layout) -> Sweep:
    rows, columns = phase.rows, phase.columns
    outputs, taps_y, taps_x, depth = phase.weights.shape
    if not a.blocked and columns.spacing == 1 and depth * a.element == a.pixel:
        taps_x, depth = 1, depth * taps_x  # the taps of a row are contiguous
    return Sweep(
        rows=rows.size,
        columns=columns.size,
        a_start=rows.start * a.row + columns.start * a.pixel,
        a_row=rows.stride * a.row,
        a_pixel=columns.stride * a.pixel,
        a_block=a.block,
        a_element=a.element,
        taps=(taps_y, taps_x, rows.spacing * a.row, columns.spacing * a.pixel),
        depth=depth,
        c_start=rows.first * c.row + columns.first * c.pixel,
        c_row=rows.step * c.row,
        c_pixel=columns.step * c.pixel,
        weights=phase.weights.reshape(outputs, -1),
        y=rows.first,
        x=columns.first,
        step_y=rows.step,
        step_x=columns.step,
    )
