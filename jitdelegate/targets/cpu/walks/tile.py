"""Tile functions: some rows of data times the vectors of one panel, and what becomes of the sums.

Those of a Contract read their layer's geometry at run time, so that layers share them. A table has the offset of each
quad of steps of K = (ky, kx, c) from a pixel's first tap, so one short loop serves every window and layout. Pixels are
addressed individually: a tile may continue in the next image row. Windows need no border checks because layouts have
halos.

Those of two matrices have all sizes and distances in their code, so an access needs no register of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import store_first
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.narrow import Narrowing
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.sources.panels import MatrixLines, PackedLines, PanelLines
from jitdelegate.targets.cpu.walks.register_tile import (
    DataRows,
    Lines,
    Loops,
    Pixels,
    RegisterTile,
    loops_over,
    sets_of,
)

GEOMETRY = (
    *("width", "a_pixel", "a_row", "c_pixel", "c_row", "c_block", "lanes_left"),
    *("segments", "quads", "singles"),
)
"""The geometry of a layer that a tile function reads: distances in bytes, and counts (quads per segment). Each stream
adds pixel, row and block; the offsets of all quads and singles follow."""


@dataclass(frozen=True)
class TileShape:
    """The facts that are fixed in the code of any tile function.

    Attributes:
        masked: whether the last vector of results is not full.
        packed: bytes that are stored together of each row; 0 where vectors of results are stored one by one.
        halved: whether only half of the last vector is multiplied.
    """

    products: Products
    rows: int
    vectors: int
    masked: bool
    epilogue: Epilogue
    packed: int = 0
    halved: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for functions with the same code."""
        facts = (getattr(self, field.name) for field in fields(self) if field.name not in ("products", "epilogue"))
        return self.products.key, self.epilogue.key, *facts


class Tile:
    """A tile function that is being written, `void tile(a, weights, c ..., streams ..., numbers)`.

    Attributes:
        block: bytes from one vector of results to the next one.
        blocks: the same for each stream.
    """

    block: Value | int
    blocks: Sequence[Value | int]

    def __init__(self, generator: Generator, shape: TileShape, name: str, further: Sequence[tuple[str, str]]) -> None:
        epilogue = shape.epilogue
        parameters = [("a", POINTER), ("w", POINTER), ("c", POINTER), *further]
        parameters += [(f"s{k}", POINTER) for k in range(len(epilogue.streams))]
        parameters += [("n", POINTER)] if epilogue.numbers else []
        self.f = generator.module.function(name, parameters)
        self.a, self.w, self.c, *rest = self.f.parameters
        self.numbers = rest.pop() if epilogue.numbers else None
        self.streams = rest[len(further) :]
        self.products, self.vectors, self.packed, self.epilogue = shape.products, shape.vectors, shape.packed, epilogue
        self.rows, self.count, self.masked = shape.rows, shape.products.sums(shape.rows, shape.vectors), shape.masked
        self.halved = shape.halved
        # sums of floats are not split, since this would round them otherwise
        is_split = shape.products.accumulator == "int32" and shape.products.turn > 1
        self.sets = sets_of(self.count) if is_split else 1

    def prepare(self, *, has_segments: bool) -> None:
        """Writes what is done once, before the first tile."""
        self.totals = RegisterTile.stack(self.f, self.products, self.count) if has_segments else None
        if self.packed:
            self.narrowing = Narrowing.of(self.f, self.epilogue, self.numbers, self.products.lanes)
            self.dtype, self.epilogue = self.epilogue.dtype, self.narrowing.epilogue

    def lanes_left(self) -> Value:
        """The mask of the last vector, where that is not full."""
        raise NotImplementedError

    def sums(
        self,
        data: DataRows,
        position: Value,
        lines: PanelLines | None,
        segments: Sequence[tuple[Value | int, Loops]],
        singles: Loops = (),
        *,
        has_bias: bool = True,
    ) -> list[Value]:
        """bias + sum over K for each row and vector, row by row.

        Args:
            lines: those of the panel where it is not packed.
            segments: as in `RegisterTile.walk_in_segments`; a single one if there is no memory for totals.
            singles: loops over the steps behind them.
        """
        f, products, panel = self.f, self.products, PackedLines(self.products, self.vectors, self.w)
        starts_at_bias = has_bias and products.starts_at_bias
        sums = products.starts(f, self.rows, panel.bias()) if starts_at_bias else self._zeros()
        tile = RegisterTile(products, data, lines or panel, self.sets, panel if products.scales > 1 else None)
        state = [panel.start(has_bias=has_bias, has_scales=products.scales == 1), position, *sums]
        if self.totals:
            state = tile.walk_in_segments(state, self.totals, segments)
        elif segments:
            state = tile.walk_in_sets(state, segments[0][1])
        if products.wide != products:
            tile = replace(tile, products=products.wide, panel=PackedLines(products.wide, self.vectors, self.w))
        sums = products.by_row(f, tile.walk(state, singles)[2:], self.rows, self.vectors)
        results = [each if each.type == products.result_type else products.widened(f, each) for each in sums]
        return self._with_bias(panel, results) if has_bias and not starts_at_bias else results

    def _zeros(self) -> list[Value]:
        f, products, zero = self.f, self.products, self.f.literal(self.products.sum_type, 0)
        if not self.halved:
            return [zero] * self.count
        return [*[zero] * (self.vectors - 1), f.literal(products.half_type, 0)] * self.rows

    def _with_bias(self, panel: PackedLines, results: Sequence[Value]) -> list[Value]:
        f, products, bias, count = self.f, self.products, panel.bias(), self.vectors
        scales: Sequence[Value | None] = panel.scales(panel.start()) if products.scales == 1 else [None] * count
        return [products.result(f, total, bias[k % count], scales[k % count]) for k, total in enumerate(results)]

    def finish_row(self, pointers: Sequence[Value], results: Sequence[Value]) -> None:
        """Stores the results of a row; the pointers are to its results and streams."""
        f, together, (c, *streams) = self.f, list[Value](), pointers
        for v, result in enumerate(results):
            last = v == self.vectors - 1
            mask = self.lanes_left() if self.masked and last else None
            if self.packed:
                together.append(self.epilogue.value(f, result, streams, mask, self.numbers))
            else:
                self.epilogue.store(f, result, streams, c, mask, self.numbers)
            if not last:
                c = c if self.packed else c + self.block
                streams = [self._at_next_vector(k, s) for k, s in enumerate(streams)]
        if together:
            store_first(f, self.dtype, self.narrowing.in_order(f, together), self.packed, c)

    def _at_next_vector(self, number: int, pointer: Value) -> Value:
        """The pointer to stream `number` at the next vector. One element for all of them is read once, as far as no
        store comes between."""
        is_same = self.packed and self.epilogue.streams[number].splat
        return pointer if is_same else pointer + self.blocks[number]


