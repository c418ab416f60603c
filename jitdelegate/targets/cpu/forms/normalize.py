"""Normalize: row after row, whose elements stay in registers or in the first-level cache between the statistics.

Vectors lie along the row where its last axis is reduced. Elsewhere a vector holds neighbouring rows, such as the
channels of an image; of an image in blocks, a block.

Values that the results need again wait in the thread's scratch memory, or in the place of the results. Sums in order
are those of as many rows at once as a vector has elements, whose values are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from math import prod

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, result_type, substitute
from jitdelegate.ir.forms import IndexMap, Normalize, Shape, Statistic
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.cpu.code.element import load, store, stored
from jitdelegate.targets.cpu.code.fold import Fold
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, odd_lines
from jitdelegate.targets.cpu.code.nest import Loop, Operand, block_distances, joined_loops, moved, read_distances
from jitdelegate.targets.cpu.code.rows import job_of_rows
from jitdelegate.targets.cpu.code.shuffles import transposed
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Function, Value
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
            number = Const(data.item())
            arguments.append(number if data.dtype == FLOAT else Cast(number, str(data.dtype)))
        else:
            arguments.append(Arg(own + len(operands) - 2))
            operands.append(Operand(writer.memory(index), writer.shape(index), access))
    whole, kept = substitute(form.whole, arguments), _kept(form, shape, writer.graph.tensors[node.outputs[0]].dtype)
    if kept is Kept.SCRATCH:
        row = tuple(size if axis in form.axes else 1 for axis, size in enumerate(shape))
        layout = Layout(image_shape(row), writer.generator.lanes, dtype=form.statistics[-1].dtype)
        operands.append(Operand(Memory("scratch", 0, layout), row, IndexMap.broadcast(row, shape)))
    rows = _rows(form.axes, shape, operands, writer.generator.lanes)
    job = _job_in_order if form.in_order else _job
    memories, generator = [operand.memory for operand in operands if operand.memory], writer.generator
    key = "normalize", form, whole, rows, kept, *memories
    return [generator.once_for(key, lambda: job(generator, form, whole, rows, memories, kept))]


class Kept(Enum):
    """Where the values of the last statistic wait for the results that need them; nowhere if they are computed again,
    as vectors in registers are."""

    NOWHERE, OUTPUT, SCRATCH = range(3)


def _kept(form: Normalize, shape: Shape, output: str) -> Kept:
    last = form.statistics[-1]
    if form.in_order:
        return Kept.SCRATCH
    if not is_costly(last.value) or exchanged(form.whole, last.value, Arg(0)) == form.whole:
        return Kept.NOWHERE
    if last.dtype == output:
        return Kept.OUTPUT
    return Kept.SCRATCH if len(shape) - 1 in form.axes else Kept.NOWHERE


@dataclass(frozen=True)
class Rows:
    """The loops over all elements; steps are bytes, of the output, the data, the extra operands and kept values.

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
    kept, reduced = _split(axes, loops)
    along = loops[-1][0] in axes if reduced else True
    *outer, last = (reduced or [Loop(1, columns[-1])]) if along else kept
    width = lanes if along else min(lanes, 1 << (last.count - 1).bit_length())
    ends = last.count, tuple(step * width for step in last.steps), last.steps, width, along
    return Rows(kept, tuple(outer), *ends) if along else Rows(tuple(outer), reduced, *ends)


