"""Tile functions of products of two matrices. All sizes and distances are part of the code, so an access needs no
register of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import INDEX, Value
from jitdelegate.targets.cpu.sources.data_rows import Lines
from jitdelegate.targets.cpu.sources.panels import MatrixLines, PackedLines
from jitdelegate.targets.cpu.walks.register_tile import RegisterTile, loops_over
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
    def key(self) -> str:
        """A text that is equal for tiles with the same code."""
        sizes = (self.rows, self.vectors, self.steps, self.a_steps, self.b_row, self.c_row, self.tail)
        flags = self.is_exact, self.has_bias, self.packed
        distances = [(s.pixel, s.block) for s in self.epilogue.streams]
        return f"{self.products.key} {sizes} {flags} {distances} {self.epilogue.key}"

    @property
    def has_segments(self) -> bool:
        return self.steps > self.products.segment_steps

    @property
    def segments(self) -> list[tuple[int, int]]:
        """[(number, steps of each)] of the segments that are summed on their own."""
        return [(count, steps) for steps, count in split(self.steps, self.products.segment_steps)]


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
        self.prepare(has_segments=shape.has_segments)
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
        """The sums over K, with the bias if the panel has one, for each row and vector, row by row."""
        shape, products = self.shape, self.products
        packed = PackedLines(products, self.vectors, self.w)
        mask = self.mask if shape.is_exact else None
        panel = MatrixLines(products, self.vectors, shape.b_row, mask) if shape.b_row else packed
        starts_at_bias = shape.has_bias and products.starts_at_bias
        zero = self.f.literal(products.sum_type, 0)
        sums = packed.head(0) * shape.rows if starts_at_bias else [zero] * self.count
        tile = RegisterTile(products, Lines(shape.rows, *shape.a_steps), panel, self.vectors, self.sets)
        segments = [(count, loops_over(steps)) for count, steps in shape.segments]
        state = [packed.start(int(shape.has_bias)), a, *sums]
        if shape.has_segments:
            state = tile.walk_in_segments(state, self.totals, segments)
        else:
            state = tile.walk_in_sets(state, segments[0][1])
        return self.results(packed if shape.has_bias else None, state[2:])
