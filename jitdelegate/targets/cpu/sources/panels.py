"""Panels: the matrix that data are multiplied by, as register tiles read it.

A panel is up to four vectors of output channels: [bias][scales][steps of K][vectors * lanes][channels of a step]. There
is a line of scales for each part of K that has its own. Panels of constants are packed when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from jitdelegate.targets.cpu.code.kernel import Generator, Kernel, split
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.sources.packing import Packing, pack_function


@dataclass(frozen=True)
class PackedLines:
    """The lines of a packed panel, which begins at `at`."""

    products: Products
    vectors: int
    at: Value

    def head(self, number: Value | int) -> list[Value]:
        """A number of each channel, from a line at the panel's beginning."""
        f, nbytes, at = self.at.function, self.products.bias_bytes, self.start(number)
        return [f.load(self.products.result_type, at + v * nbytes, 64) for v in range(self.vectors)]

    def start(self, heads: Value | int) -> Value:
        """What follows so many lines of numbers."""
        return self.at + heads * (self.vectors * self.products.bias_bytes)

    def lines(self, at: Value, steps: int) -> Iterator[list[Sequence[Value]]]:
        """The weights of all vectors at each of the next steps, which have `nbytes`."""
        return self.products.lines(at.function, at, self.vectors, steps)

    def nbytes(self, steps: int) -> int:
        return self.vectors * self.products.line_bytes(steps)


@dataclass(frozen=True)
class MatrixLines:
    """The lines of a panel in place: columns of a matrix of floats, whose rows are `row` bytes apart. The last vector
    of a row is read with `mask`."""

    products: Products
    vectors: int
    row: int
    mask: Value | None

    def lines(self, at: Value, steps: int) -> Iterator[list[Sequence[Value]]]:
        f, nbytes = at.function, self.products.weight_bytes

        def load(at: Value, v: int) -> Value:
            mask = self.mask if v == self.vectors - 1 else None
            return f.load_masked(self.products.sum_type, at + v * nbytes, mask)

        for k in range(steps):
            yield [[load(at + k * self.row, v)] for v in range(self.vectors)]

    def nbytes(self, steps: int) -> int:
        return steps * self.row


PanelLines = PackedLines | MatrixLines


@dataclass(frozen=True)
class PanelGroup:
    """Panels of equal width and code, one after another.

    Attributes:
        start: vectors of columns before the first one.
        masked: whether the last vector of the only panel is not full.
    """

    start: int
    vectors: int
    count: int
    masked: bool

    def columns(self, all_columns: int, lanes: int) -> int:
        """Columns of each panel."""
        return min(self.vectors * lanes, all_columns - self.start * lanes)


