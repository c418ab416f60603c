"""Attention with float32 multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.walks.attention_kernel import AttentionKernel, Rows
from jitdelegate.targets.cuda.walks.attention_template import FLOAT, WARP_ROWS, AttentionTemplate

QUAD = 4
"""Neighbouring numbers in one access to shared memory."""
THREAD_ROWS = 4
ACROSS = 8
"""Threads that share rows."""
STEP = 8
"""Numbers of a query that one turn of the loop multiplies."""


@dataclass(frozen=True, eq=False, slots=True)
class FfmaAttention(AttentionTemplate):
    """A warp is 4 by 8 threads. A thread has 4 rows; of the keys every eighth, or four in every 32, whichever are
    lines or neighbours in shared memory, and of the columns as well."""

    family: ClassVar[str] = "attention_ffma"
    stored: ClassVar[Element] = Element.FLOAT32
    thread_rows: ClassVar[int] = THREAD_ROWS
    other_registers: ClassVar[int] = 88

    @property
    def sums(self) -> int:
        return THREAD_ROWS * self.columns // ACROSS

    @property
    def weight_pitch(self) -> int:
        """Bytes between rows of weights in shared memory."""
        return (self.tile.keys + QUAD) * FLOAT

    @property
    def slice_bytes(self) -> int:
        loaded = self.key_tile.nbytes + self.value_tile.nbytes
        return loaded + self.tile.rows * self.weight_pitch

    def write(self, code: Code, *arguments: Any) -> None:
        FfmaAttentionKernel(code, self, *arguments).write()


class FfmaAttentionKernel(AttentionKernel):
    """Writes the kernel. The weights of a warp's rows go through shared memory, from the threads that computed them to
    those that share the rows."""

    lanes = ACROSS

    def __init__(self, code: Code, template: FfmaAttention, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.shape = template
        self.place, self.group = self.lane & (ACROSS - 1), self.lane // ACROSS
        first = self.warp * WARP_ROWS + self.group * THREAD_ROWS
        self.rows = [self.first_row + first + at for at in range(THREAD_ROWS)]
        self.keys = self._own(self.place, template.tile.keys, template.key.by_key)
        self.neighbours = 1 if template.key.by_key else QUAD
        self.own_queries = self.queries + first * template.query_pitch
        weights = self.value_place + template.value_tile.nbytes
        self.weights = weights + first * template.weight_pitch

    @staticmethod
    def _own(place: Value, count: int, are_lines: bool) -> list[Value]:
        """The thread's lines, or elements of a line."""
        if are_lines:
            return [place + at for at in range(0, count, ACROSS)]
        return [place * QUAD + (quad + at) for quad in range(0, count, ACROSS * QUAD) for at in range(QUAD)]

    def _scores(self) -> Rows:
        code, count = self.code, len(self.keys)
        initial = [code.real(0.0)] * (THREAD_ROWS * count)
        with code.carried(self.shape.depth, initial, step=STEP) as (at, now, following):
            sums = list(now)
            for step in range(0, STEP, QUAD):
                queries = self._quads(self.own_queries, self.shape.query_pitch, at + step, THREAD_ROWS)
                sums = self._products(sums, queries, self._numbers(at + step))
            following[:] = sums
        return [list(following[row * count : (row + 1) * count]) for row in range(THREAD_ROWS)]

    def _quads(self, base: Value, pitch: int, at: Value, lines: int, every: int = 1) -> Rows:
        """Four numbers from `at` on of every `every`-th line."""
        return [self.code.load(base + at * FLOAT, line * every * pitch, F32, QUAD) for line in range(lines)]

    def _numbers(self, at: Value) -> Rows:
        """Four numbers, from number `at` on, of each of the thread's keys."""
        shape = self.shape
        pitch = shape.key_tile.pitch
        if shape.key.by_key:
            return self._quads(self.key_place + self.place * pitch, pitch, at, len(self.keys), ACROSS)
        return self._turned(self.key_place + at * pitch, pitch, len(self.keys))

    def _turned(self, base: Value, pitch: int, count: int) -> Rows:
        """Of four lines from `base` on the thread's `count` elements, by element."""
        start = base + self.place * (QUAD * FLOAT)
        quads = range(0, count * ACROSS, QUAD * ACROSS)
        lines = [
            [one for quad in quads for one in self.code.load(start, line * pitch + quad * FLOAT, F32, QUAD)]
            for line in range(QUAD)
        ]
        return [list(numbers) for numbers in zip(*lines, strict=True)]

    def _products(self, sums: Sequence[Value], left: Rows, right: Rows) -> list[Value]:
        """The sums, by row and column, after four numbers of each."""
        found = list(sums)
        for step in range(QUAD):
            pairs = [(row[step], column[step]) for row in left for column in right]
            found = [self.code.fma(a, b, c) for (a, b), c in zip(pairs, found, strict=True)]
        return found

    def _weighted(self, sums: Sequence[Value], powers: Rows) -> list[Value]:
        code, shape = self.code, self.shape
        for row, values in enumerate(powers):
            for at in range(0, len(values), self.neighbours):
                place = self.weights + self.keys[at] * FLOAT
                code.store(values[at : at + self.neighbours], place, row * shape.weight_pitch)
        code.warp_barrier()
        with code.carried(shape.tile.keys, sums, step=QUAD) as (key, now, following):
            weights = self._quads(self.weights, shape.weight_pitch, key, THREAD_ROWS)
            following[:] = self._products(now, weights, self._values(key))
        return following

    def _values(self, key: Value) -> Rows:
        """Four keys' values, from `key` on, of each of the thread's columns."""
        shape = self.shape
        pitch, count = shape.value_tile.pitch, shape.columns // ACROSS
        if shape.value.by_key:
            return self._turned(self.value_place + key * pitch, pitch, count)
        return self._quads(self.value_place + self.place * pitch, pitch, key, count, ACROSS)

    def _row_of(self, at: int) -> int:
        return at // (self.shape.columns // ACROSS)

    def _results(self) -> list[tuple[int, Value, list[int]]]:
        count = self.shape.columns // ACROSS
        width = QUAD if self.shape.value.by_key else 1
        columns = self._own(self.place, self.shape.columns, not self.shape.value.by_key)
        return [
            (row, columns[at], [row * count + at + step for step in range(width)])
            for row in range(THREAD_ROWS)
            for at in range(0, count, width)
        ]