@dataclass(frozen=True)
class PixelTileShape(TileShape):
    """The facts that are fixed in the code of a Contract's tile function.

    Attributes:
        is_linear: whether rows of pixels follow each other without a gap, in data, results and streams.
        still: for each stream, whether it is the same for all pixels; () if that is not known.
    """

    has_segments: bool = False
    has_quads: bool = True
    has_singles: bool = False
    is_linear: bool = False
    still: tuple[bool, ...] = ()


def pixel_tile_function(generator: Generator, shape: PixelTileShape) -> str:
    """The name of `void tile(a, weights, c, geometry, first pixel, tiles, stream pointers ...)`, written once."""
    prefix = f"tile_{shape.rows}x{shape.vectors}"
    return generator.once(prefix, shape.key, lambda name: PixelTile(generator, shape, name).write())


class PixelTile(Tile):
    """A Contract's tile function that is being written."""

    def __init__(self, generator: Generator, shape: PixelTileShape, name: str) -> None:
        super().__init__(generator, shape, name, [("g", POINTER), ("first", INDEX), ("tiles", INDEX)])
        self.shape, streams, geometry = shape, range(len(self.streams)), self.f.parameters[3]
        names = [*GEOMETRY, *(f"{part}{k}" for k in streams for part in ("pixel", "row", "block"))]
        self.g = {key: self.f.load(INDEX, geometry + 8 * i, 8) for i, key in enumerate(names)}
        self.offsets = geometry + 8 * len(names)
        self.block, self.blocks = self.g["c_block"], [self.g[f"block{k}"] for k in streams]

    def write(self) -> None:
        """Writes the function, which computes `tiles` tiles, starting at pixel `first`."""
        f, g, (first, tiles) = self.f, self.g, self.f.parameters[4:6]
        self.prepare(has_segments=self.shape.has_segments)
        self.steps = [(g["a_pixel"], g["a_row"]), (g["c_pixel"], g["c_row"])]
        self.steps += [(g[f"pixel{k}"], g[f"row{k}"]) for k in range(len(self.streams))]
        pointers, x = [self.a, self.c, *self.streams], first
        if self.shape.is_linear:
            starts = [self._moved(number, p, first * self.steps[number][0]) for number, p in enumerate(pointers)]
        else:
            y, x = first // g["width"], first % g["width"]
            starts = [p + (y * row + x * pixel) for p, (pixel, row) in zip(pointers, self.steps, strict=True)]
            # At the end of a row, a pointer continues at the start of the next row.
            self.wraps = [row - (g["width"] - 1) * pixel for pixel, row in self.steps]
        f.loop(tiles, lambda _, x, *pointers: self._tile(x, list(pointers)), x, *starts)
        f.finish()

    def lanes_left(self) -> Value:
        return self.f.first_lanes(self.g["lanes_left"], self.products.lanes)

    def _moved(self, number: int, pointer: Value, distance: Value) -> Value:
        """Pointer `number` moved along the pixels, unless it is that of a stream that stands still."""
        still = self.shape.still and number > 1 and self.shape.still[number - 2]
        return pointer if still else pointer + distance

    def _tile(self, x: Value, pointers: list[Value]) -> list[Value]:
        rows = []
        for _ in range(self.shape.rows):
            rows.append(pointers)
            x, pointers = self._next_pixel(x, pointers)
        results = self._sums([row[0] for row in rows])
        for row, (_, *pixel) in enumerate(rows):
            self.finish_row(pixel, results[row * self.vectors : (row + 1) * self.vectors])
        return [x, *pointers]

    def _next_pixel(self, x: Value, pointers: list[Value]) -> tuple[Value, list[Value]]:
        f = self.f
        if self.shape.is_linear:
            return x, [self._moved(number, p, self.steps[number][0]) for number, p in enumerate(pointers)]
        following = x + 1
        at_end = f.compare("eq", following, self.g["width"])
        moved = [
            self._moved(number, p, f.select(at_end, wrap, pixel))
            for number, (p, wrap, (pixel, _)) in enumerate(zip(pointers, self.wraps, self.steps, strict=True))
        ]
        return f.select(at_end, f.index(0), following), moved

    def _sums(self, rows: list[Value]) -> list[Value]:
        g, shape = self.g, self.shape
        segments = [(g["segments"], [(g["quads"], self.products.turn)])] if shape.has_quads else []
        singles = [(g["singles"], 1)] if shape.has_singles else []
        return self.sums(Pixels(rows, self.products.step_bytes), self.offsets, None, segments, singles)


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
        return self.sums(Lines(shape.rows, *shape.a_steps), a, lines, segments, has_bias=shape.has_bias)
