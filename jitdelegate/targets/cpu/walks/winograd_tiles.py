"""Rows of tiles of Winograd's algorithms: data as numbers of each channel at some positions, and sums there as results.
Numbers of the same position lie together, `apart` bytes from those of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.multiply.winograd_algorithm import Algorithm, applied
from jitdelegate.targets.cpu.walks.tile import Tile, TileShape
from jitdelegate.targets.maths.cast import cast


@dataclass(frozen=True)
class TileRow:
    """The facts that are fixed in the code for a row of tiles.

    Attributes:
        across: tiles.
        columns: columns of results of the last tile that lie inside the image.
        rows: of results that lie inside the image.
        row, pixel: bytes between rows and pixels of the image.
        tile, apart: bytes from a tile to the next one, and from a position to the next one.
    """

    algorithm: Algorithm
    across: int
    columns: int
    rows: int
    row: int
    pixel: int
    tile: int
    apart: int

    @property
    def whole(self) -> int:
        """Tiles all columns of which lie inside the image."""
        return self.across - self.is_cut

    @property
    def is_cut(self) -> bool:
        return self.columns < self.algorithm.step


@dataclass(frozen=True)
class DataShape:
    """The facts that are fixed in the code for the data of a row of tiles.

    Attributes:
        dtype, stored: types of the image and of the numbers.
        groups: (channels that are transformed together, how often).
        block: bytes between groups of the image; `line` between those of a tile's numbers.
    """

    tiles: TileRow
    dtype: str
    stored: str
    groups: tuple[tuple[int, int], ...]
    block: int
    line: int


def data_function(generator: Generator, shape: DataShape) -> str:
    """The name of `void data(image, numbers)`."""
    return generator.once("winograd_data", shape, lambda name: _Data(generator, shape, name).write())


class _Data:
    """A function that is being written. Pixels outside the image repeat others: results that need them are not
    stored."""

    def __init__(self, generator: Generator, shape: DataShape, name: str) -> None:
        self.shape, self.tiles, self.algorithm = shape, shape.tiles, shape.tiles.algorithm
        self.f = generator.module.function(name, [("image", POINTER), ("numbers", POINTER)])

    def write(self) -> None:
        state = self.f.parameters
        for lanes, count in self.shape.groups:

            def group(_: Value, image: Value, numbers: Value, lanes: int = lanes) -> list[Value]:
                self._along(image, numbers, lanes)
                return [image + self.shape.block, numbers + self.shape.line]

            state = self.f.loop(count, group, *state)
        self.f.finish()

    def _along(self, image: Value, numbers: Value, lanes: int) -> None:
        """Some channels of all tiles. A tile begins with the columns with which the one before it ends."""
        tiles, side, step = self.tiles, self.algorithm.side, self.algorithm.step

        def columns(image: Value, known: Sequence[Value], count: int) -> list[Sequence[Value]]:
            found = [self._column(image + (side - step + column) * tiles.pixel, lanes) for column in range(count)]
            return [*(known[first : first + side] for first in range(0, len(known), side)), *found]

        def tile(_: Value, image: Value, numbers: Value, *known: Value) -> list[Value]:
            found = columns(image, known, step)
            self._store(found, numbers)
            return [image + step * tiles.pixel, numbers + tiles.tile, *(v for column in found[step:] for v in column)]

        first = [value for column in range(side - step) for value in self._column(image + column * tiles.pixel, lanes)]
        image, numbers, *known = self.f.loop(tiles.whole, tile, image, numbers, *first)
        if tiles.is_cut:
            found = columns(image, known, tiles.columns)
            self._store([*found, *found[-1:] * (step - tiles.columns)], numbers)

    def _column(self, at: Value, lanes: int) -> list[Value]:
        """The numbers of a column of pixels."""
        shape, tiles, side, step = self.shape, self.tiles, self.algorithm.side, self.algorithm.step
        last = side - step + tiles.rows - 1
        element = ELEMENT_TYPES[shape.dtype].nbytes
        loaded = [load(self.f, shape.dtype, at + row * tiles.row, lanes, element) for row in range(last + 1)]
        values = [cast(self.f, value, shape.dtype, shape.stored) for value in loaded]
        return applied(self.f, self.algorithm.data, [*values, *values[-1:] * (step - tiles.rows)])

    def _store(self, columns: Sequence[Sequence[Value]], numbers: Value) -> None:
        side = self.algorithm.side
        for row in range(side):
            for column, value in enumerate(applied(self.f, self.algorithm.data, [each[row] for each in columns])):
                self.f.store(value, numbers + (side * row + column) * self.tiles.apart, 16)


@dataclass(frozen=True)
class ResultShape(TileShape):
    """The facts that are fixed in the code for a row of tiles of results.

    Attributes:
        tiles: of the result.
        block: bytes between vectors of the result.
        tail: channels of the last vector, if that is not full.
    """

    tiles: TileRow | None = None
    block: int = 0
    tail: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        streams = ((stream.row, stream.pixel, stream.block) for stream in self.epilogue.streams)
        return *super().key, *streams


def result_function(generator: Generator, shape: ResultShape) -> str:
    """The name of `void results(sums, bias, result, stream pointers ..., numbers)`."""
    return generator.once("winograd_results", shape.key, lambda name: _Results(generator, shape, name).write())


class _Results(Tile):
    """A function that is being written."""

    def __init__(self, generator: Generator, shape: ResultShape, name: str) -> None:
        super().__init__(generator, shape, name, [])
        assert shape.tiles
        self.tiles, self.algorithm, self.tail = shape.tiles, shape.tiles.algorithm, shape.tail
        self.block, self.blocks = shape.block, [stream.block for stream in shape.epilogue.streams]

    def write(self) -> None:
        f, tiles, streams, step = self.f, self.tiles, self.epilogue.streams, self.algorithm.step
        self.mask = f.first_lanes(f.index(self.tail), self.products.lanes) if self.masked else None
        self.prepare(has_segments=False)
        nbytes, type_ = self.products.bias_bytes, self.products.result_type
        bias = [f.load(type_, self.w + v * nbytes, nbytes) for v in range(self.vectors)]
        rows = [tiles.row, *(stream.row for stream in streams)]
        pixels = [tiles.pixel, *(stream.pixel for stream in streams)]

        def tile(sums: Value, pointers: Sequence[Value], columns: int) -> None:
            vectors = [self._results(sums + v * nbytes, line) for v, line in enumerate(bias)]
            for y in range(tiles.rows):
                for x in range(columns):
                    at = [p + (y * row + x * pixel) for p, row, pixel in zip(pointers, rows, pixels, strict=True)]
                    self.finish_row(at, [results[y][x] for results in vectors])

        def one(_: Value, sums: Value, *pointers: Value) -> list[Value]:
            tile(sums, pointers, step)
            return [sums + tiles.tile, *(p + step * pixel for p, pixel in zip(pointers, pixels, strict=True))]

        sums, *pointers = f.loop(tiles.whole, one, self.a, self.c, *self.streams)
        if tiles.is_cut:
            tile(sums, pointers, tiles.columns)
        f.finish()

    def _results(self, at: Value, bias: Value) -> list[list[Value]]:
        """The results of a vector of sums, row by row."""
        f, apart, algorithm = self.f, self.tiles.apart, self.algorithm
        side, type_, shift = algorithm.side, self.products.result_type, 2 * algorithm.scale_bits
        columns = [
            applied(f, algorithm.results, [f.load(type_, at + (side * y + x) * apart, 32) for y in range(side)])
            for x in range(side)
        ]
        rows = [applied(f, algorithm.results, line) for line in zip(*columns, strict=True)]
        return [[(f.ashr(value, shift) if shift else value) + bias for value in row] for row in rows]

    def lanes_left(self) -> Value:
        assert self.mask is not None
        return self.mask
