"""The register tile: `rows` pixels times the vectors of one panel, with sums in registers during the loop over K.

A table has the offset of each step of K = (ky, kx, c) from a pixel's first tap, one entry per four channels, so one
short loop serves every window and layout. Pixels are addressed individually: a tile may continue in the next image row.
Windows need no border checks because layouts have halos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.epilogue import Epilogue
from jitdelegate.targets.cpu.indirect_gemm import QUAD
from jitdelegate.targets.cpu.kernel import Generator
from jitdelegate.targets.cpu.panels import line_bytes, read_lines
from jitdelegate.targets.cpu.vector_ir import FLOAT_BYTES, INDEX, POINTER, Value

GEOMETRY = (
    *("width", "a_pixel", "a_row", "c_pixel", "c_row", "c_block", "lanes_left"),
    *("segments", "quads", "singles"),
)
"""The geometry of a layer that a tile function reads: distances in bytes, and counts (quads per segment). Each stream
adds pixel, row and block; the offsets of all quads and singles follow."""
SEGMENT = 128
"""Approximate quads in one segment of a long sum. Segments are added up separately, so that rounding errors grow with
the length of a segment. Measured on MobileNet v1: a hundredth of the time for a third of the error."""


def segments_of(quads: int) -> int:
    """Number of equal segments, of about SEGMENT quads, into which a sum is cut; 1 if no length fits."""
    lengths = [n for n in range(SEGMENT // 2, 2 * SEGMENT) if quads % n == 0 and quads > n]
    return quads // min(lengths, key=lambda n: abs(n - SEGMENT)) if lengths else 1


STACK_ALIGN = 16
"""Stack alignment in bytes that the calling convention guarantees; more would cost a register for the frame."""


@dataclass(frozen=True)
class TileShape:
    """The facts that are fixed in a tile function's code; it reads all others from its layer's geometry.

    Attributes:
        weights: the type of the weights in panels.
        has_blocks: whether each segment of K has scales of its own; other integers have one scale per channel.
    """

    rows: int
    vectors: int
    has_segments: bool
    has_quads: bool
    has_singles: bool
    masked: bool
    epilogue: Epilogue
    weights: str = "float32"
    has_blocks: bool = False

    @property
    def has_scales(self) -> bool:
        """Whether the sums are multiplied by one scale per channel."""
        return self.weights in ("int8", "int4") and not self.has_blocks

    @property
    def key(self) -> str:
        flags = (self.has_segments, self.has_quads, self.has_singles, self.masked, self.has_blocks)
        return f"tile {self.rows}x{self.vectors} {''.join('01'[f] for f in flags)} {self.weights} {self.epilogue.key}"


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
        self.shape = shape
        self.lanes = generator.lanes
        self.vector = generator.vector
        self.vector_bytes = generator.vector_bytes
        self.line_bytes = shape.vectors * generator.vector_bytes
        self.f = generator.module.function(name, parameters)
        geometry = self.f.parameters[3]
        names = [*GEOMETRY, *(f"{part}{k}" for k in range(len(streams)) for part in ("pixel", "row", "block"))]
        self.g = {key: self.f.load(INDEX, geometry + 8 * i, 8) for i, key in enumerate(names)}
        self.offsets = geometry + 8 * len(names)

    def write(self) -> None:
        """Writes the function, which computes `tiles` tiles, starting at pixel `first`."""
        f, g = self.f, self.g
        a, self.w, c, _, first, tiles, *streams = f.parameters
        if self.shape.has_segments:
            size = self.shape.rows * self.shape.vectors * self.vector_bytes
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

        The bias comes last: a large one would cost every partial sum its low bits.
        """
        f, g, shape = self.f, self.g, self.shape
        sums = [f.literal(self.vector, 0.0)] * (shape.rows * shape.vectors)
        heads: Value | int = g["segments"] + 1 if shape.has_blocks else 1 + shape.has_scales
        w, table = self.w + heads * self.line_bytes, self.offsets
        if shape.has_segments:
            w, table, *sums = self._walk_segments(rows, w, table, sums)
        elif shape.has_quads:
            w, table, *sums = self._walk(rows, w, table, sums, g["quads"], QUAD)
        if shape.has_singles:
            w, table, *sums = self._walk(rows, w, table, sums, g["singles"], 1)
        bias = self._line(self.w)
        if shape.has_scales:
            scales = self._line(self.w + self.line_bytes)
            return [f.fma(total, scales[k % shape.vectors], bias[k % shape.vectors]) for k, total in enumerate(sums)]
        return [total + bias[position % shape.vectors] for position, total in enumerate(sums)]

    def _line(self, at: Value) -> list[Value]:
        """A float of each channel."""
        return [self.f.load(self.vector, at + v * self.vector_bytes, 64) for v in range(self.shape.vectors)]

    def _walk_segments(self, rows: list[Value], w: Value, table: Value, zeros: list[Value]) -> list[Value]:
        """Sums all quads, segment by segment; the totals are kept in memory, since the registers are full."""
        f, g = self.f, self.g
        places = [self.totals + i * self.vector_bytes for i in range(len(zeros))]
        for place, zero in zip(places, zeros, strict=True):
            f.store(zero, place, STACK_ALIGN)

        def segment(i: Value, w: Value, table: Value) -> list[Value]:
            w, table, *sums = self._walk(rows, w, table, zeros, g["quads"], QUAD)
            scales = self._line(self.w + (i + 1) * self.line_bytes) if self.shape.has_blocks else []
            for number, (place, part) in enumerate(zip(places, sums, strict=True)):
                total = f.load(self.vector, place, STACK_ALIGN)
                total = f.fma(part, scales[number % len(scales)], total) if scales else total + part
                f.store(total, place, STACK_ALIGN)
            return [w, table]

        w, table = f.loop(g["segments"], segment, w, table)
        return [w, table, *(f.load(self.vector, place, STACK_ALIGN) for place in places)]

    def _walk(
        self, rows: list[Value], w: Value, table: Value, sums: list[Value], count: Value, steps: int
    ) -> list[Value]:
        """Adds the products of `count` table entries of `steps` steps of K each."""
        f = self.f

        def entry(_: Value, w: Value, table: Value, *sums: Value) -> list[Value]:
            after = self._multiply(rows, f.load(INDEX, table, 8), w, list(sums), steps)
            ahead = line_bytes(self.shape.weights, steps) * self.shape.vectors * self.lanes
            return [w + ahead, table + 8, *after]

        return f.loop(count, entry, w, table, *sums)

    def _multiply(self, rows: list[Value], at: Value, w: Value, sums: list[Value], steps: int) -> list[Value]:
        f, vectors = self.f, self.shape.vectors
        # One shared offset and a fixed displacement: a row costs one general register.
        addresses = [row + at for row in rows]
        for k, line in enumerate(read_lines(f, self.shape.weights, w, vectors, self.lanes, steps)):
            for row, address in enumerate(addresses):
                factor = f.broadcast(address + k * FLOAT_BYTES, self.lanes)
                for v in range(vectors):
                    sums[row * vectors + v] = f.fma(factor, line[v], sums[row * vectors + v])
        return sums

    def _finish_pixel(self, pointers: list[Value], results: Sequence[Value]) -> None:
        f, g, shape = self.f, self.g, self.shape
        _, c, *streams = pointers
        for v, result in enumerate(results):
            last = v == shape.vectors - 1
            mask = f.first_lanes(g["lanes_left"], self.lanes) if shape.masked and last else None
            shape.epilogue.store(f, result, streams, c, mask)
            if not last:
                c = c + g["c_block"]
                streams = [s + g[f"block{k}"] for k, s in enumerate(streams)]
