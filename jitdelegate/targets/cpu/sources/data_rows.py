"""Rows of data that a register tile multiplies by a panel, as it walks along K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, INDEX, Value


class DataRows(Protocol):
    """Rows of data, whose beginnings are known to the code.

    Attributes:
        start: where the walk begins; what it points to is the rows' own.
        apart: bytes between neighbouring steps of a turn.
    """

    @property
    def start(self) -> Value: ...

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
    """Rows that begin anywhere, as pixels of an image do. A table has the offset of each turn from a row's beginning.
    One offset for all rows and fixed displacements: a row costs one general register."""

    rows: Sequence[Value]
    start: Value
    apart: int

    def addresses(self, position: Value) -> list[Value]:
        offset = position.function.load(INDEX, position, 8)
        return [row + offset for row in self.rows]

    def after(self, position: Value, steps: int) -> Value:
        return position + 8


@dataclass(frozen=True)
class Lines:
    """`count` rows of a matrix, the first of which begins at `start`; they are `pitch` bytes apart."""

    start: Value
    count: int
    pitch: int = 0
    apart: int = FLOAT_BYTES

    def addresses(self, position: Value) -> list[Value]:
        return [position + row * self.pitch for row in range(self.count)]

    def after(self, position: Value, steps: int) -> Value:
        return position + steps * self.apart
