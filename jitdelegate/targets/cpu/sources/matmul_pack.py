"""Packs a panel of b into scratch memory: [depth][vectors * lanes], copied or transposed."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.shuffles import joined, transposed
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, POINTER, Value, vector

QUAD = 4
"""Floats of a row that are read together; the lanes of every vector are a multiple of it."""


@dataclass(frozen=True)
class PackedPanel:
    """A packing function.

    Attributes:
        columns: number of columns of b; lanes after them in the last vector are arbitrary.
        row: bytes between rows of b.
        is_transposed: b lies as [columns, depth].
    """

    vectors: int
    depth: int
    columns: int
    row: int
    is_transposed: bool


def pack_function(generator: Generator, panel: PackedPanel) -> str:
    """The name of `void pack(b, panel)`, which is written on first use."""
    return generator.once("pack", panel, lambda name: Packing(generator, panel, name).write())


class Packing:
    """A packing function that is being written."""

    def __init__(self, generator: Generator, panel: PackedPanel, name: str) -> None:
        self.panel = panel
        self.lanes, self.vector, self.vector_bytes = generator.lanes, generator.vector, generator.vector_bytes
        self.f = generator.module.function(name, [("b", POINTER), ("panel", POINTER)])

    def write(self) -> None:
        """Writes the whole function."""
        if self.panel.is_transposed:
            self._transpose()
        else:
            self._copy()
        self.f.finish()

    def _copy(self) -> None:
        f, panel = self.f, self.panel
        tail = panel.columns % self.lanes
        mask = f.first_lanes(f.index(tail), self.lanes) if tail else None

        def load(at: Value, v: int) -> Value:
            if mask is not None and v == panel.vectors - 1:
                return f.load_masked(self.vector, at, mask)
            return f.load(self.vector, at)

        def line(_: Value, b: Value, target: Value) -> list[Value]:
            for v in range(panel.vectors):
                f.store(load(b + v * self.vector_bytes, v), target + v * self.vector_bytes, self.vector_bytes)
            return [b + panel.row, target + panel.vectors * self.vector_bytes]

        f.loop(panel.depth, line, *f.parameters)

    def _transpose(self) -> None:
        """Transposes one vector of columns at a time; the columns are rows of b."""
        f, panel = self.f, self.panel
        full, tail = divmod(panel.columns, self.lanes)

        def one(_: Value, b: Value, target: Value) -> list[Value]:
            self._transpose_vector(b, target, self.lanes)
            return [b + self.lanes * panel.row, target + self.vector_bytes]

        b, target = f.loop(full, one, *f.parameters) if full else f.parameters
        if tail:
            self._transpose_vector(b, target, tail)

    def _transpose_vector(self, b: Value, target: Value, rows: int) -> None:
        """Makes `rows` rows, starting at b, into that many lanes; the other lanes repeat the last row."""
        f = self.f
        quads, left = divmod(self.panel.depth, QUAD)
        line = self.panel.vectors * self.vector_bytes

        def quad(_: Value, b: Value, target: Value, count: int = QUAD) -> list[Value]:
            for k, value in enumerate(self._quad(b, rows, count)[:count]):
                f.store(value, target + k * line, self.vector_bytes)
            return [b + QUAD * FLOAT_BYTES, target + QUAD * line]

        if quads:
            b, target = f.loop(quads, quad, b, target)
        if left:
            quad(f.index(0), b, target, left)

    def _quad(self, b: Value, rows: int, count: int) -> list[Value]:
        """`count` steps of all rows, one vector per step."""
        parts = self.lanes // QUAD
        pieces = []
        for first in range(QUAD):
            places = [min(first + QUAD * part, rows - 1) * self.panel.row for part in range(parts)]
            pieces.append(joined(self.f, [self._piece(b + place, count) for place in places]))
        return transposed(self.f, pieces)

    def _piece(self, at: Value, count: int) -> Value:
        f, type_ = self.f, vector(QUAD)
        return f.load(type_, at) if count == QUAD else f.load_masked(type_, at, f.first_lanes(f.index(count), QUAD))
