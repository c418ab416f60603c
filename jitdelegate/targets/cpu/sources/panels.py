"""Panels: the matrix that data are multiplied by, as register tiles read it.

A panel is up to four vectors of output channels: [bias][scales][steps of K][vectors * lanes][channels of a step]. Where
parts of K have scales of their own, each part is followed by a line of them, so that memory is read in its order.
Panels of constants are packed when the model is compiled, by `pack`; those of computed matrices when a chunk meets
them, by a `pack_function`: into the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import stored
from jitdelegate.targets.cpu.code.kernel import Generator, Kernel, split
from jitdelegate.targets.cpu.code.shuffles import interleaved, joined, transposed
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value, vector
from jitdelegate.targets.cpu.multiply.products import QUAD, Products


@dataclass(frozen=True)
class PackedLines:
    """The lines of a packed panel, which begins at `at`."""

    products: Products
    vectors: int
    at: Value

    def bias(self) -> list[Value]:
        """The bias of each channel, from the line at the panel's beginning."""
        f, nbytes = self.at.function, self.products.bias_bytes
        return [f.load(self.products.result_type, self.at + v * nbytes, 64) for v in range(self.vectors)]

    def scales(self, at: Value) -> list[Value]:
        """A scale of each channel, from the line of scales at `at`."""
        nbytes = self.products.scale_bytes
        return [self.products.scale(at.function, at + v * nbytes) for v in range(self.vectors)]

    @property
    def scales_bytes(self) -> int:
        """Bytes of a line of scales."""
        return self.products.scales_bytes(self.vectors)

    def start(self, *, has_bias: bool = True, has_scales: bool = False) -> Value:
        """What follows the bias and a line of scales."""
        return self.at + (has_bias * self.vectors * self.products.bias_bytes + has_scales * self.scales_bytes)

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
        masked: whether the last vector of the only panel is not full, and results are stored with a mask.
        halved: whether only half of that vector is multiplied.
    """

    start: int
    vectors: int
    count: int
    masked: bool
    halved: bool = False

    def columns(self, all_columns: int, lanes: int) -> int:
        """Columns of each panel."""
        return min(self.vectors * lanes, all_columns - self.start * lanes)


def panel_groups(
    products: Products, columns: int, *, masked: bool = False, halved: bool = False, widest: int = 0
) -> tuple[PanelGroup, ...]:
    """All columns as panels of nearly equal widths; `masked` and `halved` apply to the last one.

    Args:
        widest: vectors of the widest panel; 0 means those of the widest tile.
    """
    start, groups, vectors = 0, list[PanelGroup](), -(-columns // products.lanes)
    for width, count in split(vectors, widest or len(products.rows)):
        last = int((masked or halved) and start + width * count == vectors)
        for number, is_last in ((count - last, False), (last, True)):
            if number:
                groups.append(PanelGroup(start, width, number, masked and is_last, halved and is_last))
                start += number * width
    return tuple(groups)


@dataclass(frozen=True)
class Constant:
    """Packed panels in the weights, with so many quads of steps, and single steps after them. `offset` is the number
    of their place, as `Generator.number_of` gives it.

    A group begins at a position, and its panels are some bytes apart. At a position, a panel has an address for tiles.
    """

    products: Products
    groups: tuple[PanelGroup, ...]
    offset: int
    quads: int
    singles: int

    def first(self, kernel: Kernel, group: PanelGroup) -> Value:
        before = sum(self.apart(other) * other.count for other in self.groups if other.start < group.start)
        return kernel.constants(self.offset, before)

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
class Packing:
    """A packing function.

    Attributes:
        dtype: the matrix's type.
        depth: elements of a column.
        columns: number of columns; lanes after them in the last vector are arbitrary.
        row: bytes between rows of the matrix as it lies in memory.
        is_transposed: it lies as [columns, depth].
        zero: the data's zero point, as the products read it.
    """

    products: Products
    dtype: str
    vectors: int
    depth: int
    columns: int
    row: int
    is_transposed: bool
    zero: int = 0

    @property
    def steps(self) -> int:
        return -(-self.depth // self.products.channels)

    @property
    def has_bias(self) -> bool:
        """Whether the panel begins with a line of bias, which takes the zero point from the sums."""
        return self.zero + self.products.offset != 0

    @property
    def nbytes(self) -> int:
        """Bytes of the panel."""
        return self.vectors * (self.has_bias * self.products.bias_bytes + self.steps * self.products.weight_bytes)


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
            factors = products.stored_scales(lines(scales, rows, (products.scales, width), "float32"))
            parts = [heads, *_with_scales(products, vectors, products.arranged(panel, turns), factors)]
            nbytes = products.panel_bytes(vectors, *size)
            parts.append(np.zeros(nbytes - sum(part.nbytes for part in parts), np.uint8))
            yield from (part for part in parts if part.size)

    sources = [steps, *(order for order, _ in orders), *(part for part in (bias, scales) if part is not None)]
    return generator.weights.pack(("panels", products.key, *widths, *(turns for _, turns in orders)), sources, panels)


def _with_scales(products: Products, vectors: int, weights: np.ndarray, scales: np.ndarray) -> list[np.ndarray]:
    """What follows the bias of a panel: each part of the weights, and its scales behind it; a single line of scales is
    before them."""
    if not products.scales:
        return [weights]
    parts = [
        np.ascontiguousarray(part).reshape(-1).view(np.uint8).reshape(len(scales), -1) for part in (weights, scales)
    ]
    rest = np.zeros((len(scales), products.scales_bytes(vectors) - parts[1].shape[1]), np.uint8)
    if products.scales == 1:
        return [parts[1], rest, weights]
    return [np.concatenate([*parts, rest], 1)]


def pack_function(generator: Generator, packing: Packing) -> str:
    """The name of `void pack(matrix, panel)`, which is written on first use."""
    return generator.once("pack", packing, lambda name: _PackFunction(generator, packing, name).write())


class _PackFunction:
    """A packing function that is being written."""

    def __init__(self, generator: Generator, packing: Packing, name: str) -> None:
        self.packing, self.products, self.lanes = packing, packing.products, generator.lanes
        self.channels, self.element = packing.products.channels, stored(packing.dtype)
        self.nbytes, self.line = ELEMENT_TYPES[packing.dtype].nbytes, packing.vectors * self.products.weight_bytes
        self.f = generator.module.function(name, [("matrix", POINTER), ("panel", POINTER)])

    def write(self) -> None:
        """Writes the whole function."""
        matrix, panel = self.f.parameters
        weights = panel + self.packing.has_bias * self.packing.vectors * self.products.bias_bytes
        (self._transpose if self.packing.is_transposed else self._copy)(matrix, weights)
        if self.packing.has_bias:
            self._write_bias(panel, weights)
        self.f.finish()

    def _store(self, step: Value, to: Value) -> None:
        """Stores a step of a vector of columns, channel by channel."""
        step = self.products.as_stored(self.f, step, self.packing.dtype)
        self.f.store(step, to, self.products.weight_bytes)

    def _copy(self, matrix: Value, to: Value) -> None:
        f, packing = self.f, self.packing
        tail, type_ = packing.columns % self.lanes, vector(self.lanes, self.element)
        mask = f.first_lanes(f.index(tail), self.lanes) if tail else None

        def load(at: Value, v: int) -> Value:
            is_last = v == packing.vectors - 1
            return f.load_masked(type_, at + v * self.lanes * self.nbytes, mask if is_last else None, self.nbytes)

        def step(_: Value, matrix: Value, to: Value, count: int = self.channels) -> list[Value]:
            for v in range(packing.vectors):
                rows = [load(matrix + channel * packing.row, v) for channel in range(count)]
                rows += [f.literal(type_, 0)] * (self.channels - count)
                self._store(joined(f, interleaved(f, rows)), to + v * self.products.weight_bytes)
            return [matrix + self.channels * packing.row, to + self.line]

        steps, left = divmod(packing.depth, self.channels)
        matrix, to = f.loop(steps, step, matrix, to) if steps else (matrix, to)
        if left:
            step(f.index(0), matrix, to, left)

    def _transpose(self, matrix: Value, to: Value) -> None:
        """Transposes one vector of columns at a time; the columns are rows of the matrix."""
        f, packing = self.f, self.packing
        full, tail = divmod(packing.columns, self.lanes)

        def one(_: Value, matrix: Value, to: Value) -> list[Value]:
            self._transpose_vector(matrix, to, self.lanes)
            return [matrix + self.lanes * packing.row, to + self.products.weight_bytes]

        matrix, to = f.loop(full, one, matrix, to) if full else (matrix, to)
        if tail:
            self._transpose_vector(matrix, to, tail)

    def _transpose_vector(self, matrix: Value, to: Value, rows: int) -> None:
        """Makes `rows` rows into that many lanes; the other lanes repeat the last row."""
        f, elements = self.f, QUAD * self.channels
        quads, left = divmod(self.packing.depth, elements)

        def quad(_: Value, matrix: Value, to: Value, count: int = elements) -> list[Value]:
            for k, step in enumerate(self._quad(matrix, rows, count)[: -(-count // self.channels)]):
                self._store(step, to + k * self.line)
            return [matrix + elements * self.nbytes, to + QUAD * self.line]

        matrix, to = f.loop(quads, quad, matrix, to) if quads else (matrix, to)
        if left:
            quad(f.index(0), matrix, to, left)

    def _quad(self, matrix: Value, rows: int, count: int) -> list[Value]:
        """`count` elements of all rows as steps, one vector for each."""
        parts, pieces = self.lanes // QUAD, []
        for first in range(QUAD):
            distances = [min(first + QUAD * part, rows - 1) * self.packing.row for part in range(parts)]
            pieces.append(joined(self.f, [self._piece(matrix + distance, count) for distance in distances]))
        steps, type_ = transposed(self.f, pieces), vector(self.lanes * self.channels, self.element)
        return [step if step.type == type_ else self.f.cast("bitcast", step, type_) for step in steps]

    def _piece(self, at: Value, count: int) -> Value:
        """Four steps of a row, of which `count` elements are read; all channels of a step are one number."""
        f, elements = self.f, QUAD * self.channels
        mask = f.first_lanes(f.index(count), elements) if count < elements else None
        piece = f.load_masked(vector(elements, self.element), at, mask, self.nbytes)
        if self.channels == 1:
            return piece
        return f.cast("bitcast", piece, vector(QUAD, f"i{8 * self.channels * self.nbytes}"))

    def _write_bias(self, panel: Value, weights: Value) -> None:
        """Minus the products of the weights and a row of zero points."""
        f, packing, products = self.f, self.packing, self.products
        bits, lines = 8 * products.step_bytes // self.channels, packing.vectors
        word = sum((packing.zero & ((1 << bits) - 1)) << (bits * channel) for channel in range(self.channels))
        row = Value(f, POINTER, f.module.table([word]))

        def step(_: Value, at: Value, *sums: Value) -> list[Value]:
            data, (line,) = products.data(f, row), products.lines(f, at, lines, 1)
            return [at + self.line, *(products.add(f, data, *pair) for pair in zip(line, sums, strict=True))]

        _, *sums = f.loop(packing.steps, step, weights, *[f.literal(products.sum_type, 0)] * lines)
        for number, total in enumerate(sums):
            bias = f.literal(products.result_type, 0) - products.widened(f, total)
            f.store(bias, panel + number * products.bias_bytes, products.bias_bytes)
