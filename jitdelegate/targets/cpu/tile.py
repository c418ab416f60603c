"""The register tile: `rows` pixels times the vectors of one panel, with sums in registers during the loop over K.

A table has the offset of each quad of steps of K = (ky, kx, c) from a pixel's first tap, so one short loop serves every
window and layout. Pixels are addressed individually: a tile may continue in the next image row.
Windows need no border checks because layouts have halos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.epilogue import Epilogue
from jitdelegate.targets.cpu.kernel import Generator
from jitdelegate.targets.cpu.products import QUAD, STEP_BYTES, Products
from jitdelegate.targets.cpu.vector_ir import INDEX, POINTER, Value

GEOMETRY = (
    *("width", "a_pixel", "a_row", "c_pixel", "c_row", "c_block", "lanes_left"),
    *("segments", "quads", "singles"),
)
"""The geometry of a layer that a tile function reads: distances in bytes, and counts (quads per segment). Each stream
adds pixel, row and block; the offsets of all quads and singles follow."""
STACK_ALIGN = 16
"""Stack alignment in bytes that the calling convention guarantees; more would cost a register for the frame."""


@dataclass(frozen=True)
class TileShape:
    """The facts that are fixed in a tile function's code; it reads all others from its layer's geometry."""

    products: Products
    rows: int
    vectors: int
    has_segments: bool
    has_quads: bool
    has_singles: bool
    masked: bool
    epilogue: Epilogue

    @property
    def key(self) -> str:
        flags = "".join("01"[f] for f in (self.has_segments, self.has_quads, self.has_singles, self.masked))
        return f"tile {self.products.key} {self.rows}x{self.vectors} {flags} {self.epilogue.key}"


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
            size = self.shape.rows * self.shape.vectors * self.products.bias_bytes
            self.totals = f.emit(POINTER, f"alloca [{size} x i8], align {STACK_ALIGN}")
        y, x = first // g["width"], first % g["width"]
        self.steps = [(g["a_pixel"], g["a_row"]), (g["c_pixel"], g["c_row"])]
        self.steps += [(g[f"pixel{k}"], g[f"row{k}"]) for k in range(len(streams))]
        starts = [p + (y * row + x * pixel) for p, (pixel, row) in zip((a, c, *streams), self.steps, strict=True)]
        # At the end of a row, a pointer continues at the start of the next row.
        self.wraps = [row - (g["width"] - 1) * pixel for pixel, row in self.steps]
        f.loop(tiles, lambda _, x, *pointers: self._tile(x, list(pointers)), x, *starts)
        f.finish()

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
        following = x + 1
        at_end = f.compare("eq", following, self.g["width"])
        moved = [
            p + f.select(at_end, wrap, pixel)
            for p, wrap, (pixel, _) in zip(pointers, self.wraps, self.steps, strict=True)
        ]
        return f.select(at_end, f.index(0), following), moved

    def _accumulate(self, rows: list[Value]) -> list[Value]:
        """bias + sum over K for each row and vector, row by row.

        The bias comes last: a large one would cost every partial sum of floats its low bits.
        """
        f, g, shape, products = self.f, self.g, self.shape, self.products
        sums = [f.literal(products.sum_type, 0)] * (shape.rows * shape.vectors)
        heads = g["segments"] + 1 if products.scales > 1 else self.f.index(1 + products.scales)
        w, table = self.w + heads * (shape.vectors * products.bias_bytes), self.offsets
        if shape.has_segments:
            w, table, *sums = self._walk_segments(rows, w, table, sums)
        elif shape.has_quads:
            w, table, *sums = self._walk(rows, w, table, sums, g["quads"], QUAD)
        if shape.has_singles:
            w, table, *sums = self._walk(rows, w, table, sums, g["singles"], 1)
        type_ = products.result_type
        results = sums if sums[0].type == type_ else [products.widened(f, total) for total in sums]
        bias = self._line(0)
        scales: Sequence[Value | None] = self._line(1) if products.scales == 1 else [None] * shape.vectors
        return [
            products.result(f, result, bias[position % shape.vectors], scales[position % shape.vectors])
            for position, result in enumerate(results)
        ]

    def _line(self, number: Value | int) -> list[Value]:
        """A number of each channel, from a line at the panel's beginning."""
        products, vectors = self.products, self.shape.vectors
        at = self.w + number * (vectors * products.bias_bytes)
        return [self.f.load(products.result_type, at + v * products.bias_bytes, 64) for v in range(vectors)]

    def _walk_segments(self, rows: list[Value], w: Value, table: Value, zeros: list[Value]) -> list[Value]:
        """Sums all quads, segment by segment; the totals are kept in memory, since the registers are full."""
        f, g, products, type_ = self.f, self.g, self.products, self.products.result_type
        places = [self.totals + i * products.bias_bytes for i in range(len(zeros))]
        for place in places:
            f.store(f.literal(type_, 0), place, STACK_ALIGN)

        def segment(i: Value, w: Value, table: Value) -> list[Value]:
            w, table, *sums = self._walk(rows, w, table, zeros, g["quads"], QUAD)
            scales = self._line(i + 1) if products.scales > 1 else []
            for number, (place, part) in enumerate(zip(places, sums, strict=True)):
                total = f.load(type_, place, STACK_ALIGN)
                if scales:
                    total = f.fma(part, scales[number % len(scales)], total)
                else:
                    total = total + products.widened(f, part)
                f.store(total, place, STACK_ALIGN)
            return [w, table]

        w, table = f.loop(g["segments"], segment, w, table)
        return [w, table, *(f.load(type_, place, STACK_ALIGN) for place in places)]

    def _walk(
        self, rows: list[Value], w: Value, table: Value, sums: list[Value], count: Value, steps: int
    ) -> list[Value]:
        """Adds the products of `count` table entries of `steps` steps of K each."""
        f = self.f

        def entry(_: Value, w: Value, table: Value, *sums: Value) -> list[Value]:
            after = self._multiply(rows, f.load(INDEX, table, 8), w, list(sums), steps)
            return [w + self.shape.vectors * self.products.line_bytes(steps), table + 8, *after]

        return f.loop(count, entry, w, table, *sums)

    def _multiply(self, rows: list[Value], at: Value, w: Value, sums: list[Value], steps: int) -> list[Value]:
        f, vectors, products = self.f, self.shape.vectors, self.products
        # One shared offset and a fixed displacement: a row costs one general register.
        addresses = [row + at for row in rows]
        for k, line in enumerate(products.lines(f, w, vectors, steps)):
            for row, address in enumerate(addresses):
                data = products.data(f, address + k * STEP_BYTES)
                for v in range(vectors):
                    sums[row * vectors + v] = products.add(f, data, line[v], sums[row * vectors + v])
        return sums

    def _finish_pixel(self, pointers: list[Value], results: Sequence[Value]) -> None:
        f, g, shape = self.f, self.g, self.shape
        _, c, *streams = pointers
        for v, result in enumerate(results):
            last = v == shape.vectors - 1
            mask = f.first_lanes(g["lanes_left"], self.products.lanes) if shape.masked and last else None
            shape.epilogue.store(f, result, streams, c, mask, self.numbers)
            if not last:
                c = c + g["c_block"]
                streams = [s + g[f"block{k}"] for k, s in enumerate(streams)]
