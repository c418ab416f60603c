"""Products of floats as float16, whose sums are float16 too, as long as they are short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitdelegate.targets.cpu.code.vector_ir import FLOAT, HALF, Function, Value, vector
from jitdelegate.targets.cpu.multiply.products import QUAD, Products

PAIR = 2
HALVES_SEGMENT = 16
"""Most quads in one segment of a sum of float16: each segment becomes a float32."""


@dataclass(frozen=True)
class HalfSums(Products):
    """Products of float16. A vector of sums has those of two vectors of outputs; where the number of these is odd, half
    of the last one is arbitrary."""

    step_bytes: ClassVar[int] = 2
    converted: ClassVar[str] = "float16"
    stored: ClassVar[str] = "float16"
    rows: ClassVar[tuple[int, ...]] = (8, 8, 8, 8)

    @property
    def speed(self) -> int:
        return 2

    @property
    def sum_type(self) -> str:
        return vector(PAIR * self.lanes, HALF)

    @property
    def total_type(self) -> str:
        return vector(PAIR * self.lanes)

    @property
    def total_bytes(self) -> int:
        return PAIR * self.bias_bytes

    @property
    def segment_steps(self) -> int:
        return HALVES_SEGMENT * QUAD

    @property
    def part_steps(self) -> int:
        return super().segment_steps

    def segments(self, quads: int) -> tuple[int, int]:
        count = max(1, -(-quads // HALVES_SEGMENT))
        return count, -(-quads // count)

    def panel_bytes(self, vectors: int, quads: int, singles: int) -> int:
        """The last vector of a panel reads as much behind it."""
        return super().panel_bytes(vectors + vectors % PAIR, quads, singles)

    def sums(self, rows: int, vectors: int) -> int:
        return rows * -(-vectors // PAIR)

    def by_row(self, f: Function, sums: Sequence[Value], rows: int, vectors: int) -> list[Value]:
        found, count = list[Value](), len(sums) // rows
        for row in range(rows):
            whole = [self.widened(f, total) for total in sums[row * count :][:count]]
            parts = [f.part(total, first, self.lanes) for total in whole for first in (0, self.lanes)]
            found += parts[:vectors]
        return found

    def lines(self, f: Function, at: Value, vectors: int, steps: int) -> Iterator[list[Sequence[Value]]]:
        for k in range(steps):
            line = at + k * vectors * self.weight_bytes
            places = range(0, vectors * self.weight_bytes, PAIR * self.weight_bytes)
            yield [[f.load(self.sum_type, line + place, self.weight_bytes)] for place in places]

    def data(self, f: Function, at: Value) -> list[Value]:
        return [f.splat(f.load(HALF, at, 2), PAIR * self.lanes)]

    def turn_data(self, f: Function, at: Value) -> Value:
        return f.load(vector(self.lanes, HALF), at, 2)

    def lane_data(self, f: Function, turn: Value, step: int) -> list[Value]:
        return [f.shuffle(turn, turn, [step] * PAIR * self.lanes)]

    def add(self, f: Function, data: Sequence[Value], weights: Sequence[Value], total: Value) -> Value:
        if total.type == self.sum_type:
            return f.fma(data[0], weights[0], total)
        return f.fma(self.widened(f, data[0]), self.widened(f, weights[0]), total)

    def widened(self, f: Function, total: Value) -> Value:
        return f.convert("fpext", total, FLOAT) if total.type == self.sum_type else total


def are_in_range(numbers: np.ndarray) -> bool:
    """Whether no number is too large for float16."""
    return bool(np.abs(numbers).max(initial=0) <= np.finfo(np.float16).max)
