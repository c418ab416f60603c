"""Rows of data that a register tile multiplies by a panel, as it walks along K.

Rows have the addresses of their next steps at a position, and the position after a turn of so many steps. Neighbouring
steps of a turn are `apart` bytes apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Value


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
