"""Products of bytes by instructions that multiply two rows by two columns (NEON's smmla and usmmla)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import BYTE, IntegerProducts, Reader

PAIR = 2


@dataclass(frozen=True)
class MatrixBytes(IntegerProducts):
    """Products of eight bytes. A vector of sums has those of two rows and two outputs; where the number of rows is odd,
    the last one is multiplied twice."""

    channels: ClassVar[int] = 8
    step_bytes: ClassVar[int] = 8
    multiple: ClassVar[int] = 8
    stored: ClassVar[str] = "int8"
    rows: ClassVar[tuple[int, ...]] = (8, 6, 4, 4)

    @property
    def speed(self) -> int:
        return 8

    def sums(self, rows: int, vectors: int) -> int:
        return -(-rows // PAIR) * PAIR * vectors

    def starts(self, f: Function, rows: int, bias: Sequence[Value]) -> list[Value]:
        pairs = [f.shuffle(line, line, [first, first + 1] * PAIR) for line in bias for first in (0, PAIR)]
        return pairs * -(-rows // PAIR)

    def by_row(self, f: Function, sums: Sequence[Value], rows: int, vectors: int) -> list[Value]:
        size, found = PAIR * vectors, list[Value]()
        for row in range(rows):
            parts = sums[row // PAIR * size :][:size]
            order = [lane + row % PAIR * PAIR for lane in (0, 1, 4, 5)]
            found += [f.shuffle(a, b, order) for a, b in zip(parts[::PAIR], parts[1::PAIR], strict=True)]
        return found

    def lines(self, f: Function, at: Value, vectors: int, steps: int) -> Iterator[list[Sequence[Value]]]:
        nbytes, count = self.weight_bytes // PAIR, PAIR * vectors
        for k in range(steps):
            places = (at + (k * count + number) * nbytes for number in range(count))
            yield [[f.load(vector(nbytes, BYTE), place, nbytes)] for place in places]

    def readers(self, f: Function, rows: Sequence[Value], apart: int, steps: int) -> list[Reader]:
        pairs = zip(rows[::PAIR], [*rows[1::PAIR], *rows[len(rows) - len(rows) % PAIR :]], strict=True)
        return [self._pair_reader(f, pair, apart, steps) for pair in pairs]

    def _pair_reader(self, f: Function, pair: Sequence[Value], apart: int, steps: int) -> Reader:
        at_once = PAIR if steps % PAIR == 0 else 1
        loaded: list[Value] = []

        def read(step: int) -> list[Value]:
            first = step % at_once
            if first == 0:
                loaded[:] = [f.load(vector(at_once, INDEX), at + step * apart, 1) for at in pair]
            both = self._both(f, loaded, first)
            return [f.cast("bitcast", both, vector(4 * self.lanes, BYTE))]

        return read

    @staticmethod
    def _both(f: Function, rows: Sequence[Value], lane: int) -> Value:
        """One lane of each of two rows."""
        first, second = rows
        if first.lanes > 1:
            return f.shuffle(first, second, [lane, lane + PAIR])
        return f.emit(vector(PAIR, INDEX), f"insertelement {f.splat(first, PAIR)}, {second}, i64 1")

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        name = self.machine.plus_matrices[not self.is_signed]
        return f.machine_call(name, total.type, total, data[0], weights[0])
