"""Shared parts of the kernels for products of two matrices computed at run time.

The kernels copy tiles of K to slots of shared memory, where they lie as in device memory, first a's tile and then b's:
while one tile is multiplied, the next ones are loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.output import Held, Output
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.multiply.tensor_core import SharedLines, await_copies, commit_copies
from jitdelegate.targets.cuda.sources.line_loader import LineLoader, Lines, LineTile


class ProductSizes(NamedTuple):
    """Rows, columns and depth of a product, the number of tiles along its rows, and the elements between stored rows of
    a, b and the output."""

    rows: Number
    columns: Number
    depth: Number
    down: Number
    left: Number
    right: Number
    output: Number


class ProductAxis(NamedTuple):
    """A leading axis: its size, and its strides in a, b and the output, in elements."""

    size: Number
    left: Number
    right: Number
    output: Number


@dataclass(frozen=True, slots=True)
class Side:
    """The memory layout of one operand's matrices; its lines are the rows or columns of the product.

    Attributes:
        along_depth: True if the steps of a line are neighbours in memory, False if the lines of a step are.
        width: elements of one access; it divides the number of steps or lines that are contiguous.
    """

    element: Element
    along_depth: bool
    width: int


class ProductTile(Protocol):
    """The tile of a block: `rows` by `columns`.

    Attributes:
        products: multiplications that a multiprocessor begins per cycle.
    """

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def products(self) -> float: ...


@dataclass(frozen=True, eq=False, slots=True)
class ProductTemplate(Template):
    """Products of pairs of matrices.

    Attributes:
        left, right: memory layouts of the operands.
        output: element type of the results.
        run: neighbouring columns that are stored together.
        axes: number of leading axes, after merging as in `matmul.Product`.
        has_async_copy: whether the GPU has asynchronous copies, and whole mma steps.
    """

    awaits_launches: ClassVar[bool] = True
    tile: ProductTile
    left: Side
    right: Side
    output: Element
    run: int
    axes: int
    epilogue: Epilogue
    has_async_copy: bool

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of K in a slot of shared memory."""

    @property
    @abstractmethod
    def stored(self) -> Element:
        """The type of elements in shared memory."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of slots of the ring of tiles in shared memory."""

    @property
    def is_integer(self) -> bool:
        """Whether sums are int32."""
        return self.epilogue.dtype == "int32"

    @property
    def is_asynchronous(self) -> bool:
        """Whether several tiles are on their way, and none goes through registers."""
        return False

    @property
    def tiles(self) -> tuple[LineTile, LineTile]:
        """The tiles of a and b; lines are rows or columns, or steps where these are neighbours in memory."""
        return self._tile(self.left, self.tile.rows), self._tile(self.right, self.tile.columns)

    def _tile(self, side: Side, lines: int) -> LineTile:
        size = (lines, self.steps) if side.along_depth else (self.steps, lines)
        return LineTile(side.element, self.stored, *size, side.width, self.tile.threads, self.has_async_copy)

    @property
    def slot_bytes(self) -> int:
        return sum(tile.nbytes for tile in self.tiles)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all slots."""
        return self.slots * self.slot_bytes

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        zero: tuple[Kind, ...] = ("int32",) * self.is_integer
        return "pointer", ("pointer", "pointer"), extra, ProductSizes, (ProductAxis,) * self.axes, zero


class ProductKernel(ABC):
    """Writes the kernel of one template, except the multiplication.

    Attributes:
        held: the sums of this thread.
    """

    held: Held

    def __init__(
        self,
        code: Code,
        template: ProductTemplate,
        output: Value,
        operands: Sequence[Value],
        extra: Sequence[Value],
        sizes: ProductSizes,
        axes: Sequence[ProductAxis],
        zero: Sequence[Value],
    ) -> None:
        """Args:
        zero: the zero point of integers of a.
        """
        self.code, self.template, self.sizes = code, template, sizes
        self.output = Output(code, template.epilogue, template.output, output, extra, sizes.columns)
        tile = template.tile
        self.thread = code.special("tid.x")
        block = code.special("ctaid.x")
        self.number = block // sizes.down
        self.first_row = block % sizes.down * tile.rows
        self.first_column = code.special("ctaid.y") * tile.columns
        self.turns = (sizes.depth + (template.steps - 1)) // template.steps
        left, right, self.start = self._starts(axes)
        self.sides = template.left, template.right
        shared = code.dynamic_shared()
        self.addresses = shared, shared + template.tiles[0].nbytes
        self.copies = any(tile.copies for tile in template.tiles)
        lines = (
            self._lines(template.left, operands[0], left, self.first_row, sizes.rows, sizes.left, *zero),
            self._lines(template.right, operands[1], right, self.first_column, sizes.columns, sizes.right),
        )
        self.loaders = [
            LineLoader(code, tile, own, self.thread, address)
            for tile, own, address in zip(template.tiles, lines, self.addresses, strict=True)
        ]

    def _lines(
        self, side: Side, data: Value, start: Value, first: Value, count: Value, pitch: Value, zero: Value | None = None
    ) -> Lines:
        """The block's lines of an operand, from line `first` of `count` on."""
        rest, depth = count - first, self.sizes.depth
        if side.along_depth:
            return Lines(data, start + first * pitch, pitch, rest, depth, zero)
        return Lines(data, start + first, pitch, depth, rest, zero)

    def _starts(self, axes: Sequence[ProductAxis]) -> list[Value]:
        """The first elements of this block's matrices: a, b and the output."""
        rest, starts = self.number, [self.code.integer(0)] * 3
        for at, axis in reversed(list(enumerate(axes))):
            index, rest = (rest, rest) if at == 0 else (rest % axis.size, rest // axis.size)
            starts = [start + index * pitch for start, pitch in zip(starts, axis[1:], strict=True)]
        return starts

    def write(self) -> None:
        """Writes the whole kernel."""
        self.code.await_launches()
        self._finish(self._sums())

    # the ring of tiles

    def _sums(self) -> list[Value]:
        """This thread's sums over all tiles. Copies, or loads to registers, run ahead of the
        multiplications by all slots but one."""
        code, slot_bytes = self.code, self.template.slot_bytes
        ahead, last = self.template.slots - 1, (self.template.slots - 1) * slot_bytes
        for number in range(ahead):
            self._finish_tile(self._begin_tile(code.integer(number), number * slot_bytes), number * slot_bytes)
        count = sum(run.width for run in self.held.runs)
        nothing = [code.constant(self.template.epilogue.dtype, 0)] * count
        with code.carried(self.turns, [code.integer(0), *nothing]) as (tile, now, following):
            slot = now[0]
            self._await(ahead - 1)
            code.barrier()
            before = code.select(slot.equals(0), last, slot - slot_bytes)  # read by all in the turn before
            loaded = self._begin_tile(tile + ahead, before)
            following[1:] = self._accumulate(now[1:], slot)
            self._finish_tile(loaded, before)
            following[0] = code.select(slot.equals(last), 0, slot + slot_bytes)
        self._await(0)
        return following[1:]

    def _begin_tile(self, tile: Value, slot: Value | int) -> list[list[Value]]:
        """Begins to load a tile to a slot."""
        step, zero = tile * self.template.steps, self.code.integer(0)
        loaded = [
            loader.begin(zero if side.along_depth else step, step if side.along_depth else zero, slot)
            for loader, side in zip(self.loaders, self.sides, strict=True)
        ]
        if self.copies:
            commit_copies(self.code)
        return loaded

    def _finish_tile(self, loaded: Sequence[list[Value]], slot: Value | int) -> None:
        for loader, values in zip(self.loaders, loaded, strict=True):
            loader.finish(values, slot)

    def _await(self, unfinished: int) -> None:
        """Waits for all tiles that were begun, except the last ones."""
        if self.copies:
            await_copies(self.code, unfinished)

    def _tiles(self, slot: Value) -> tuple[SharedLines, SharedLines]:
        parts = zip(self.addresses, self.template.tiles, self.sides, strict=True)
        left, right = (SharedLines(address + slot, tile.pitch, not side.along_depth) for address, tile, side in parts)
        return left, right

    @abstractmethod
    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after the tile in a slot."""

    # sums to the output

    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums as the thread holds them."""
        sizes = self.sizes
        first_row, first_column = self.first_row + self.held.row, self.first_column + self.held.column
        for run in self.held.runs:
            row, column = first_row + run.row, first_column + run.column
            pixel, start = self.number * sizes.rows + row, self.start + row * sizes.output
            self.output.store_inside(
                sums[run.sums], self.template.run, row < sizes.rows, sizes.columns, pixel, column, start
            )