def _split(axes: Sequence[int], loops: Iterable[tuple[int, Loop]]) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The loops over kept and over reduced axes."""
    numbered = list(loops)
    kept, reduced = ([loop for axis, loop in numbered if (axis in axes) == which] for which in (False, True))
    return tuple(joined_loops(kept)), tuple(joined_loops(reduced))


def _job(generator: Generator, form: Normalize, whole: Expr, rows: Rows, memories: Sequence[Memory], kept: Kept) -> Job:
    """The job: rows, or vectors of neighbouring rows, one by one."""
    at_once = 1 if rows.along else -(-rows.size // rows.width)
    number = prod(loop.count for loop in rows.kept) * at_once
    work = rows.length * (1 if rows.along else rows.width)
    if kept is Kept.SCRATCH:
        generator.reserve_scratch(_kept_bytes(rows))

    def unit(kernel: Kernel, unit: Value) -> None:
        f = kernel.f
        row, vector = (unit, f.index(0)) if at_once == 1 else (unit // at_once, unit % at_once)
        steps = [Loop(at_once, rows.vectors)] if at_once > 1 else []
        pointers = _along([kernel.pointer(memory) for memory in memories], row, rows.kept)
        pointers = _along(pointers, vector, steps)
        tail = 0 if rows.along else rows.size % rows.width
        writer = RowWriter(form, whole, rows, f, pointers, [memory.layout.dtype for memory in memories], kept)

        def run_tail() -> None:
            replace(writer, mask=f.first_lanes(f.index(tail), rows.width)).write()

        f.when_last(vector, at_once, writer.write, run_tail) if tail else writer.write()

    return job_of_rows(generator, "normalize", number, work, unit)


def _kept_bytes(rows: Rows) -> int:
    """Bytes of the kept values of a row, all of whose vectors are whole."""
    return odd_lines(-(-rows.length // rows.width) * rows.width * FLOAT_BYTES)


def _job_in_order(
    generator: Generator, form: Normalize, whole: Expr, rows: Rows, memories: Sequence[Memory], kept: Kept
) -> Job:
    """The job of groups of at most `rows.width` rows, whose last statistic is summed in order: of all rows the values
    that are summed, then the sums of all rows at once, then the results. The last group overlaps the one before it."""
    number, width, apart = prod(loop.count for loop in rows.kept), rows.width, _kept_bytes(rows)
    count = min(number, width)
    first_number = count * apart
    generator.reserve_scratch(first_number + len(form.statistics) * width * FLOAT_BYTES)

    def unit(kernel: Kernel, group: Value) -> None:
        f = kernel.f
        first = f.minimum(group * width, number - count)
        starts, dtypes = [kernel.pointer(memory) for memory in memories], [memory.layout.dtype for memory in memories]

        def writer(place: Value) -> RowWriter:
            *pointers, values = _along(starts, first + place, rows.kept)
            return RowWriter(form, whole, rows, f, [*pointers, values + place * apart], dtypes, kept)

        def address(statistic: int) -> Value:
            return kernel.scratch + (first_number + statistic * width * FLOAT_BYTES)

        def values(place: Value) -> None:
            for statistic, value in enumerate(writer(place).values_in_order()):
                f.store(value, address(statistic) + place * FLOAT_BYTES)

        def block(_: Value, source: Value, total: Value) -> list[Value]:
            loaded = [f.load(total.type, source + row * apart) for row in range(count)]
            for column in transposed(f, [*loaded, *[nothing] * (width - count)]):
                total = total + column
            return [source + width * FLOAT_BYTES, total]

        def results(place: Value) -> None:
            statistics = [
                f.load(stored(statistic.dtype), address(number) + place * FLOAT_BYTES)
                for number, statistic in enumerate(form.statistics)
            ]
            writer(place).results(statistics)

        nothing = f.constant(FLOAT, 0, width)
        f.loop(count, values)
        _, total = f.loop(-(-rows.length // width), block, starts[-1], nothing)
        f.store(total, address(len(form.statistics) - 1))
        f.loop(count, results)

    return job_of_rows(generator, "normalize", -(-number // width), rows.length * count, unit)


def _along(pointers: list[Value], number: Value, loops: Sequence[Loop]) -> list[Value]:
    """The pointers at iteration `number` of nested loops."""
    for level, loop in reversed(list(enumerate(loops))):
        pointers = moved(pointers, number % loop.count if level else number, loop.steps)
        number = number // loop.count if level else number
    return pointers


@dataclass(frozen=True)
class RowWriter:
    """Writes the code for one row, or for one vector of neighbouring rows.

    Attributes:
        pointers, dtypes: of the output, the data, the extra operands, and the kept values where they have a place.
    """

    form: Normalize
    whole: Expr
    rows: Rows
    f: Function
    pointers: Sequence[Value]
    dtypes: Sequence[str]
    kept: Kept
    mask: Value | None = None

    def write(self) -> None:
        """Computes the statistics one after the other, then the results."""
        statistics: list[Value] = []
        for statistic in self.form.statistics:
            is_last = len(statistics) + 1 == len(self.form.statistics)
            statistics.append(self._statistic(statistic, statistics, keeps=is_last and self._keeps))
        self.results(statistics)

    def values_in_order(self) -> list[Value]:
        """Stores what the last statistic sums, with zeros in place of what is beyond the row; returns the others."""
        *others, last = self.form.statistics
        before: list[Value] = []
        for statistic in others:
            before.append(self._statistic(statistic, before, keeps=False))
        value = self._value(last, before)

        def keep(pointers: Sequence[Value], mask: Value | None, total: Value | None) -> None:
            one = value(pointers, mask)
            store(self.f, FLOAT, one if mask is None else self.f.select(mask, one, 0.0), pointers[-1])

        self._visit(keep)
        return before

    @property
    def _keeps(self) -> bool:
        return self.kept is Kept.SCRATCH or (self.kept is Kept.OUTPUT and not self.rows.is_short)

    @property
    def _place(self) -> int:
        """The number of the pointer to kept values."""
        return 0 if self.kept is Kept.OUTPUT else len(self.pointers) - 1

    def results(self, statistics: Sequence[Value]) -> None:
        """Computes the results."""
        f, rows, last = self.f, self.rows, self.form.statistics[-1]
        extra = range(2, len(self.pointers) - (self.kept is Kept.SCRATCH))
        read = [1, *extra, *([self._place] if self._keeps else [])]
        types = [self.dtypes[operand] for operand in read]
        types[1:1] = [statistic.dtype for statistic in self.form.statistics]
        whole = exchanged(self.whole, last.value, Arg(len(types) - 1)) if self._keeps else self.whole
        expr, constants, types = self._per_row(whole, statistics, types)

        def result(pointers: Sequence[Value], mask: Value | None, total: Value | None) -> None:
            element, *operands = (self._load(pointers, operand, mask) for operand in read)
            arguments = [element, *self._spread(statistics), *operands, *constants]
            value = emit(f, expr, arguments, types, self.dtypes[0], rows.width)
            store(f, self.dtypes[0], value, pointers[0], mask)

        self._visit(result)

    def _value(self, statistic: Statistic, before: Sequence[Value]) -> Callable[[Sequence[Value], Value | None], Value]:
        """What the statistic combines, as a function of pointers and a mask."""
        types = [self.dtypes[1], *(each.dtype for each in self.form.statistics[: len(before)])]
        expr, constants, types = self._per_row(statistic.value, before, types)

        def value(pointers: Sequence[Value], mask: Value | None) -> Value:
            arguments = [self._load(pointers, 1, mask), *self._spread(before), *constants]
            return emit(self.f, expr, arguments, types, statistic.dtype, self.rows.width)

        return value

    def _statistic(self, statistic: Statistic, before: Sequence[Value], *, keeps: bool) -> Value:
        """A statistic: one number, or a vector of those of neighbouring rows."""
        f, rows, fold = self.f, self.rows, Fold(statistic.kind, statistic.dtype, statistic.dtype)
        start, value = fold.start(f, rows.width), self._value(statistic, before)

        def add(pointers: Sequence[Value], mask: Value | None, total: Value | None) -> Value:
            one = value(pointers, mask)
            if keeps:
                store(f, statistic.dtype, one, pointers[self._place], mask)
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
        return load(self.f, self.dtypes[operand], pointers[operand], self.rows.width, self.rows.lanes[operand], mask)

    def _per_row(
        self, expr: Expr, statistics: Sequence[Value], types: Sequence[str]
    ) -> tuple[Expr, list[Value], list[str]]:
        """The expression over Args of these types and of further ones for what depends on statistics alone, the vectors
        of these, and all types."""
        expr, parts = per_row(expr, range(1, 1 + len(statistics)), len(types))
        lanes, further = (
            1 if self.rows.along else self.rows.width,
            [result_type(part, types) or FLOAT for part in parts],
        )
        numbers = [self.pointers[0], *statistics]
        values = [emit(self.f, part, numbers, types, dtype, lanes) for part, dtype in zip(parts, further, strict=True)]
        return expr, self._spread(values), [*types, *further]

    def _spread(self, numbers: Sequence[Value]) -> list[Value]:
        """Numbers of the row in all lanes; vectors of them as they are."""
        return [self.f.splat(number, self.rows.width) if self.rows.along else number for number in numbers]
