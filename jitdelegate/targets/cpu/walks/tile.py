"""The register tile: `rows` pixels times the vectors of one panel, with sums in registers during the loop over K.

A table has the offset of each quad of steps of K = (ky, kx, c) from a pixel's first tap, so one short loop serves every
window and layout. Pixels are addressed individually: a tile may continue in the next image row.
Windows need no border checks because layouts have halos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.element import store_first
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.narrow import Narrowing
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Value
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.cpu.sources.data_rows import Pixels
from jitdelegate.targets.cpu.sources.panels import PackedLines
from jitdelegate.targets.cpu.walks.register_tile import RegisterTile, stack_of_totals

GEOMETRY = (
    *("width", "a_pixel", "a_row", "c_pixel", "c_row", "c_block", "lanes_left"),
    *("segments", "quads", "singles"),
)
"""The geometry of a layer that a tile function reads: distances in bytes, and counts (quads per segment). Each stream
adds pixel, row and block; the offsets of all quads and singles follow."""
UNDER_WAY = 10
"""Products that a core computes at the same time, each of which takes several cycles. Sums of floats are not split for
it, since this would round them otherwise."""


@dataclass(frozen=True)
class TileShape:
    """The facts that are fixed in a tile function's code; it reads all others from its layer's geometry.

    Attributes:
        is_linear: whether rows of pixels follow each other without a gap, in data, results and streams.
        packed: bytes that are stored together of each pixel; 0 where vectors of results are stored one by one.
        still: for each stream, whether it is the same for all pixels; () if that is not known.
    """

    products: Products
    rows: int
    vectors: int
    has_segments: bool
    has_quads: bool
    has_singles: bool
    masked: bool
    epilogue: Epilogue
    is_linear: bool = False
    packed: int = 0
    still: tuple[bool, ...] = ()

    @property
    def key(self) -> str:
        flags = "".join("01"[f] for f in (self.has_segments, self.has_quads, self.has_singles, self.masked))
        steps = f"{self.is_linear} {self.packed} {self.still}"
        return f"tile {self.products.key} {self.rows}x{self.vectors} {flags} {steps} {self.epilogue.key}"


def tile_function(generator: Generator, shape: TileShape) -> str:
    """The name of `void tile(a, weights, c, geometry, first pixel, tiles, stream pointers ...)`, written once."""
    prefix = f"tile_{shape.rows}x{shape.vectors}"
    return generator.once(prefix, shape.key, lambda name: Tile(generator, shape, name).write())


class Tile:
    """A tile function that is being written."""

    def __init__(self, generator: Generator, shape: TileShape, name: str) -> None:
        streams = shape.epilogue.streams
        parameters = [("a", POINTER), ("w", POINTER), ("c", POINTER), ("g", POINTER), ("first", INDEX)]
        parameters += [("tiles", INDEX), *((f"s{k}", POINTER) for k in range(len(streams)))]
        parameters += [("n", POINTER)] if shape.epilogue.numbers else []
        self.shape = shape
        self.products = shape.products
        self.f = generator.module.function(name, parameters)
        geometry = self.f.parameters[3]
        names = [*GEOMETRY, *(f"{part}{k}" for k in range(len(streams)) for part in ("pixel", "row", "block"))]
        self.g = {key: self.f.load(INDEX, geometry + 8 * i, 8) for i, key in enumerate(names)}
        self.offsets = geometry + 8 * len(names)

    def write(self) -> None:
        """Writes the function, which computes `tiles` tiles, starting at pixel `first`."""
        f, g = self.f, self.g
        a, self.w, c, _, first, tiles, *streams = f.parameters
        self.numbers = streams.pop() if self.shape.epilogue.numbers else None
        if self.shape.has_segments:
            self.totals = stack_of_totals(f, self.products, self.shape.rows * self.shape.vectors)
        self.epilogue = self.shape.epilogue
        if self.shape.packed:
            self.narrowing = Narrowing.of(f, self.shape.epilogue, self.numbers, self.products.lanes)
            self.epilogue = self.narrowing.epilogue
        self.steps = [(g["a_pixel"], g["a_row"]), (g["c_pixel"], g["c_row"])]
        self.steps += [(g[f"pixel{k}"], g[f"row{k}"]) for k in range(len(streams))]
        pointers, x = [a, c, *streams], first
        if self.shape.is_linear:
            starts = [self._moved(number, p, first * self.steps[number][0]) for number, p in enumerate(pointers)]
        else:
            y, x = first // g["width"], first % g["width"]
            starts = [p + (y * row + x * pixel) for p, (pixel, row) in zip(pointers, self.steps, strict=True)]
            # At the end of a row, a pointer continues at the start of the next row.
            self.wraps = [row - (g["width"] - 1) * pixel for pixel, row in self.steps]
        f.loop(tiles, lambda _, x, *pointers: self._tile(x, list(pointers)), x, *starts)
        f.finish()

    def _moved(self, number: int, pointer: Value, distance: Value) -> Value:
        """Pointer `number` moved along the pixels, unless it is that of a stream that stands still."""
        still = self.shape.still and number > 1 and self.shape.still[number - 2]
        return pointer if still else pointer + distance

    def _tile(self, x: Value, pointers: list[Value]) -> list[Value]:
        rows = []
        for _ in range(self.shape.rows):
            rows.append(pointers)
            x, pointers = self._next_pixel(x, pointers)
        results = self._accumulate([row[0] for row in rows])
        for row, pixel in enumerate(rows):
            self._finish_pixel(pixel, results[row * self.shape.vectors : (row + 1) * self.shape.vectors])
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

    def _accumulate(self, rows: list[Value]) -> list[Value]:
        """bias + sum over K for each row and vector, row by row."""
        f, g, shape, products = self.f, self.g, self.shape, self.products
        zero, count = f.literal(products.sum_type, 0), shape.rows * shape.vectors
        panel = PackedLines(products, shape.vectors, self.w)
        sums = panel.head(0) * shape.rows if products.starts_at_bias else [zero] * count
        heads = g["segments"] + 1 if products.scales > 1 else f.index(1 + products.scales)
        tile = RegisterTile(
            products,
            Pixels(rows, self.offsets, products.step_bytes),
            panel,
            shape.vectors,
            sets=max(1, min(QUAD, UNDER_WAY // count)) if products.accumulator == "int32" else 1,
            scales=panel.head if products.scales > 1 else None,
        )
        state = [panel.start(heads), self.offsets, *sums]
        if shape.has_segments:
            state = tile.walk_in_segments(state, self.totals, [(g["segments"], [(g["quads"], QUAD)])])
        elif shape.has_quads:
            state = tile.walk_in_sets(state, [(g["quads"], QUAD)])
        if shape.has_singles:
            state = tile.walk(state, [(g["singles"], 1)])
        sums = state[2:]
        if products.starts_at_bias:
            return sums
        results = sums if sums[0].type == products.result_type else [products.widened(f, total) for total in sums]
        bias = panel.head(0)
        scales: Sequence[Value | None] = panel.head(1) if products.scales == 1 else [None] * shape.vectors
        return [
            products.result(f, result, bias[number % shape.vectors], scales[number % shape.vectors])
            for number, result in enumerate(results)
        ]

    def _at_next_vector(self, number: int, pointer: Value) -> Value:
        """The pointer to stream `number` at the next vector. One element for all of them is read once, as far as no
        store comes between."""
        is_same = self.shape.packed and self.shape.epilogue.streams[number].splat
        return pointer if is_same else pointer + self.g[f"block{number}"]

    def _finish_pixel(self, pointers: list[Value], results: Sequence[Value]) -> None:
        f, g, shape, packed = self.f, self.g, self.shape, list[Value]()
        _, c, *streams = pointers
        for v, result in enumerate(results):
            last = v == shape.vectors - 1
            mask = f.first_lanes(g["lanes_left"], self.products.lanes) if shape.masked and last else None
            if shape.packed:
                packed.append(self.epilogue.value(f, result, streams, mask, self.numbers))
            else:
                self.epilogue.store(f, result, streams, c, mask, self.numbers)
            if not last and not shape.packed:
                c = c + g["c_block"]
            if not last:
                streams = [self._at_next_vector(k, s) for k, s in enumerate(streams)]
        if packed:
            store_first(f, shape.epilogue.dtype, self.narrowing.in_order(f, packed), shape.packed, c)