def panel_groups(products: Products, columns: int, *, masked: bool = False, wider: int = 1) -> tuple[PanelGroup, ...]:
    """All columns as panels of nearly equal widths; `masked` applies to the last one.

    Args:
        wider: how many times as wide as the widest tile the widest panel may be.
    """
    start, groups, vectors = 0, list[PanelGroup](), -(-columns // products.lanes)
    for width, count in split(vectors, wider * len(products.rows)):
        last = int(masked and start + width * count == vectors)
        for number, is_masked in ((count - last, False), (last, True)):
            if number:
                groups.append(PanelGroup(start, width, number, is_masked))
                start += number * width
    return tuple(groups)


@dataclass(frozen=True)
class Constant:
    """Packed panels in the weights, from byte `offset` on, with so many quads of steps, and single steps after them.

    A group begins at a position, and its panels are some bytes apart. At a position, a panel has an address for tiles.
    """

    products: Products
    groups: tuple[PanelGroup, ...]
    offset: int
    quads: int
    singles: int

    def first(self, kernel: Kernel, group: PanelGroup) -> Value:
        before = sum(self.apart(other) * other.count for other in self.groups if other.start < group.start)
        return kernel.constants(self.offset + before)

    def apart(self, group: PanelGroup) -> int:
        return self.products.panel_bytes(group.vectors, self.quads, self.singles)

    def at(self, kernel: Kernel, group: PanelGroup, position: Value) -> Value:
        return position


@dataclass(frozen=True)
class Unpacked(Constant):
    """Packed panels in the weights that are converted, at `scratch` bytes into the scratch memory."""

    scratch: int

    def at(self, kernel: Kernel, group: PanelGroup, position: Value) -> Value:
        f, target, blocks = kernel.f, kernel.scratch + self.scratch, self.products.scales
        name = self.products.unpack_function(kernel.generator, group.vectors, self.quads, self.singles)
        f.call(name, position, target, *map(f.index, (blocks, self.quads // max(blocks, 1), self.singles)))
        return target


@dataclass(frozen=True)
class InPlace:
    """Panels of a matrix of floats where it lies, at `pointer`, with columns `column` bytes apart."""

    pointer: Value
    column: int

    def first(self, kernel: Kernel, group: PanelGroup) -> Value:
        return self.pointer + group.start * kernel.generator.lanes * self.column

    def apart(self, group: PanelGroup) -> int:
        return group.vectors * self.pointer.function.module.machine.lanes * self.column

    def at(self, kernel: Kernel, group: PanelGroup, position: Value) -> Value:
        return position


@dataclass(frozen=True)
class Packed(InPlace):
    """Panels that are packed when they are met, at `scratch` bytes into the scratch memory.

    Attributes:
        packing: of a panel; its width and columns are those of each group.
        columns: all columns of the matrix.
    """

    packing: Packing
    columns: int
    scratch: int

    def at(self, kernel: Kernel, group: PanelGroup, position: Value) -> Value:
        generator = kernel.generator
        columns = group.columns(self.columns, generator.lanes)
        packing = replace(self.packing, vectors=group.vectors, columns=columns)
        generator.reserve_scratch(self.scratch + packing.nbytes)
        target = kernel.scratch + self.scratch
        kernel.f.call(pack_function(generator, packing), position, target)
        return target


Panels = Constant | InPlace
Order = tuple[np.ndarray, int]
"""Numbers of steps in the order of a panel, and how many turns of the main loop come first."""


def sizes_of(orders: Sequence[Order], products: Products) -> tuple[int, int]:
    """Turns of the main loop and single steps for which each panel has memory."""
    turns = min(turns for _, turns in orders)
    return turns, len(orders[0][0]) - turns * products.turn


def pack(
    generator: Generator,
    products: Products,
    groups: Sequence[PanelGroup],
    steps: np.ndarray,
    orders: Sequence[Order],
    bias: np.ndarray | None = None,
    scales: np.ndarray | None = None,
) -> int:
    """Panels of weights [O, steps, channels of a step], scales [O, blocks] and bias [O]; their offset.

    Args:
        orders: of the steps in each panel, or in all of them.
    """
    size = sizes_of(orders, products)
    widths = [group.vectors for group in groups for _ in range(group.count)]

    def lines(values: np.ndarray | None, rows: slice, shape: tuple[int, int], dtype: str) -> np.ndarray:
        padded = np.zeros(shape, dtype)
        if values is not None:
            padded[:, : len(values[rows])] = values[rows].T
        return padded

    def panels() -> Iterator[np.ndarray]:
        first = 0
        for vectors, (order, turns) in zip(widths, cycle(orders), strict=False):
            width = vectors * products.lanes
            rows = slice(first, first := first + width)
            weights = steps[rows].swapaxes(0, 1)
            weights = weights if np.array_equal(order, np.arange(len(order))) else weights[order]
            panel = np.zeros((len(order), width, products.channels), products.stored)
            panel[:, : weights.shape[1]] = weights
            heads = lines(bias, rows, (1, width), products.accumulator)
            factors = lines(scales, rows, (products.scales, width), "float32")
            parts = [heads, factors, products.arranged(panel, turns)]
            nbytes = products.panel_bytes(vectors, *size)
            parts.append(np.zeros(nbytes - sum(part.nbytes for part in parts), np.uint8))
            yield from (part for part in parts if part.size)

    sources = [steps, *(order for order, _ in orders), *(part for part in (bias, scales) if part is not None)]
    return generator.weights.pack(("panels", products.key, *widths, *(turns for _, turns in orders)), sources, panels)
