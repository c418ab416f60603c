"""Operands of tensor cores from tiles in shared memory: a warp's part of a contraction's swizzled tiles, and tiles that
lie as their matrices do in memory, in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.code.output import Held, runs
from jitdelegate.targets.cuda.multiply.tensor_core import (
    STEP,
    Operand,
    Padded,
    SharedLines,
    Swizzle,
    load_matrices,
    multiply,
    rounded,
)

FRAGMENT = 8
"""Columns of a fragment of sums."""
WIDTH = 16
"""Rows of a left operand, and columns of the two right operands that are loaded at once."""
PAIR = 2
"""Neighbouring columns of a fragment that a thread holds."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """Loads and multiplies operands of one K step: 16 halves, or 8 tf32, of 16 rows or columns.

    Attributes:
        lane: number of this thread in its warp.
        whole_steps: as in `tensor_core.multiply`.
    """

    code: Code
    operand: Operand
    lane: Value
    whole_steps: bool

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return self.operand.element.nbytes

    @property
    def down(self) -> Value:
        """The row of a left operand, or the column of a right one, that this thread holds; of eight."""
        return self.lane >> 2

    @property
    def across(self) -> Value:
        """The number that this thread holds, of four."""
        return self.lane & 3

    def held(self, row: Value, column: Value, rows: int, columns: int) -> Held:
        """The sums of this thread, of a warp that has so many rows and columns, multiples of 16, from `row` and
        `column` on: four of each fragment of 16 rows and 8 columns."""
        fragments = product(range(0, rows, WIDTH), range(0, columns, FRAGMENT), (0, FRAGMENT))
        starts = ((down + half, across) for down, across, half in fragments)
        return Held(row + self.down, column + self.across * PAIR, runs(starts, PAIR))

    def left_offset(self, layout: Swizzle | Padded, row: Value | int = 0) -> Value:
        """Offset from a tile's start, in bytes, where this lane reads 16 rows from `row` on; or 16 columns of a turned
        tile."""
        return layout.offset((self.lane & 15) + row, self.lane >> 4)

    def right_offset(self, layout: Swizzle | Padded, column: Value | int = 0) -> Value:
        """The same for 16 columns, or for 16 rows of a turned tile."""
        return layout.offset((self.lane & 7) + ((self.lane >> 4) << 3) + column, (self.lane >> 3) & 1)

    def left(self, tile: SharedLines, row: int, number: int) -> list[Value]:
        """The operand of 16 rows, from number `number` on."""
        start = tile.address(row, number, self.item)
        if tile.turned and self.operand is Operand.TF32:
            start = start + self.across * tile.pitch + self.down * self.item
            offsets = [far * tile.pitch + row * self.item for far in (0, 4) for row in (0, FRAGMENT)]
            return self.rounded([self.code.load(start, at)[0] for at in offsets])
        offset = (self.right_offset if tile.turned else self.left_offset)(Padded(tile.pitch))
        return self.rounded(load_matrices(self.code, start + offset, transposed=tile.turned))

    def right(self, tile: SharedLines, column: int, number: int, *, paired: bool = False) -> list[Value]:
        """The operand of 16 columns, from number `number` on.

        Args:
            paired: of tf32, this thread's two numbers of a column are neighbours, not four apart.
        """
        start = tile.address(column, number, self.item)
        if self.operand is Operand.TF32 and (tile.turned or paired):
            return self._singles(tile, start, paired=paired)
        offset = (self.left_offset if tile.turned else self.right_offset)(Padded(tile.pitch))
        return self.rounded(load_matrices(self.code, start + offset, transposed=tile.turned))

    def _singles(self, tile: SharedLines, start: Value, *, paired: bool) -> list[Value]:
        """16 columns of tf32, read without `ldmatrix`: two numbers of this thread of one column, and of the one eight
        columns later."""
        if not tile.turned:
            start = start + self.down * tile.pitch + self.across * (2 * self.item)
            columns = [self.code.load(start, at, F32, 2) for at in (0, FRAGMENT * tile.pitch)]
            return self.rounded([number for column in columns for number in column])
        lines = [self.across * 2, self.across * 2 + 1] if paired else [self.across, self.across + 4]
        starts = [start + line * tile.pitch + self.down * self.item for line in lines]
        return self.rounded([self.code.load(one, at)[0] for at in (0, FRAGMENT * self.item) for one in starts])

    def rounded(self, registers: list[Value]) -> list[Value]:
        """The numbers as tensor cores take them."""
        return rounded(self.code, self.operand, registers)

    def add(
        self, sums: list[Value], rows: Sequence[Sequence[Value]], columns: Sequence[Sequence[Value]], first: int = 0
    ) -> None:
        """Adds the products of left operands, of 16 rows, and of right ones, of 8 or 16 columns, to fragments of four
        sums, from fragment number `first` on; the fragments of the same rows are together."""
        halves = [own[at : at + 2] for own in columns for at in range(0, len(own), 2)]
        for fragment, (row, half) in enumerate(product(rows, halves), first):
            own = slice(4 * fragment, 4 * fragment + 4)
            sums[own] = multiply(self.code, self.operand, row, half, sums[own], whole_steps=self.whole_steps)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """The part of swizzled tiles that one warp multiplies: `rows` x `columns` sums over its share of a tile's K.

    Attributes:
        rows, columns: multiples of 16.
        steps: K steps of this warp, a power of two.
        starts: offsets in the tiles where this lane reads left and right operands.
        held: the sums of this thread.
        zero: a word of four times the zero point of the weights; None without one. Further fragments then are the sums
            of the data times it, until `centred` subtracts them.
    """

    fragments: Fragments
    layout: Swizzle
    rows: int
    columns: int
    steps: int
    starts: tuple[Value, Value]
    held: Held
    zero: Value | None = None

    @staticmethod
    def of(
        fragments: Fragments, layout: Swizzle, size: tuple[int, int, int], row: Value, column: Value, part: Value
    ) -> WarpTile:
        """The part of a warp.

        Args:
            size: rows, columns and steps.
            row, column: the first ones.
            part: number of this warp's share of K.
        """
        shift = part * (size[2] * STEP)
        offsets = fragments.left_offset(layout, row), fragments.right_offset(layout, column)
        held = fragments.held(row, column, *size[:2])
        return WarpTile(fragments, layout, *size, (offsets[0] ^ shift, offsets[1] ^ shift), held)

    def nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""
        zero = self.fragments.code.constant(self.fragments.operand.sums.dtype, 0)
        further = 0 if self.zero is None else FRAGMENT
        return [zero] * (self.rows * (self.columns + further) // 32)

    def accumulate(
        self, sums: Sequence[Value], left: Value, right: Value, meanwhile: Callable[[], None] | None = None
    ) -> list[Value]:
        """The sums after this warp's share of a tile's K.

        Args:
            left, right: shared addresses of the tiles.
            meanwhile: writes code that runs while the first matrices are loaded to registers.
        """
        totals, fragments = list(sums), self.fragments
        for step in range(self.steps):
            rows = self._matrices(left, self.starts[0] ^ (step * STEP), self.rows)
            columns = self._matrices(right, self.starts[1] ^ (step * STEP), self.columns)
            if meanwhile and step == 0:
                meanwhile()
            fragments.add(totals, [fragments.rounded(row) for row in rows], columns)
            if self.zero is not None:
                fragments.add(totals, rows, [[self.zero] * 2], len(self.held.runs) // 2)
        return totals

    def centred(self, sums: Sequence[Value]) -> list[Value]:
        """The sums less those of the data times the weights' zero point."""
        if self.zero is None:
            return list(sums)
        count = self.rows * self.columns // 32
        own, less = sums[:count], sums[count:]
        pairs = ((own[run.sums], less[run.row // 4 :]) for run in self.held.runs)  # a thread has two of each eight rows
        return [a - b for run, row in pairs for a, b in zip(run, row, strict=False)]

    def _matrices(self, tile: Value, start: Value, count: int) -> list[list[Value]]:
        pitch = self.layout.row_bytes
        return [load_matrices(self.fragments.code, tile + start + at * pitch) for at in range(0, count, WIDTH)]
