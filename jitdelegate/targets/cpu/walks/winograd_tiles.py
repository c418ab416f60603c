"""Rows of tiles of Winograd's algorithms: data as numbers of each channel at some positions, and sums there as results.
Numbers of the same position lie together, `apart` bytes from those of the next one.

Functions read their layer's geometry at run time, so that layers share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Value
from jitdelegate.targets.cpu.multiply.winograd_algorithm import Algorithm, applied
from jitdelegate.targets.cpu.walks.tile import Tile, TileShape
from jitdelegate.targets.maths.cast import cast

DATA_GEOMETRY = "whole", "row", "pixel", "tile", "apart", "groups", "block"
"""The geometry of a layer's data: tiles all columns of which lie inside the image; bytes between rows and pixels of the
image, from a tile's numbers to those of the next one, and from a position to the next one; groups of channels, and
bytes between those of the image."""
RESULT_GEOMETRY = "whole", "row", "pixel", "tile", "apart", "block", "lanes_left"
"""The same of its results, where blocks are vectors; channels of the last one. Each stream adds row, pixel and
block."""


@dataclass(frozen=True)
class TileRow:
    """The facts that are fixed in the code for a row of tiles.

    Attributes:
        columns: columns of results of a last tile that lie inside the image; 0 if all tiles are whole.
        rows: of results that lie inside the image.
    """

    algorithm: Algorithm
    columns: int
    rows: int


@dataclass(frozen=True)
class DataShape:
    """The facts that are fixed in the code for the data of a row of tiles.

    Attributes:
        dtype, stored: types of the image and of the numbers.
        lanes: channels of a group, which are transformed together; those behind the groups, if there are any.
    """

    tiles: TileRow
    dtype: str
    stored: str
    lanes: tuple[int, ...]


def data_function(generator: Generator, shape: DataShape) -> str:
    """The name of `void data(image, numbers, geometry)`."""
    return generator.once("winograd_data", shape, lambda name: _Data(generator, shape, name).write())


def _read(f: Function, geometry: Value, names: Sequence[str]) -> dict[str, Value]:
    return {name: f.load(INDEX, geometry + 8 * number, 8) for number, name in enumerate(names)}


class _Data:
    """A function that is being written. Pixels outside the image repeat others: results that need them are not
    stored."""

    def __init__(self, generator: Generator, shape: DataShape, name: str) -> None:
        self.shape, self.tiles, self.algorithm = shape, shape.tiles, shape.tiles.algorithm
        self.f = generator.module.function(name, [(part, POINTER) for part in ("image", "numbers", "geometry")])

    def write(self) -> None:
        f, (image, numbers, geometry), (lanes, *rest) = self.f, self.f.parameters, self.shape.lanes
        self.g = _read(f, geometry, DATA_GEOMETRY)
        line = lanes * ELEMENT_TYPES[self.shape.stored].nbytes

        def group(_: Value, image: Value, numbers: Value) -> list[Value]:
            self._along(image, numbers, lanes)
            return [image + self.g["block"], numbers + line]

        image, numbers = f.loop(self.g["groups"], group, image, numbers)
        for count in rest:
            self._along(image, numbers, count)
        f.finish()

    def _along(self, image: Value, numbers: Value, lanes: int) -> None:
        """Some channels of all tiles. A tile begins with the columns with which the one before it ends."""
        tiles, side, step = self.tiles, self.algorithm.side, self.algorithm.step

        def columns(image: Value, count: int) -> tuple[Value, list[Value]]:
            found = list[Value]()
            for _ in range(count):
                found += self._column(image, lanes)
                image = image + self.g["pixel"]
            return image, found

        def tile(_: Value, image: Value, numbers: Value, *known: Value) -> list[Value]:
            image, found = columns(image, step)
            self._store([*known, *found], numbers)
            return [image, numbers + self.g["tile"], *[*known, *found][step * side :]]

        image, found = columns(image, side - step)
        image, numbers, *known = self.f.loop(self.g["whole"], tile, image, numbers, *found)
        if tiles.columns:
            _, found = columns(image, tiles.columns)
            self._store([*known, *found, *found[-side:] * (step - tiles.columns)], numbers)

    def _column(self, at: Value, lanes: int) -> list[Value]:
        """The numbers of a column of pixels."""
        f, dtype, stored, outside = self.f, self.shape.dtype, self.shape.stored, self.algorithm.step - self.tiles.rows
        values = list[Value]()
        for _ in range(self.algorithm.side - outside):
            values.append(cast(f, load(f, dtype, at, lanes, ELEMENT_TYPES[dtype].nbytes), dtype, stored))
            at = at + self.g["row"]
        return applied(f, self.algorithm.data, [*values, *values[-1:] * outside])

    def _store(self, numbers: Sequence[Value], at: Value) -> None:
        """Stores the numbers of a tile, which are given column by column."""
        side = self.algorithm.side
        for row in range(side):
            for value in applied(self.f, self.algorithm.data, numbers[row::side]):
                self.f.store(value, at, 16)
                at = at + self.g["apart"]


@dataclass(frozen=True)
class ResultShape(TileShape):
    """The facts that are fixed in the code for a row of tiles of results.

    Attributes:
        still: for each stream, whether it is the same for all pixels.
    """

    tiles: TileRow | None = None
    still: tuple[bool, ...] = ()


def result_function(generator: Generator, shape: ResultShape) -> str:
    """The name of `void results(sums, bias, result, geometry, stream pointers ..., numbers)`."""
    return generator.once("winograd_results", shape.key, lambda name: _Results(generator, shape, name).write())


class _Results(Tile):
    """A function that is being written."""

    def __init__(self, generator: Generator, shape: ResultShape, name: str) -> None:
        super().__init__(generator, shape, name, [("g", POINTER)])
        assert shape.tiles
        self.tiles, self.algorithm = shape.tiles, shape.tiles.algorithm
        streams = range(len(self.streams))
        names = [*RESULT_GEOMETRY, *(f"{part}{k}" for k in streams for part in ("row", "pixel", "block"))]
        self.g = _read(self.f, self.f.parameters[3], names)
        self.block, self.blocks = self.g["block"], [self.g[f"block{k}"] for k in streams]
        moving = ["", *(None if is_still else str(k) for k, is_still in enumerate(shape.still))]
        self.steps = [None if k is None else (self.g[f"row{k}"], self.g[f"pixel{k}"]) for k in moving]

    def write(self) -> None:
        f, tiles, step = self.f, self.tiles, self.algorithm.step
        self.prepare(has_segments=False)
        nbytes, type_ = self.products.bias_bytes, self.products.result_type
        bias = [f.load(type_, self.w + v * nbytes, nbytes) for v in range(self.vectors)]

        def tile(sums: Value, pointers: Sequence[Value], columns: int) -> None:
            vectors = [self._results(sums + v * nbytes, line) for v, line in enumerate(bias)]
            for y in range(tiles.rows):
                at = pointers
                for x in range(columns):
                    self.finish_row(at, [results[x][y] for results in vectors])
                    at = self._moved(at, 1)
                pointers = self._moved(pointers, 0)

        def one(_: Value, sums: Value, *pointers: Value) -> list[Value]:
            tile(sums, pointers, step)
            following: Sequence[Value] = pointers
            for _column in range(step):
                following = self._moved(following, 1)
            return [sums + self.g["tile"], *following]

        sums, *pointers = f.loop(self.g["whole"], one, self.a, self.c, *self.streams)
        if tiles.columns:
            tile(sums, pointers, tiles.columns)
        f.finish()

    def _moved(self, pointers: Sequence[Value], axis: int) -> list[Value]:
        """Pointers to the results and the streams at the next row or pixel."""
        return [p + step[axis] if step else p for p, step in zip(pointers, self.steps, strict=True)]

    def _results(self, at: Value, bias: Value) -> list[list[Value]]:
        """The results of a vector of sums, column by column."""
        f, algorithm, type_ = self.f, self.algorithm, self.products.result_type
        side, shift, rows = algorithm.side, 2 * algorithm.scale_bits, list[list[Value]]()
        for _ in range(side):
            line = list[Value]()
            for _ in range(side):
                line.append(f.load(type_, at, 32))
                at = at + self.g["apart"]
            rows.append(applied(f, algorithm.results, line))
        columns = [applied(f, algorithm.results, column) for column in zip(*rows, strict=True)]
        return [[(f.ashr(value, shift) if shift else value) + bias for value in column] for column in columns]

    def lanes_left(self) -> Value:
        return self.f.first_lanes(self.g["lanes_left"], self.products.lanes)
