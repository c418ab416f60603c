"""Attention in one kernel by an online Softmax: what tensor cores and float32 multiply-adds share.

A block computes some rows of one matrix and walks over its keys, a tile at a time. Of each row it keeps the maximum m
of the scores so far, the sum of exp(score - m) and the sums of exp(score - m) * value; when the maximum grows, both
sums are scaled down. So no score leaves the multiprocessor. Source: Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.

Groups of warps (slices) may share out the tiles of keys; so may blocks (parts), whose sums another launch combines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.division import coordinates
from jitdelegate.targets.cuda.code.element import Element, load, load_where, pack
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.expression import emit
from jitdelegate.targets.cuda.code.lanes import combine_lanes, first_slice
from jitdelegate.targets.cuda.code.operand import Neighbours
from jitdelegate.targets.cuda.code.output import Held, Output, Run
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, await_copies, commit_copies
from jitdelegate.targets.cuda.sources.line_loader import LineLoader, Lines
from jitdelegate.targets.cuda.walks.attention_template import (
    FLOAT,
    LANES,
    AttentionSizes,
    AttentionTemplate,
    ScoreOperand,
    Side,
)

IN_FLIGHT = 4
"""Chunks of queries that a thread loads before it stores the first one."""
Rows = list[list[Value]]
"""Values of a thread, by row and key."""


class AttentionKernel(ABC):
    """Writes the kernel of one template, except how scores and values are multiplied.

    Attributes:
        scores, held: the scores and the sums of this thread, in the rows of the block's tile.
        rows: the thread's rows, as numbers within the matrix.
        keys: the keys of the thread's scores, as numbers within a tile; `neighbours` at a time follow each other.
        lanes: neighbouring threads that have the same rows.
    """

    scores: Held
    held: Held
    lanes: int

    def __init__(
        self,
        code: Code,
        template: AttentionTemplate,
        output: Value,
        matrices: Sequence[Value],
        operands: Sequence[Value],
        extra: Sequence[Value],
        factor: Value,
        sizes: AttentionSizes,
        divisors: Sequence[Sequence[Value]],
        locations: Sequence[Sequence[Any]],
        steps: Sequence[Value],
    ) -> None:
        self.code, self.template, self.sizes, self.factor = code, template, sizes, factor
        self.output, self.operands, self.steps = output, operands, steps
        self.query, (_, self.row_divisors) = matrices[0], divisors
        self.extra = extra
        tile = template.tile
        thread, block = code.special("tid.x"), code.special("ctaid.x")
        self.thread, self.slice = thread % tile.slice_threads, thread // tile.slice_threads
        self.lane, self.warp = self.thread & (LANES - 1), self.thread // LANES
        self.number, self.first_row = block // sizes.down, block % sizes.down * tile.rows
        self.part = code.special("ctaid.y")
        self.first_tile = self.part * (sizes.turns * tile.slices) + self.slice
        axes = coordinates(code, self.number, divisors[0]) if template.number_axes else []
        self.locations = [
            (self._sum(offset, axes, along_numbers), along_rows) for offset, along_numbers, along_rows in locations
        ]
        self.queries = code.dynamic_shared()
        own = self.queries + tile.rows * template.query_pitch + self.slice * template.slice_bytes
        self.key_address, self.value_address = own, own + template.key_tile.nbytes
        self.loaders = [
            LineLoader(code, shape, self._lines(matrices[at], at, side, length, pitch), self.thread, address)
            for at, side, shape, length, pitch, address in (
                (1, template.key, template.key_tile, sizes.depth, sizes.key, self.key_address),
                (2, template.value, template.value_tile, sizes.columns, sizes.value, self.value_address),
            )
        ]

    def _lines(self, data: Value, at: int, side: Side, length: Value, pitch: Value) -> Lines:
        start, keys = self.locations[at][0], self.sizes.keys
        return Lines(data, start, pitch, *((keys, length) if side.by_key else (length, keys)))

    @staticmethod
    def _sum(start: Value, indices: Sequence[Value], distances: Sequence[Value]) -> Value:
        for index, distance in zip(indices, distances, strict=True):
            start = start + index * distance
        return start

    def _start(self, at: int, row: Value) -> Value:
        """The first element of a row of operand `at`."""
        start, distances = self.locations[at]
        if not self.template.row_axes:
            return start
        return self._sum(start, coordinates(self.code, row, self.row_divisors), distances)

    def write(self) -> None:
        """Writes the whole kernel."""
        code, template = self.code, self.template
        self.rows = [self.first_row + self.scores.row + row for row in self.scores.rows]
        self.keys = [self.scores.column + key for key in self.scores.columns]
        self.neighbours = self.scores.runs[0].width
        self.row_of = [self.held.rows.index(run.row) for run in self.held.runs for _ in range(run.width)]
        count, rows = template.sums, len(self.rows)
        code.await_launches()
        self._limited = [code.minimum(row, self.sizes.rows - 1) for row in self.rows]
        self._read_rows()
        keys, values = self.loaders
        loaded = self._begin(keys, code.integer(0))
        self._load_queries()
        initial = [*[code.real(0.0)] * count, *[code.real(-inf)] * rows, *[code.real(0.0)] * rows, *loaded]
        with code.carried(self.sizes.turns, initial) as (turn, now, following):
            self._finish(keys, now[count + 2 * rows :])
            loaded = self._begin(values, turn)
            first = self._first_key(turn)
            read = self._read_operands(first)
            products = self._scores()
            self._finish(values, loaded)
            loaded = self._begin(keys, turn + 1)
            scores = self._changed(self.scores.by_row(products), read, first)
            state = now[:count], now[count : count + rows], now[count + rows : count + 2 * rows]
            sums, tops, totals = self._step(*state, scores)
            following[:] = [*sums, *tops, *totals, *loaded]
        if keys.tile.copies:
            await_copies(code, 0)
        sums, tops, totals = following[:count], following[count : count + rows], following[count + rows :][:rows]
        self._meet(sums, tops, [self._across(total, lambda a, b: a + b) for total in totals])

    # tiles

    def _first_key(self, turn: Value) -> Value:
        tile: Value = self.first_tile + turn * self.template.tile.slices
        return tile * self.template.tile.keys

    def _begin(self, loader: LineLoader, turn: Value) -> list[Value]:
        """Begins to load a turn's tile of keys or values."""
        side = self.template.key if loader is self.loaders[0] else self.template.value
        first, zero = self._first_key(turn), self.code.integer(0)
        loaded = loader.begin(*((first, zero) if side.by_key else (zero, first)))
        if loader.tile.copies:
            commit_copies(self.code)
        return loaded

    def _finish(self, loader: LineLoader, loaded: Sequence[Value]) -> None:
        """Waits for a tile, and for all threads to have read the other one."""
        loader.finish(loaded)
        if loader.tile.copies:
            await_copies(self.code, 0)
        self.code.barrier()

    def _load_queries(self) -> None:
        """Loads the block's queries to shared memory; numbers that do not exist are zeros."""
        code, template = self.code, self.template
        unit = CHUNK // template.stored.nbytes
        across = template.depth // unit
        thread, count = code.special("tid.x"), template.tile.rows * across
        starts = range(0, count, template.threads)
        for group in range(0, len(starts), IN_FLIGHT):
            units = [thread + at for at in starts[group : group + IN_FLIGHT]]
            loaded = [self._query_chunk(one // across, one % across * unit, unit, one < count) for one in units]
            for one, values in zip(units, loaded, strict=True):
                words = values if template.stored is Element.FLOAT32 else pack(code, template.stored, values)
                with code.when(one < count):
                    offset = one // across * template.query_pitch + one % across * CHUNK
                    code.store(words, self.queries + offset, 0)

    def _query_chunk(self, row: Value, at: Value, unit: int, exists: Value) -> list[Value]:
        template, sizes = self.template, self.sizes
        width, row = min(template.query_width, unit), row + self.first_row
        start = self._start(0, row)
        numbers = [at + step for step in range(0, unit, width)]
        values = list[Value]()
        for number in numbers:
            is_inside = exists & (row < sizes.rows) & (number < sizes.depth)
            index = start + number * sizes.query
            values += load_where(self.code, template.query, is_inside, self.query, index, width)
        return values

    # scores

    def _read_rows(self) -> None:
        """Where the thread's rows of each operand begin, and the elements of those that are the same for all keys."""
        self._row_starts: list[list[Value]] = []
        self._same: list[list[Value]] = []
        for number, operand in enumerate(self.template.operands):
            rows = self._limited if operand.has_rows else self._limited[:1]
            starts = [self._start(4 + number, row) for row in rows]
            self._row_starts.append(starts)
            is_same = operand.neighbours is Neighbours.SAME
            self._same.append(
                [load(self.code, operand.element, self.operands[number], start)[0] for start in starts if is_same]
            )

    def _read_operands(self, first: Value) -> list[Rows]:
        """Each operand's elements for the thread's scores, for the tile from key `first` on."""
        read = []
        for number, operand in enumerate(self.template.operands):
            if operand.neighbours is Neighbours.SAME:
                rows = [[one] * len(self.keys) for one in self._same[number]]
            else:
                rows = [self._read_row(number, operand, start, first) for start in self._row_starts[number]]
            read.append(rows if operand.has_rows else rows * len(self.rows))
        return read

    def _read_row(self, number: int, operand: ScoreOperand, start: Value, first: Value) -> list[Value]:
        code, base, elements = self.code, self.operands[number], list[Value]()
        width = min(self.neighbours, operand.element.widest) if operand.neighbours is Neighbours.VECTOR else 1
        for at in range(0, len(self.keys), width):
            key = first + self.keys[at]
            index = start + (key if operand.neighbours is Neighbours.VECTOR else key * self.steps[number])
            if self.template.has_rest:
                elements += load_where(code, operand.element, key < self.sizes.keys, base, index, width)
            else:
                elements += load_run(code, operand.element, base, index, width)
        return elements

    def _changed(self, products: Rows, read: Sequence[Rows], first: Value) -> Rows:
        """The scores that the products become; -inf for keys that do not exist."""
        code, template, scores = self.code, self.template, []
        types = ["float32", *(operand.element.dtype for operand in template.operands)]
        exist = [first + key < self.sizes.keys for key in self.keys] if template.has_rest else []
        for number, products_of_row in enumerate(products):
            columns = [rows[number] for rows in read]
            values = zip(products_of_row, *columns, strict=True)
            row = [emit(code, template.expr, list(one), types, "float32") for one in values]
            if template.has_rest:
                row = [code.select(exists, one, -inf) for exists, one in zip(exist, row, strict=True)]
            scores.append(row)
        return scores

    # the online Softmax

    def _step(
        self, sums: Sequence[Value], tops: Sequence[Value], totals: Sequence[Value], scores: Rows
    ) -> tuple[list[Value], list[Value], list[Value]]:
        """The sums of values, the maxima and the sums of exponentials after a tile."""
        powers, scales, highest, added = list[list[Value]](), list[Value](), list[Value](), list[Value]()
        for top, total, row in zip(tops, totals, scores, strict=True):
            own = self._across(reduce_tree([top, *row], self.code.larger), self.code.larger)
            safe = self._finite(own)
            scale = self._power(top, safe)
            row_powers = [self._power(score, safe) for score in row]
            highest.append(own)
            scales.append(scale)
            powers.append(row_powers)
            added.append(self.code.fma(total, scale, reduce_tree(row_powers, lambda a, b: a + b)))
        scaled = [value * scales[row] for row, value in zip(self.row_of, sums, strict=True)]
        return self._weighted(scaled, powers), highest, added

    def _finite(self, top: Value) -> Value:
        """A maximum that scores can be compared with: 0 in place of -inf, which means that all scores are -inf."""
        return self.code.select(top.equals(-inf), self.code.real(0.0), top)

    def _power(self, score: Value, top: Value) -> Value:
        return self.code.power_of_two((score - top) * self.factor)  # exp(beta * (score - top))

    def _across(self, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
        return combine_lanes(self.code, value, self.lanes, lambda _, a, b: combine(a, b), "")

    # the end

    def _meet(self, sums: Sequence[Value], tops: Sequence[Value], totals: Sequence[Value]) -> None:
        """Adds the sums of the other slices to those of the first one, which stores them."""
        tile, own = self.template.tile, [*sums, *tops, *totals]
        if tile.slices == 1:
            self._store(sums, tops, totals)
            return
        with first_slice(self.code, own, self.slice, self.thread, tile.slice_threads) as other:
            others = [[other(k, at) for at in range(len(own))] for k in range(tile.slices - 1)]
            self._store(*self._joined([own, *others]))

    def _joined(self, all_of: Sequence[Sequence[Value]]) -> tuple[list[Value], list[Value], list[Value]]:
        """The sums, maxima and totals of several slices as those of one."""
        count, rows = self.template.sums, len(self.rows)
        tops = [reduce_tree([own[count + row] for own in all_of], self.code.larger) for row in range(rows)]
        safe = [self._finite(top) for top in tops]
        scales = [[self._power(own[count + row], safe[row]) for row in range(rows)] for own in all_of]

        def joined(at: int, row: int) -> Value:
            return reduce_tree(
                [own[at] * scale[row] for own, scale in zip(all_of, scales, strict=True)], lambda a, b: a + b
            )

        sums = [joined(at, row) for at, row in enumerate(self.row_of)]
        return sums, tops, [joined(count + rows + row, row) for row in range(rows)]

    def _store(self, sums: Sequence[Value], tops: Sequence[Value], totals: Sequence[Value]) -> None:
        """Stores results, or a part's sums."""
        if self.template.is_part:
            self._store_part(sums, tops, totals)
            return
        template, factors = self.template, [1.0 / total for total in totals]
        output = Output(self.code, template.epilogue, template.output, self.output, self.extra, self.sizes.columns)
        starts = [self._start(3, row) for row in self._limited]
        for run, row in self._runs():
            pixel = self.number * self.sizes.rows + self.rows[row]
            results = [one * factors[row] for one in sums[run.sums]]
            self._store_run(output, results, run, row, pixel, starts[row])

    def _store_part(self, sums: Sequence[Value], tops: Sequence[Value], totals: Sequence[Value]) -> None:
        """Stores [parts, rows of all matrices, columns] sums, then [parts, rows of all matrices, 2] maxima and
        totals."""
        code, sizes = self.code, self.sizes
        output = Output(code, Epilogue(), Element.FLOAT32, self.output, (), sizes.columns)
        first = self.part * sizes.total + self.number * sizes.rows
        for run, row in self._runs():
            pixel = first + self.rows[row]
            self._store_run(output, sums[run.sums], run, row, pixel, pixel * sizes.columns)
        after = code.special("nctaid.y") * sizes.total * sizes.columns
        for row, (top, total) in enumerate(zip(tops, totals, strict=True)):
            with code.when((self.rows[row] < sizes.rows) & (self.lane & (self.lanes - 1)).equals(0)):
                for at, value in enumerate((top, total)):
                    code.store([value], self.output, (after + (first + self.rows[row]) * 2 + at) * FLOAT)

    def _runs(self) -> Iterator[tuple[Run, int]]:
        """The runs of the thread's sums, each with the number of its row among those of the thread."""
        return ((run, self.held.rows.index(run.row)) for run in self.held.runs)

    def _store_run(
        self, output: Output, results: Sequence[Value], run: Run, row: int, pixel: Value, start: Value
    ) -> None:
        column, exists = self.held.column + run.column, self.rows[row] < self.sizes.rows
        output.store_inside(results, self.template.run, exists, self.sizes.columns, pixel, column, start)

    @abstractmethod
    def _scores(self) -> Sequence[Value]:
        """The products of the thread's rows and keys, as `scores` numbers them."""

    @abstractmethod
    def _weighted(self, sums: Sequence[Value], powers: Rows) -> list[Value]:
        """The sums after the tile of values, which is weighted by `powers`."""
