"""Products by multiply-adds of tiles of float32 or int32 in shared memory: a thread reads four neighbouring numbers at
a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.code.output import Held, runs

FLOAT = 4
QUAD = 4
"""Neighbouring numbers in one access to shared memory."""


@dataclass(frozen=True, slots=True)
class Quads:
    """A thread's `count` rows or columns of a tile whose lines lie `pitch` bytes apart in shared memory. `threads`
    threads share out rows or columns, one by one, or by fours where they are neighbours.

    Attributes:
        first: the thread's first row or column.
        turned: whether lines are numbers of K; otherwise they are rows or columns.
        kind: LLVM's type of the numbers, F32 or I32.
    """

    code: Code
    first: Value
    threads: int
    count: int
    pitch: int
    turned: bool
    kind: Any = F32

    @staticmethod
    def of(code: Code, number: Value, threads: int, count: int, pitch: int, *, turned: bool, kind: Any = F32) -> Quads:
        """The rows or columns of thread `number` of those that share out all of a tile."""
        return Quads(code, number * QUAD if turned else number, threads, count, pitch, turned, kind)

    @property
    def neighbours(self) -> int:
        """The thread's rows or columns that follow each other."""
        return QUAD if self.turned else 1

    @property
    def starts(self) -> range:
        """Distances of the first of neighbours from `first`."""
        return range(0, self.count * self.threads, self.threads * self.neighbours)

    def steps(self, tile: Value, number: Value | int) -> Iterator[list[Value]]:
        """For each of four numbers of K, from `number` on, those of all rows or columns.

        Args:
            tile: shared address of the tile.
        """
        load = self.code.load
        if self.turned:
            start = tile + self.first * FLOAT + number * self.pitch
            for line in range(0, QUAD * self.pitch, self.pitch):
                yield [one for at in self.starts for one in load(start, line + at * FLOAT, self.kind, QUAD)]
            return
        start = tile + self.first * self.pitch + number * FLOAT
        quads = [load(start, at * self.pitch, self.kind, QUAD) for at in self.starts]
        yield from (list(numbers) for numbers in zip(*quads, strict=True))

    def multiplied(self, a: Value, b: Value, total: Value) -> Value:
        """The total after one product; of floats it is rounded once."""
        return self.code.fma(a, b, total) if self.kind == F32 else a * b + total


def held(left: Quads, right: Quads, row: Value | int = 0, column: Value | int = 0) -> Held:
    """The sums of a thread with these rows, counted from `row` on, and columns."""
    rows = [start + at for start in left.starts for at in range(left.neighbours)]
    sums = runs(product(rows, right.starts), right.neighbours)
    return Held(left.first + row, right.first + column, sums)


def add(
    sums: Sequence[Value], left: Quads, right: Quads, tiles: tuple[Value, Value], numbers: Sequence[Value | int]
) -> list[Value]:
    """The sums, by row and column, after four products of each from each of these numbers of K on.

    Args:
        tiles: shared addresses of both tiles.
    """
    totals = list(sums)
    for number in numbers:
        for rows, columns in zip(left.steps(tiles[0], number), right.steps(tiles[1], number), strict=True):
            totals = [left.multiplied(a, b, c) for (a, b), c in zip(product(rows, columns), totals, strict=True)]
    return totals


@dataclass(frozen=True, slots=True)
class ThreadTile:
    """The part of a contraction's tiles that one thread multiplies: its rows and columns, over its slice of K.

    Attributes:
        skipped: distance of the slice from the start of each tile, in bytes.
        steps: numbers of K of the slice.
        held: the sums of the thread.
    """

    left: Quads
    right: Quads
    skipped: tuple[Value, Value]
    steps: int
    held: Held

    def nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""
        return [self.left.code.real(0.0)] * (self.left.count * self.right.count)

    def accumulate(
        self, sums: Sequence[Value], left: Value, right: Value, meanwhile: Callable[[], None] | None = None
    ) -> list[Value]:
        """The sums after this thread's part of the tiles at two shared addresses; `meanwhile` writes the code before
        it."""
        if meanwhile:
            meanwhile()
        tiles = left + self.skipped[0], right + self.skipped[1]
        return add(sums, self.left, self.right, tiles, range(0, self.steps, QUAD))
