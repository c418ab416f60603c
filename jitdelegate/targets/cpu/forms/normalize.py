"""Normalize: row after row, whose elements stay in registers or in the first-level cache between the statistics.

Vectors lie along the row where its last axis is reduced. Elsewhere a vector holds neighbouring rows, such as the
channels of an image; of an image in blocks, a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from jitdelegate.ir.expr import Arg, Const, Expr, substitute
from jitdelegate.ir.forms import IndexMap, Normalize, Shape
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.fold import Fold
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.nest import Loop, Operand, block_distances, joined_loops, moved, read_distances
from jitdelegate.targets.cpu.code.rows import job_of_rows
from jitdelegate.targets.cpu.code.vector_ir import Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.expression import emit
from jitdelegate.targets.maths.row_parts import exchanged, is_costly, per_row

CHAINS = 4
"""Partial results of a statistic: as many additions are under way at once."""
UNROLLED = 16
"""Vectors of a row that stay in registers."""
FLOAT = "float32"


def write_normalize(writer: Writer, node: Node, form: Normalize) -> list[Job]:
    """The jobs of a Normalize node."""
    shape, own = writer.shape(node.outputs[0]), 1 + len(form.statistics)
    arguments: list[Expr] = [Arg(k) for k in range(own)]
    same = IndexMap.broadcast(shape, shape)
    operands = [Operand(writer.memory(index), shape, same) for index in (node.outputs[0], node.inputs[0])]
    for index, access in zip(node.inputs[1:], form.operands, strict=True):
        data = writer.graph.tensors[index].data
        if data is not None and data.size == 1:
            arguments.append(Const(data.item()))
        else:
            arguments.append(Arg(own + len(operands) - 2))
            operands.append(Operand(writer.memory(index), writer.shape(index), access))
    rows = _rows(form.axes, shape, operands, writer.generator.lanes)
    whole = substitute(form.whole, arguments)
    return [_job(writer.generator, form, whole, rows, [operand.memory for operand in operands])]


@dataclass(frozen=True)
class Rows:
    """The loops over all elements; steps are bytes, of the output, the data and the extra operands.

    Attributes:
        kept: over the rows, or over groups of neighbouring rows.
        reduced: over the vectors or elements of a row, except the innermost loop where vectors lie along the row.
        size: elements of the row that vectors lie along, or neighbouring rows that they lie across.
        vectors: the bytes from one vector to the next.
        lanes: the bytes from one element of a vector to the next, 0 where an operand repeats one.
        width: elements of a vector.
    """

    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    size: int
    vectors: tuple[int, ...]
    lanes: tuple[int, ...]
    width: int
    along: bool

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(loop.count for loop in self.reduced) * (self.size if self.along else 1)

    @property
    def is_short(self) -> bool:
        """Whether a row stays in registers."""
        *outer, last = self.reduced or (Loop(1, ()),)
        inner = self.size // self.width if self.along else last.count
        return inner <= UNROLLED and not (self.reduced if self.along else outer)


def _rows(axes: Sequence[int], shape: Shape, operands: Sequence[Operand], lanes: int) -> Rows:
    if len(shape) == 4 and any(operand.memory and operand.memory.layout.blocked for operand in operands[:2]):
        columns = list(zip(*map(block_distances, operands), strict=True))
        images, lines, pixels = (Loop(shape[axis], columns[column]) for axis, column in ((0, 0), (1, 1), (2, 3)))
        split = _split(axes, zip((0, 1, 2), (images, lines, pixels), strict=True))
        return Rows(*split, shape[3], columns[2], columns[4], lanes, along=False)
    columns = list(zip(*(read_distances(operand, len(shape)) for operand in operands), strict=True))
    loops = [(axis, Loop(size, columns[axis])) for axis, size in enumerate(shape) if size != 1]
    along = loops[-1][0] in axes
    kept, reduced = _split(axes, loops)
    *outer, last = reduced if along else kept
    width = lanes if along else min(lanes, 1 << (last.count - 1).bit_length())
    ends = last.count, tuple(step * width for step in last.steps), last.steps, width, along
    return Rows(kept, tuple(outer), *ends) if along else Rows(tuple(outer), reduced, *ends)


def _split(axes: Sequence[int], loops: Iterable[tuple[int, Loop]]) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The loops over kept and over reduced axes."""
    numbered = list(loops)
    kept, reduced = ([loop for axis, loop in numbered if (axis in axes) == which] for which in (False, True))
    return tuple(joined_loops(kept)), tuple(joined_loops(reduced))


