"""The register tile: sums of the products of some rows of data and the vectors of a panel. They stay in registers
during the loop over K.

Rows of data have the addresses of their next steps at a position, and the position after a turn of so many steps.
Neighbouring steps of a turn are `apart` bytes apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Value
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.cpu.sources.panels import PackedLines, PanelLines

STACK_ALIGN = 16
"""Stack alignment in bytes that the calling convention guarantees; more would cost a register for the frame."""

FEW_SUMS = 4
"""Sums whose totals stay in registers."""
UNDER_WAY = 10
"""Products that a core computes at the same time, each of which takes several cycles."""

Loops = Sequence[tuple[Value | int, int]]
"""Loops over K, one after another: (turns, steps of a turn)."""


def loops_over(steps: int) -> Loops:
    """The loops over so many steps, four in a turn."""
    return [(turns, size) for turns, size in ((steps // QUAD, QUAD), (1, steps % QUAD)) if turns and size]


def sets_of(count: int) -> int:
    """Sets of `count` sums for which a core always has enough to do."""
    return max(1, min(QUAD, UNDER_WAY // count))


@dataclass(frozen=True)
class Pixels:
    """Rows that begin anywhere, as pixels of an image do. The position is that in a table, which has the offset of each
    turn from the beginning of a row. One offset for all rows and fixed displacements: a row costs one general
    register."""

    rows: Sequence[Value]
    apart: int

    def addresses(self, position: Value) -> list[Value]:
        offset = position.function.load(INDEX, position, 8)
        return [row + offset for row in self.rows]

    def after(self, position: Value, steps: int) -> Value:
        return position + 8


@dataclass(frozen=True)
class Lines:
    """`count` rows of a matrix, `pitch` bytes apart. The position is that in the first one."""

    count: int
    pitch: int
    apart: int

    def addresses(self, position: Value) -> list[Value]:
        return [position + row * self.pitch for row in range(self.count)]

    def after(self, position: Value, steps: int) -> Value:
        return position + steps * self.apart


DataRows = Pixels | Lines


@dataclass(frozen=True)
class RegisterTile:
    """A register tile. Its state is the position in the panel, the position in the data, and a sum for each row and
    vector, row by row.

    Attributes:
        sets: sets of sums, to which the steps of a turn add one after another: few sums would wait for each other's
            products.
        scales: the panel where the weights of each segment are followed by scales of its sums; else None.
    """

    products: Products
    data: DataRows
    panel: PanelLines
    sets: int = 1
    scales: PackedLines | None = None

    @staticmethod
    def stack(f: Function, products: Products, count: int) -> Value:
        """Memory for the totals of `walk_in_segments`: so many vectors of results."""
        return f.emit(POINTER, f"alloca [{count * products.total_bytes} x i8], align {STACK_ALIGN}")

    def walk(self, state: Sequence[Value], loops: Loops) -> list[Value]:
        """The state after some steps of K."""
        for turns, steps in loops:
            f = state[0].function
            state = f.loop(turns, lambda _, *state, steps=steps: self._multiply(state, steps), *state)
        return list(state)

    def _multiply(self, state: Sequence[Value], steps: int) -> list[Value]:
        products, size = self.products, len(state) - 2
        weights, position, *sums = state
        f = weights.function
        readers = products.readers(f, self.data.addresses(position), self.data.apart, steps)
        for k, line in enumerate(self.panel.lines(weights, steps)):
            start = k * len(readers) * len(line) % size
            for row, read in enumerate(readers):
                data, first, last = read(k), start + row * len(line), start + (row + 1) * len(line) - 1
                if sums[first].type != sums[last].type:
                    data = [f.opaque(each) for each in data]
                for number, factors in enumerate(line, first):
                    sums[number] = products.add(f, data, factors, sums[number])
        return [weights + self.panel.nbytes(steps), self.data.after(position, steps), *sums]

    def walk_in_sets(self, state: Sequence[Value], loops: Loops) -> list[Value]:
        """As `walk`, with several sets of sums on the way."""
        weights, position, *sums = state
        zero, count = weights.function.literal(self.products.sum_type, 0), len(sums)
        weights, position, *sums = self.walk([*state, *[zero] * (count * (self.sets - 1))], loops)
        return [weights, position, *(_total(sums[number::count]) for number in range(count))]

    def walk_in_segments(
        self, state: Sequence[Value], stack: Value, segments: Sequence[tuple[Value | int, Loops]]
    ) -> list[Value]:
        """As `walk`, for segments of K, each of which is summed on its own: their number and the loops of one. The
        totals are results. Many are kept on the `stack`, since the registers are full."""
        products, type_ = self.products, self.products.total_type
        f, zeros, zero = stack.function, state[2:], stack.function.literal(type_, 0)
        stays = len(zeros) <= FEW_SUMS
        places = [] if stays else [stack + number * products.total_bytes for number in range(len(zeros))]
        for place in places:
            f.store(zero, place, STACK_ALIGN)

        def segment(_: Value, *state: Value, loops: Loops) -> list[Value]:
            weights, position, *sums = self.walk([*state[:2], *zeros], loops)
            scales = self.scales.scales(weights) if self.scales else []
            following = [weights + self.scales.scales_bytes if self.scales else weights, position]
            for number, part in enumerate(sums):
                total = state[2 + number] if stays else f.load(type_, places[number], STACK_ALIGN)
                part = products.widened(f, part)
                total = f.fma(part, scales[number % len(scales)], total) if scales else total + part
                if stays:
                    following.append(total)
                else:
                    f.store(total, places[number], STACK_ALIGN)
            return following

        found = [*state[:2], *([zero] * len(zeros) if stays else [])]
        for count, loops in segments:
            found = f.loop(count, partial(segment, loops=loops), *found)
        return [*found, *(f.load(type_, place, STACK_ALIGN) for place in places)]


def _total(parts: Sequence[Value]) -> Value:
    first, *others = parts
    for other in others:
        first = first + other
    return first
