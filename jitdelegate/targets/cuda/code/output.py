"""The end of a kernel: applies the epilogue to the results and stores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.element import Element, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue


class Run(NamedTuple):
    """Neighbouring columns of a row whose sums a thread holds.

    Attributes:
        row, column: distance of the first one from the thread's first row and column.
        sums: their numbers among the thread's sums.
    """

    row: int
    column: int
    sums: slice

    @property
    def width(self) -> int:
        return int(self.sums.stop - self.sums.start)


def runs(starts: Iterable[tuple[int, int]], width: int) -> list[Run]:
    """Runs of `width` columns that begin at these rows and columns; sums are numbered in this order."""
    return [Run(row, column, slice(at * width, (at + 1) * width)) for at, (row, column) in enumerate(starts)]


@dataclass(frozen=True, slots=True)
class Held:
    """The sums that a thread holds in a tile, from row `row` and column `column` on."""

    row: Value
    column: Value
    runs: Sequence[Run]

    @property
    def rows(self) -> list[int]:
        """Distances of the thread's rows from the first one."""
        return list(dict.fromkeys(run.row for run in self.runs))

    @property
    def columns(self) -> list[int]:
        """Distances of the thread's columns from the first one."""
        runs = [run for run in self.runs if run.row == self.runs[0].row]
        return [run.column + at for run in runs for at in range(run.width)]

    def by_row(self, sums: Sequence[Value]) -> list[list[Value]]:
        """The sums of each row."""
        return [[one for run in self.runs if run.row == row for one in sums[run.sums]] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Output:
    """An output of pixels and channels.

    Attributes:
        base: pointer to the output, stored as `element`.
        extra: pointers to the epilogue operands.
        pitch: elements between neighbouring pixels.
    """

    code: Code
    epilogue: Epilogue
    element: Element
    base: Value
    extra: Sequence[Value]
    pitch: Value

    def store(
        self, results: Sequence[Value], pixel: Value, channel: Value, at: int = 0, start: Value | None = None
    ) -> None:
        """Applies the epilogue to the results for neighbouring channels of one pixel, from `channel + at` on, and
        stores them.

        Args:
            start: the pixel's first element in memory; without it, pixels are `pitch` elements apart.
        """
        start = pixel * self.pitch if start is None else start
        values = self.applied(results, pixel, channel + at)
        store(self.code, self.element, values, self.base, start + channel + at)

    def store_inside(
        self,
        results: Sequence[Value],
        run: int,
        exists: Value,
        columns: Value,
        pixel: Value,
        column: Value,
        start: Value,
    ) -> None:
        """Stores the results for neighbouring columns of one pixel, if it `exists`, in pieces of at most `run` that lie
        completely inside or outside the first `columns` columns."""
        run = min(run, len(results))
        for at in range(0, len(results), run):
            with self.code.when(exists & (column + at < columns)):
                self.store(results[at : at + run], pixel, column, at, start)

    def applied(self, results: Sequence[Value], pixel: Value, channel: Value) -> list[Value]:
        """The results for neighbouring channels of one pixel, after the epilogue."""
        return self.epilogue.apply(self.code, results, pixel, channel, self.extra)


def added(parts: Sequence[Sequence[Value]]) -> list[Value]:
    """Equally many sums of several parts, added up in a fixed order of the parts."""
    return [reduce_tree(values, lambda a, b: a + b) for values in zip(*parts, strict=True)]
