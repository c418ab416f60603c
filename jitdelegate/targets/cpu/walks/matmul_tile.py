"""Tile functions of products of two matrices. All sizes and distances are part of the code, so an access needs no
register of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import INDEX, Value
from jitdelegate.targets.cpu.sources.panels import MatrixLines
from jitdelegate.targets.cpu.walks.register_tile import Lines, loops_over
from jitdelegate.targets.cpu.walks.tile import Tile, TileShape


@dataclass(frozen=True)
class MatrixTileShape(TileShape):
    """Facts that are fixed in a tile function.

    Attributes:
        steps: of the sums.
        a_steps: bytes in a (between rows of a tile, between steps).
        b_row: bytes in b between steps; 0 where the panel is packed.
        c_row: bytes between rows of the results.
        tail: columns in the last vector if that is not full, else 0.
        is_exact: b's memory may end with its last element, so a vector that is not full must be read with a mask.
        has_bias: whether a packed panel has a line of bias.
    """

    steps: int = 0
    a_steps: tuple[int, int] = (0, 0)
    b_row: int = 0
    c_row: int = 0
    tail: int = 0
    is_exact: bool = False
    has_bias: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        return *super().key, *((stream.pixel, stream.block) for stream in self.epilogue.streams)


def matrix_tile_function(generator: Generator, shape: MatrixTileShape) -> str:
    """The name of `void tile(a, b, c, first row, tiles, stream pointers ...)`, which is written on first use."""
    prefix = f"product_{shape.rows}x{shape.vectors}"
    return generator.once(prefix, shape.key, lambda name: MatrixTile(generator, shape, name).write())


class MatrixTile(Tile):
    """A tile function that is being written."""

    def __init__(self, generator: Generator, shape: MatrixTileShape, name: str) -> None:
        super().__init__(generator, shape, name, [("first", INDEX), ("tiles", INDEX)])
        self.shape = shape
        self.block = generator.lanes * ELEMENT_TYPES[shape.epilogue.dtype].nbytes
        self.blocks = [stream.block for stream in shape.epilogue.streams]

    def write(self) -> None:
        """Writes the function, which computes `tiles` tiles down the rows, from row `first` on."""
        f, shape, (first, tiles) = self.f, self.shape, self.f.parameters[3:5]
        self.mask = f.first_lanes(f.index(shape.tail), self.products.lanes) if shape.tail else None
        self.prepare(has_segments=shape.steps > self.products.segment_steps)
        moves = [shape.a_steps[0], shape.c_row, *(s.pixel for s in shape.epilogue.streams)]
        starts = [p + first * move for p, move in zip((self.a, self.c, *self.streams), moves, strict=True)]

        def tile(_: Value, *pointers: Value) -> list[Value]:
            a, *others = pointers
            results = self._sums(a)
            for row in range(shape.rows):
                at = [p + row * move for p, move in zip(others, moves[1:], strict=True)]
                self.finish_row(at, results[row * self.vectors :][: self.vectors])
            return [p + shape.rows * move for p, move in zip(pointers, moves, strict=True)]

        f.loop(tiles, tile, *starts)
        f.finish()

    def lanes_left(self) -> Value:
        assert self.mask is not None
        return self.mask

    def _sums(self, a: Value) -> list[Value]:
        shape, products, mask = self.shape, self.products, self.mask if self.shape.is_exact else None
        lines = MatrixLines(products, self.vectors, shape.b_row, mask) if shape.b_row else None
        segments = [(count, loops_over(steps)) for steps, count in split(shape.steps, products.segment_steps)]
        return self.sums(Lines(shape.rows, *shape.a_steps), a, lines, int(shape.has_bias), segments)
