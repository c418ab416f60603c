"""MatMul on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.multiply.fragments import FRAGMENT, WIDTH, Fragments
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, Operand, await_copies, commit_copies
from jitdelegate.targets.cuda.sources.line_loader import LineLoader, Lines, LineTile
from jitdelegate.targets.cuda.sources.matrix_loader import Side
from jitdelegate.targets.cuda.walks.matmul_product import OperandLines, ProductKernel, ProductTemplate

PAIR = 2
"""Neighbouring columns of a fragment that a thread holds."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """The tile of a block: `rows` by `columns`, `row_bytes` of K at a time, divided among `warps` down and
    across."""

    rows: int
    columns: int
    warps: tuple[int, int]
    row_bytes: int

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps)

    @property
    def products(self) -> float:
        """Multiplications that a multiprocessor begins per cycle; loads of matrices from shared memory limit it."""
        rows, columns = self.rows // self.warps[0], self.columns // self.warps[1]
        return 16 * rows * columns / (rows + columns)


MMA_TILES = (
    MmaTile(128, 64, (4, 1), 64),
    MmaTile(64, 64, (2, 2), 64),
    MmaTile(32, 64, (2, 2), 64),
    MmaTile(32, 32, (2, 1), 64),
    MmaTile(16, 32, (1, 1), 64),
)
"""Large tiles first: of equally good tiles the first is chosen."""


@dataclass(frozen=True, eq=False, slots=True)
class MmaProduct(ProductTemplate):
    """A product on tensor cores. Tiles lie in shared memory as in device memory, in a ring of slots.

    Attributes:
        whole_steps: whether the GPU has whole mma steps and asynchronous copies.
    """

    family: ClassVar[str] = "matmul_mma"
    uses_tensor_cores: ClassVar[bool] = True
    tile: MmaTile
    operand: Operand
    whole_steps: bool

    @property
    def steps(self) -> int:
        return self.tile.row_bytes // self.operand.element.nbytes

    @property
    def tiles(self) -> tuple[LineTile, LineTile]:
        """The tiles of a and b; lines are rows or columns, or steps where these are neighbours in memory."""
        sides = (self.left, self.tile.rows), (self.right, self.tile.columns)
        left, right = (
            LineTile(
                side.element,
                self.operand.element,
                *((lines, self.steps) if side.along_depth else (self.steps, lines)),
                side.width,
                self.tile.threads,
                self.whole_steps,
            )
            for side, lines in sides
        )
        return left, right

    @property
    def slots(self) -> int:
        return 3 if any(tile.copies for tile in self.tiles) else 2

    @property
    def slot_bytes(self) -> int:
        return sum(tile.nbytes for tile in self.tiles)

    @property
    def ring_bytes(self) -> int:
        return self.slots * self.slot_bytes

    @property
    def is_asynchronous(self) -> bool:
        return all(tile.copies for tile in self.tiles)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaProductKernel(code, self, *arguments).write()


class MmaProductKernel(ProductKernel):
    """Writes the kernel for tensor cores. A slot holds the tile of a, then that of b."""

    def __init__(self, code: Code, template: MmaProduct, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.shape, tile = template, template.tile
        self.lane, warp = self.thread & 31, self.thread >> 5
        self.rows, self.columns = tile.rows // tile.warps[0], tile.columns // tile.warps[1]
        self.row, self.column = warp // tile.warps[1] * self.rows, warp % tile.warps[1] * self.columns
        self.fragments = Fragments(code, template.operand, self.lane, template.whole_steps)
        self.loaders = [
            LineLoader(code, lines, self._lines(side, one), self.thread, self.shared + at * template.tiles[0].nbytes)
            for at, (lines, side, one) in enumerate(
                zip(template.tiles, (template.left, template.right), self.operands, strict=True)
            )
        ]

    def _lines(self, side: Side, operand: OperandLines) -> Lines:
        """The block's lines of an operand."""
        rest, depth = operand.count - operand.first, self.sizes.depth
        if side.along_depth:
            return Lines(operand.data, operand.start + operand.first * operand.pitch, operand.pitch, rest, depth)
        return Lines(operand.data, operand.start + operand.first, operand.pitch, depth, rest)

    def _sums(self) -> list[Value]:
        code, shape = self.code, self.shape
        ahead, last = shape.slots - 1, (shape.slots - 1) * shape.slot_bytes
        for number in range(ahead):
            place = number * shape.slot_bytes
            self._finish_tile(self._begin_tile(code.integer(number), place), place)
        initial = [code.integer(0), *[code.real(0.0)] * (self.rows * self.columns // 32)]
        with code.carried(self.tiles, initial) as (tile, now, following):
            slot = now[0]
            self._await(ahead - 1)
            code.barrier()
            before = code.select(slot.equals(0), last, slot - shape.slot_bytes)  # read by all in the turn before
            loaded = self._begin_tile(tile + ahead, before)
            following[1:] = self._accumulate(now[1:], slot)
            self._finish_tile(loaded, before)
            following[0] = code.select(slot.equals(last), 0, slot + shape.slot_bytes)
        self._await(0)
        return following[1:]

    def _begin_tile(self, tile: Value, slot: Value | int) -> list[list[Value]]:
        """Begins to load a tile of this slice to a slot."""
        step, zero = (self.first_tile + tile) * self.shape.steps, self.code.integer(0)
        sides = (self.shape.left, self.shape.right)
        loaded = [
            loader.begin(zero if side.along_depth else step, step if side.along_depth else zero, slot)
            for loader, side in zip(self.loaders, sides, strict=True)
        ]
        if any(tile.copies for tile in self.shape.tiles):
            commit_copies(self.code)
        return loaded

    def _finish_tile(self, loaded: Sequence[list[Value]], slot: Value | int) -> None:
        for loader, values in zip(self.loaders, loaded, strict=True):
            loader.finish(values, slot)

    def _await(self, unfinished: int) -> None:
        """Waits for all tiles that were begun, except the last ones."""
        if any(tile.copies for tile in self.shape.tiles):
            await_copies(self.code, unfinished)

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after the tile in a slot."""
        shape, found = self.shape, list(sums)
        tiles, item = shape.tiles, shape.operand.element.nbytes
        bases = [
            self.shared + slot + at * tiles[0].nbytes + line * (tiles[at].pitch if side.along_depth else item)
            for at, (side, line) in enumerate(((shape.left, self.row), (shape.right, self.column)))
        ]
        for number in range(0, shape.steps, STEP // item):
            left = [self._left(bases[0], row, number) for row in range(0, self.rows, WIDTH)]
            right = [self._right(bases[1], column, number) for column in range(0, self.columns, WIDTH)]
            for down, rows in enumerate(left):
                for across, columns in enumerate(right):
                    first = down * (self.columns // FRAGMENT) + across * 2
                    self.fragments.multiply(found, first, rows, columns)
        return found

    def _left(self, base: Value, row: int, number: int) -> list[Value]:
        pitch = self.shape.tiles[0].pitch
        if self.shape.left.along_depth:
            return self.fragments.left(base + row * pitch, pitch, number)
        return self.fragments.left_turned(base + row * self.fragments.item, pitch, number)

    def _right(self, base: Value, column: int, number: int) -> list[Value]:
        pitch = self.shape.tiles[1].pitch
        if self.shape.right.along_depth:
            return self.fragments.right(base + column * pitch, pitch, number)
        return self.fragments.right_turned(base + column * self.fragments.item, pitch, number)

    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums, two neighbouring columns at a time, as a thread holds them."""
        across = self.columns // FRAGMENT
        first_row = self.first_row + self.row + self.fragments.down
        first_column = self.first_column + self.column + self.fragments.across * PAIR
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            row = first_row + (fragment // across * WIDTH + half * FRAGMENT)
            self._store(sums[at : at + 2], row, first_column + fragment % across * FRAGMENT, self.shape.run)
