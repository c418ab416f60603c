"""Maps that transpose: neighbours of the output are far apart in an operand, whose own neighbours are a loop away.

Along the output's neighbours ("along") and along the operand's ("across"), the output is written in blocks that are
transposed in registers, so that memory is read and written in whole vectors. Blocks at the end overlap the ones before
them, which writes some elements twice with the same values: nothing needs a mask. Where one side is only two to four
elements wide and dense, whole vectors are interleaved or separated instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.targets.cpu.code.element import load, stored
from jitdelegate.targets.cpu.code.kernel import ALIGN, Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.nest import Loop, Nest, indices_of, moved
from jitdelegate.targets.cpu.code.rows import job_of_rows
from jitdelegate.targets.cpu.code.shuffles import interleaved, joined, separated, transposed
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, INDEX, Function, Value, vector
from jitdelegate.targets.maths.expression import emit

PIECE_BYTES = 16
"""Bytes that one load takes from a row of the operand: shuffles within 16 bytes are the cheapest."""
FEW = 4
"""Most vectors that are interleaved or separated."""
SAME_LINES = 4096
"""Rows that lie a multiple of so many bytes apart compete for the same lines of the first-level cache. Blocks of bytes,
which have many rows, read whole lines of a few such rows instead, as none stays until the next block."""
TILE = 16, 1
"""Blocks of a tile along and across. The rows of a tile are written from end to end, which completes their lines soon,
and its columns are few enough that the next tile finds the rest of their lines in the cache."""


@dataclass(frozen=True)
class Transposition:
    """A nest as loops around a matrix that is transposed.

    Attributes:
        outer: the other loops.
        along: the loop over neighbours of the output.
        across: the loop over neighbours of the transposed operands.
        far: numbers of the transposed operands, from 1 on; the others are read as they lie, or are repeated.
    """

    nest: Nest
    outer: tuple[Loop, ...]
    along: Loop
    across: Loop
    far: tuple[int, ...]

    @classmethod
    def of(cls, nest: Nest, expr: Expr, dtype: str, element: int) -> Transposition | None:
        """The transposition that the nest is; None if it is none, or one of elements of different sizes.

        Args:
            dtype: type of the output.
            element: bytes of one of its elements.
        """
        *others, along = nest.loops
        present = [k for k, operand in enumerate(nest.operands, 1) if operand.memory]
        sizes = {nest.operands[k - 1].element for k in present}
        dtypes = {dtype, *(operand.dtype for operand in nest.operands)}
        far = tuple(k for k in present if along.steps[k] not in (0, element))
        if sizes != {element} or not far or along.steps[0] != element or ("bool" in dtypes and expr != Arg(0)):
            return None
        across = [loop for loop in others if all(loop.steps[k] == element for k in far)]
        if not across:
            return None
        widest = max(across, key=lambda loop: loop.count)
        outer = tuple(loop for loop in others if loop is not widest)
        return cls(nest, outer, along, widest, far)


@dataclass(frozen=True)
class Cover:
    """Blocks of `size` elements that cover a loop of `count`. The first and the last one may overlap their neighbours.

    shifts: whether all blocks between them may begin up to size - 1 elements earlier.
    """

    count: int
    size: int
    shifts: bool = False

    @property
    def blocks(self) -> int:
        return -(-(self.count + (self.size - 1 if self.shifts else 0)) // self.size)

    def left(self, f: Function, block: Value, most: int) -> Value | int:
        """The number of blocks from a block on, at most `most`, for a block number that `most` divides."""
        left = f.index(self.blocks) - block
        return f.select(f.compare("ult", left, most), left, f.index(most)) if self.blocks % most else most

    def start(self, f: Function, block: Value, shift: Value) -> Value:
        """The first element of a block; all but the first and the last begin `shift` elements earlier."""
        start, last = block * self.size, self.count - self.size
        if self.shifts:
            start = f.select(f.compare("eq", block, 0), block, start - shift)
        elif self.count % self.size == 0:
            return start
        return f.select(f.compare("ult", start, last), start, f.index(last))


@dataclass
class TransposeWriter:
    """Writes the job of one transposition: a loop over tiles of blocks."""

    generator: Generator
    output: Memory
    expr: Expr
    turn: Transposition

    def __post_init__(self) -> None:
        self.element = self.output.layout.element
        along, across = self.turn.along.count, self.turn.across.count
        lanes, piece = self.generator.vector_bytes // self.element, PIECE_BYTES // self.element
        whole = lanes if self.element >= FLOAT_BYTES else piece  # smaller elements are picked from 16 bytes only
        self.block = self._turned
        if along <= FEW and across >= whole and self._is_dense_along():
            width, height, self.block = along, whole, self._interleaved
        elif across <= FEW and along >= whole and self._is_dense_across():
            width, height, self.block = whole, across, self._separated
        else:
            if self.turn.across.steps[0] % self.generator.vector_bytes:
                lanes = max(lanes // 2, piece)  # rows are unaligned, and fewer of the narrower stores cross lines
            width = _power_of_two(min(along, lanes))
            height = _power_of_two(min(across, max(piece, self.generator.lanes)))
            if self.element == 1 and self._reads_same_lines():
                width, height = min(width, piece), _power_of_two(min(across, ALIGN))
        self.square = min(piece, width, height)
        self.along, self.across = (
            Cover(along, width, self._may_shift(width) and self.block != self._interleaved),
            Cover(across, height),
        )

    def _may_shift(self, width: int) -> bool:
        """Whether the output may be unaligned, in memory of the caller, but each row in the same way. A store that
        crosses cache lines takes several times as long as another."""
        whole = self.generator.vector_bytes
        rows = [loop.steps[0] for loop in (*self.turn.outer, self.turn.across)]
        return self.output.exact and width * self.element == whole and all(row % whole == 0 for row in rows)

    def _reads_same_lines(self) -> bool:
        """Whether the rows that a block reads compete for lines of the cache, and those that it writes do not."""
        is_far = any(self.turn.along.steps[k] % SAME_LINES == 0 for k in self.turn.far)
        return is_far and self.turn.across.steps[0] % SAME_LINES > 0

    def _is_dense_along(self) -> bool:
        """Whether the rows of a block continue each other in the output, and no operand is far along its columns."""
        steps = self.turn.across.steps
        return steps[0] == self.turn.along.count * self.element and {*steps[1:]} <= {0, self.element}

    def _is_dense_across(self) -> bool:
        """Whether the columns of a block continue each other in the transposed operands."""
        dense = self.turn.across.count * self.element
        return all(self.turn.along.steps[k] == dense for k in self.turn.far)

    def job(self) -> Job:
        """The job; a chunk is several tiles."""
        turn, nest = self.turn, self.turn.nest
        sizes = [min(most, cover.blocks) for most, cover in zip(TILE, (self.along, self.across), strict=True)]
        tiles = [-(-cover.blocks // size) for cover, size in zip((self.along, self.across), sizes, strict=True)]
        counts = [*(loop.count for loop in turn.outer), *tiles]
        work = sizes[0] * self.along.size * sizes[1] * self.across.size

        def one(kernel: Kernel, i: Value) -> None:
            at = nest.pointers(kernel, self.output)
            *indices, column, row = indices_of(i, counts)
            for index, loop in zip(indices, turn.outer, strict=True):
                at = moved(at, index, loop.steps)
            shift = kernel.f.cast("ptrtoint", at[0], INDEX) % self.generator.vector_bytes // self.element
            self._tile(kernel.f, at, (column * sizes[0], row * sizes[1]), sizes, shift)

        return job_of_rows(self.generator, "transpose", prod(counts), work, one)

    def _tile(
        self, f: Function, at: Sequence[Value], firsts: tuple[Value, Value], sizes: Sequence[int], shift: Value
    ) -> None:
        """The blocks of one tile, from block number `firsts` on."""
        columns, rows = (
            cover.left(f, first, size)
            for cover, first, size in zip((self.along, self.across), firsts, sizes, strict=True)
        )

        def row(j: Value) -> None:
            line = moved(at, self.across.start(f, firsts[1] + j, shift), self.turn.across.steps)

            def column(i: Value) -> None:
                self.block(f, moved(line, self.along.start(f, firsts[0] + i, shift), self.turn.along.steps))

            f.loop(columns, column)

        f.loop(rows, row)

    # blocks; `at` points to the first element of the output and of each operand

    def _turned(self, f: Function, at: Sequence[Value]) -> None:
        """Transposes squares in registers."""
        self._rows(f, at, {k: self._squares(f, at[k], k) for k in self.turn.far})

    def _separated(self, f: Function, at: Sequence[Value]) -> None:
        """Separates the few columns of the transposed operands."""
        far = {}
        for k in self.turn.far:
            type_, width = self._type(k, self.along.size), self.along.size * self.element
            parts = [f.load(type_, at[k] + part * width, self.element) for part in range(self.across.size)]
            far[k] = separated(f, parts)
        self._rows(f, at, far)

    def _interleaved(self, f: Function, at: Sequence[Value]) -> None:
        """Computes the few columns of the output, and interleaves them."""
        lanes, steps = self.across.size, self.turn.across.steps
        columns = [
            self._result(f, moved(at, column, self.turn.along.steps), steps, lanes, {})
            for column in range(self.along.size)
        ]
        for part, value in enumerate(interleaved(f, columns)):
            f.store(value, at[0] + part * lanes * self.element, self.element)

    def _rows(self, f: Function, at: Sequence[Value], far: dict[int, list[Value]]) -> None:
        """Computes and stores the rows of a block; `far` has the rows of the transposed operands."""
        for row in range(self.across.size):
            here = moved(at, row, self.turn.across.steps)
            known = {k: rows[row] for k, rows in far.items()}
            f.store(self._result(f, here, self.turn.along.steps, self.along.size, known), here[0], self.element)

    def _result(
        self, f: Function, at: Sequence[Value], steps: Sequence[int], lanes: int, known: dict[int, Value]
    ) -> Value:
        """`lanes` elements of the output; operands that are not `known` are read along `steps`."""
        operands = self.turn.nest.operands
        values = []
        for k, operand in enumerate(operands, 1):
            if k in known:
                values.append(known[k])
            elif operand.memory is None:
                values.append(f.constant(operand.dtype, operand.value, lanes))
            elif steps[k] == self.element:
                values.append(f.load(self._type(k, lanes), at[k], self.element))
            else:
                values.append(load(f, operand.dtype, at[k], lanes, steps[k]))
        if self.expr == Arg(0):
            return values[0]
        return emit(f, self.expr, values, [o.dtype for o in operands], self.output.layout.dtype, lanes)

    def _squares(self, f: Function, at: Value, k: int) -> list[Value]:
        """The rows of a block of a transposed operand: squares of `square` elements, joined to whole vectors."""
        type_, step = self._type(k, self.square), self.turn.along.steps[k]
        groups = range(0, self.across.size, self.square)
        pieces = [
            [f.load(type_, at + (number * step + group * self.element), self.element) for group in groups]
            for number in range(self.along.size)
        ]
        rows = []
        for group in range(len(groups)):
            column = [piece[group] for piece in pieces]
            rows += transposed(f, [joined(f, column[first :: self.square]) for first in range(self.square)])
        return rows

    def _type(self, k: int, lanes: int) -> str:
        return vector(lanes, stored(self.turn.nest.operands[k - 1].dtype))


def _power_of_two(count: int) -> int:
    """The largest power of two that is at most `count`."""
    return 1 << count.bit_length() - 1