def _job(generator: Generator, form: Normalize, whole: Expr, rows: Rows, memories: Sequence[Memory | None]) -> Job:
    """The job: rows, or vectors of neighbouring rows, one by one."""
    at_once = 1 if rows.along else -(-rows.size // rows.width)
    number = prod(loop.count for loop in rows.kept) * at_once
    work = rows.length * (1 if rows.along else rows.width)

    def unit(kernel: Kernel, unit: Value) -> None:
        f = kernel.f
        row, vector = (unit, f.index(0)) if at_once == 1 else (unit // at_once, unit % at_once)
        steps = [Loop(at_once, rows.vectors)] if at_once > 1 else []
        pointers = _along([kernel.pointer(memory) for memory in memories if memory], row, rows.kept)
        pointers = _along(pointers, vector, steps)
        tail = 0 if rows.along else rows.size % rows.width

        def run(mask: Value | None = None) -> None:
            RowWriter(form, whole, rows, f, pointers, mask).write()

        def run_tail() -> None:
            run(f.first_lanes(f.index(tail), rows.width))

        f.when_last(vector, at_once, run, run_tail) if tail else run()

    return job_of_rows(generator, "normalize", number, work, unit)


def _along(pointers: list[Value], number: Value, loops: Sequence[Loop]) -> list[Value]:
    """The pointers at iteration `number` of nested loops."""
    for level, loop in reversed(list(enumerate(loops))):
        pointers = moved(pointers, number % loop.count if level else number, loop.steps)
        number = number // loop.count if level else number
    return pointers


@dataclass(frozen=True)
class RowWriter:
    """Writes the code for one row, or for one vector of neighbouring rows."""

    form: Normalize
    whole: Expr
    rows: Rows
    f: Function
    pointers: Sequence[Value]
    mask: Value | None

    def write(self) -> None:
        """Computes the statistics one after the other, then the results."""
        f, rows, statistics, kept = self.f, self.rows, list[Value](), None
        for statistic in self.form.statistics:
            is_last = len(statistics) + 1 == len(self.form.statistics)
            keeps = is_last and not rows.is_short and is_costly(statistic.value)
            kept = statistic.value if keeps and exchanged(self.whole, statistic.value, Arg(0)) != self.whole else None
            statistics.append(self._statistic(statistic.kind, statistic.value, statistics, stores=kept is not None))
        extra = len(self.pointers) - 2
        stored = Arg(1 + len(statistics) + extra)
        whole = exchanged(self.whole, kept, stored) if kept else self.whole
        expr, constants = self._per_row(whole, statistics, 2 + len(statistics) + extra)

        def result(pointers: Sequence[Value], mask: Value | None, total: Value | None) -> None:
            operands = [self._load(pointers, operand, mask) for operand in (*range(1, len(pointers)), 0)]
            arguments = [operands[0], *self._spread(statistics), *operands[1:], *constants]
            store(f, FLOAT, self._emit(expr, arguments, rows.width), pointers[0], mask)

        self._visit(result)

    def _statistic(self, kind: str, value: Expr, before: Sequence[Value], *, stores: bool) -> Value:
        """A statistic: one number, or a vector of those of neighbouring rows; `stores` writes all values to the
        output."""
        f, rows, fold = self.f, self.rows, Fold(kind, FLOAT, FLOAT)
        start = fold.start(f, rows.width)
        expr, constants = self._per_row(value, before, 1 + len(before))

        def add(pointers: Sequence[Value], mask: Value | None, total: Value | None) -> Value:
            arguments = [self._load(pointers, 1, mask), *self._spread(before), *constants]
            one = self._emit(expr, arguments, rows.width)
            if stores:
                store(f, FLOAT, one, pointers[0], mask)
            one = f.select(mask, one, start) if rows.along and mask is not None else one
            return fold.combine(f, total, one) if total is not None else one

        totals = self._visit(add, *[start] * CHAINS)
        total = reduce(lambda a, b: fold.combine(f, a, b), totals)
        total = fold.across(f, total) if rows.along else total
        return fold.finished(f, total, rows.length, rows.length)

    def _visit(
        self, body: Callable[[Sequence[Value], Value | None, Value | None], Value | None], *totals: Value
    ) -> list[Value]:
        """body(pointers, mask, total) for every vector of the row; it returns the next total. Totals take turns."""
        f, rows = self.f, self.rows
        width, tail = rows.width, rows.size % rows.width
        *outer, last = (*rows.reduced, Loop(rows.size // width, rows.vectors)) if rows.along else rows.reduced

        def nested(level: int, pointers: Sequence[Value], now: Sequence[Value]) -> list[Value]:
            if level == len(outer):
                return inner(pointers, list(now))
            steps = outer[level].steps
            return f.loop(outer[level].count, lambda i, *n: nested(level + 1, moved(pointers, i, steps), n), *now)

        def inner(pointers: Sequence[Value], now: list[Value]) -> list[Value]:
            turns = 0 if rows.is_short else last.count // CHAINS

            def turn(i: Value, *now: Value) -> list[Value]:
                first, then = moved(pointers, i, [step * CHAINS for step in last.steps]), list(now)
                for chain in range(CHAINS):
                    step(moved(first, chain, last.steps), self.mask, then, chain)
                return then

            now = f.loop(turns, turn, *now) if turns else now
            for number in range(turns * CHAINS, last.count):
                step(moved(pointers, number, last.steps), self.mask, now, number)
            if rows.along and tail:
                step(moved(pointers, last.count, last.steps), f.first_lanes(f.index(tail), width), now, last.count)
            return now

        def step(pointers: Sequence[Value], mask: Value | None, now: list[Value], number: int) -> None:
            total = body(pointers, mask, now[number % CHAINS] if now else None)
            if now and total is not None:
                now[number % CHAINS] = total

        return nested(0, self.pointers, totals)

    def _load(self, pointers: Sequence[Value], operand: int, mask: Value | None) -> Value:
        return load(self.f, FLOAT, pointers[operand], self.rows.width, self.rows.lanes[operand], mask)

    def _emit(self, expr: Expr, arguments: Sequence[Value], lanes: int) -> Value:
        return emit(self.f, expr, arguments, [FLOAT] * len(arguments), FLOAT, lanes)

    def _per_row(self, expr: Expr, statistics: Sequence[Value], first: int) -> tuple[Expr, list[Value]]:
        """The expression with Args from `first` on for what depends on statistics alone, and the vectors of these."""
        expr, parts = per_row(expr, range(1, 1 + len(statistics)), first)
        lanes = 1 if self.rows.along else self.rows.width
        return expr, self._spread([self._emit(part, [self.pointers[0], *statistics], lanes) for part in parts])

    def _spread(self, numbers: Sequence[Value]) -> list[Value]:
        """Numbers of the row in all lanes; vectors of them as they are."""
        return [self.f.splat(number, self.rows.width) if self.rows.along else number for number in numbers]
