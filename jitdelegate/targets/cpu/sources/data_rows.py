"""Rows of data that a register tile multiplies by a panel, as it walks along K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jitdelegate.targets.cpu.code.vector_ir import INDEX, Value


class DataRows(Protocol):
    """Rows of data, and what the position in them means, which is walked along.

    Attributes:
        apart: bytes between neighbouring steps of a turn.
    """

    @property
    def apart(self) -> int: ...

    def addresses(self, position: Value) -> list[Value]:
        """The address of each row's next step."""
        ...

    def after(self, position: Value, steps: int) -> Value:
        """The position after a turn of so many steps."""
        ...


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
