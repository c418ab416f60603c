"""Rows of tiles of Winograd's algorithm: data of 4 by 4 pixels as sixteen numbers a channel, and sixteen sums as 2 by 2
results. Numbers of the same position lie together, `apart` bytes from those of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.walks.tile import Tile, TileShape
from jitdelegate.targets.maths.cast import cast

SIDE, STEP = 4, 2
"""Pixels of the data along a side of a tile, and of its results."""
SCALE_BITS = 2
"""Bits by which sums are longer than results."""
GROUP = 16
"""Channels of the data that are transformed together, or half as many."""


@dataclass(frozen=True)
class TileRow:
    """The facts that are fixed in the code for a row of tiles.

    Attributes:
        across: tiles.
        is_last: whether the last column of results lies outside the image.
        is_low: whether the second row of results lies outside the image.
        row, pixel: bytes between rows and pixels of the image.
        tile, apart: bytes from a tile to the next one, and from a position to the next one.
    """

    across: int
    is_last: bool
    is_low: bool
    row: int
    pixel: int
    tile: int
    apart: int


def data_function(generator: Generator, shape: TileRow, dtype: str, depth: int) -> str:
    """The name of `void data(image, numbers)`, for data of bytes with so many channels."""
    key = shape, dtype, depth
    return generator.once("winograd_data", key, lambda name: _Data(generator, shape, dtype, name).write(depth))


class _Data:
    """A function that is being written. Pixels outside the image repeat others: results that need them are not
    stored."""

    def __init__(self, generator: Generator, shape: TileRow, dtype: str, name: str) -> None:
        self.shape, self.dtype = shape, dtype
        self.f = generator.module.function(name, [("image", POINTER), ("numbers", POINTER)])

    def write(self, depth: int) -> None:
        f, (image, numbers) = self.f, self.f.parameters
        groups, rest = divmod(depth, GROUP)

        def group(_: Value, image: Value, numbers: Value) -> list[Value]:
            self._along(image, numbers, GROUP)
            return [image + GROUP, numbers + 2 * GROUP]

        if groups:
            image, numbers = f.loop(groups, group, image, numbers)
        if rest:
            self._along(image, numbers, rest)
        f.finish()

    def _along(self, image: Value, numbers: Value, lanes: int) -> None:
        """Some channels of all tiles. Two columns of a tile are those that the one before it begins with."""
        shape, whole = self.shape, self.shape.across - self.shape.is_last

        def tile(_: Value, image: Value, numbers: Value, *known: Value) -> list[Value]:
            added = [self._column(image + column * shape.pixel, lanes) for column in (2, 3)]
            self._store([known[:SIDE], known[SIDE:], *added], numbers)
            return [image + STEP * shape.pixel, numbers + shape.tile, *added[0], *added[1]]

        first = [self._column(image + column * shape.pixel, lanes) for column in (0, 1)]
        state = self.f.loop(whole, tile, image, numbers, *first[0], *first[1])
        if shape.is_last:
            image, numbers, *known = state
            last = self._column(image + 2 * shape.pixel, lanes)
            self._store([known[:SIDE], known[SIDE:], last, last], numbers)

    def _column(self, at: Value, lanes: int) -> list[Value]:
        """The four numbers of a column of pixels."""
        rows = (0, 1, 2, 2) if self.shape.is_low else range(SIDE)
        loaded = [load(self.f, self.dtype, at + row * self.shape.row, lanes, 1) for row in rows]
        return _four(*(cast(self.f, value, self.dtype, "int16") for value in loaded))

    def _store(self, columns: Sequence[Sequence[Value]], numbers: Value) -> None:
        for row in range(SIDE):
            for column, value in enumerate(_four(*(column[row] for column in columns))):
                self.f.store(value, numbers + (SIDE * row + column) * self.shape.apart, 16)


def _four(a: Value, b: Value, c: Value, d: Value) -> list[Value]:
    """What four numbers along a side of a tile become."""
    return [a - c, b + c, c - b, b - d]


def _two(a: Value, b: Value, c: Value, d: Value) -> list[Value]:
    """The results of four sums."""
    return [a + b + c, b - c - d]


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
        self.tiles, self.tail = shape.tiles, shape.tail
        self.block, self.blocks = shape.block, [stream.block for stream in shape.epilogue.streams]

    def write(self) -> None:
        f, tiles, streams = self.f, self.tiles, self.epilogue.streams
        self.mask = f.first_lanes(f.index(self.tail), self.products.lanes) if self.masked else None
        self.prepare(has_segments=False)
        nbytes, type_ = self.products.bias_bytes, self.products.result_type
        bias = [f.load(type_, self.w + v * nbytes, nbytes) for v in range(self.vectors)]
        rows = [tiles.row, *(stream.row for stream in streams)]
        pixels = [tiles.pixel, *(stream.pixel for stream in streams)]

        def tile(sums: Value, pointers: Sequence[Value], columns: int) -> None:
            vectors = [self._results(sums + v * nbytes, line) for v, line in enumerate(bias)]
            for y in range(STEP - tiles.is_low):
                for x in range(columns):
                    at = [p + (y * row + x * pixel) for p, row, pixel in zip(pointers, rows, pixels, strict=True)]
                    self.finish_row(at, [results[STEP * x + y] for results in vectors])

        def one(_: Value, sums: Value, *pointers: Value) -> list[Value]:
            tile(sums, pointers, STEP)
            return [sums + tiles.tile, *(p + STEP * pixel for p, pixel in zip(pointers, pixels, strict=True))]

        sums, *pointers = f.loop(tiles.across - tiles.is_last, one, self.a, self.c, *self.streams)
        if tiles.is_last:
            tile(sums, pointers, 1)
        f.finish()

    def _results(self, at: Value, bias: Value) -> list[Value]:
        """The results of a vector of sums, column by column."""
        f, apart = self.f, self.tiles.apart

        def column(x: int) -> list[Value]:
            return _two(*(f.load(self.products.sum_type, at + (SIDE * y + x) * apart, 32) for y in range(SIDE)))

        upper, lower = zip(*map(column, range(SIDE)), strict=True)
        pairs = zip(_two(*upper), _two(*lower), strict=True)
        return [f.ashr(result, SCALE_BITS) + bias for pair in pairs for result in pair]

    def lanes_left(self) -> Value:
        assert self.mask is not None
        return self.mask
