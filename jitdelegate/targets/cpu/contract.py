"""Contract: implicit GEMM, cut into chunks of pixels and of panels of output channels that tiles then walk through.

A panel is up to four vectors of output channels: [bias][K][vectors * lanes].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.layout import FLOAT_BYTES, Layout
from jitdelegate.targets.cpu.kernel import Epilogue, Generator, Job, Kernel, Memory, Stream, split
from jitdelegate.targets.cpu.sweep import QUAD, Sweep, sweeps
from jitdelegate.targets.cpu.tile import TileShape, TileWriter, segments_of
from jitdelegate.targets.cpu.vector_ir import POINTER, Value

CHUNK_WORK = 4_000_000
"""Floating-point operations that are worth a chunk of their own."""
FEWEST_CHUNKS = 16
"""Chunks that a large layer is cut into at least, so that threads end together."""
SMALL_WORK = 400_000
"""Floating-point operations below which cutting does not pay."""


def pack(generator: Generator, weights: np.ndarray, bias: np.ndarray | None) -> tuple[bytes, list[tuple[int, int]]]:
    """f32[O, K] and f32[O] as panels one after another, with the panels' widths."""
    outputs, depth = weights.shape
    lanes = generator.lanes
    blocks = -(-outputs // lanes)
    matrix = np.zeros((1 + depth, blocks * lanes), np.float32)
    matrix[1:, :outputs] = weights.T
    if bias is not None:
        matrix[0, :outputs] = bias
    widths = split(blocks, len(generator.machine.tiles))  # nearly equal panels
    parts, start = [], 0
    for vectors, count in widths:
        for _ in range(count):
            parts.append(np.ascontiguousarray(matrix[:, start : start + vectors * lanes]).tobytes())
            start += vectors * lanes
    return b"".join(parts), widths


@dataclass(frozen=True)
class Multiplication:
    """One sweep with everything a chunk function needs to run part of it."""

    sweep: Sweep
    geometry: str
    widths: list[tuple[int, int]]
    weights: int
    panel_bytes: Callable[[int], int]
    streams: tuple[Stream, ...]
    c: Layout
    masked: bool
    epilogue: Epilogue
    has_segments: bool
    has_quads: bool
    has_singles: bool


class ContractWriter:
    """Writes the jobs of Contract nodes."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.tiles = TileWriter(generator)

    def jobs(
        self, form: Contract, a: Memory, c: Memory, weights: np.ndarray, bias: np.ndarray | None, epilogue: Epilogue
    ) -> list[Job]:
        """The jobs of a whole node; `weights` are f32[O, kh, kw, I]."""
        outputs = weights.shape[0] // form.groups
        inputs = weights.shape[3]
        found = []
        for group in range(form.groups):
            rows = slice(group * outputs, (group + 1) * outputs)
            part = None if bias is None else bias[rows]
            shift = group * outputs * FLOAT_BYTES
            for sweep in sweeps(form, a.layout, c.layout, weights[rows]):
                moved = replace(
                    sweep, a_start=sweep.a_start + group * inputs * FLOAT_BYTES, c_start=sweep.c_start + shift
                )
                shifted = Epilogue(epilogue.expr, tuple(_shift(s, shift) for s in epilogue.streams))
                found += self._sweep_jobs(moved, a, c, part, shifted)
        return found

    def multiplication(self, sweep: Sweep, c: Layout, bias: np.ndarray | None, epilogue: Epilogue) -> Multiplication:
        """Packs the weights of a sweep and writes down its geometry."""
        generator = self.generator
        quads, singles = sweep.order()
        packed, widths = pack(generator, sweep.weights[:, np.concatenate([quads, singles])], bias)
        outputs, depth = sweep.weights.shape
        streams = tuple(
            s.stepped(sweep.y * s.row + sweep.x * s.pixel, sweep.step_y, sweep.step_x) for s in epilogue.streams
        )
        tail = outputs % generator.lanes
        masked = bool(tail) and (not c.blocked or epilogue.lanes_to_mask(c) > 0)
        values = [sweep.columns, sweep.a_pixel, sweep.a_row, sweep.c_pixel, sweep.c_row, c.block, tail]
        segments = segments_of(len(quads) // QUAD)
        values += [segments, len(quads) // QUAD // segments, len(singles)]
        for stream in streams:
            values += [stream.pixel, stream.row, stream.block]
        offsets = sweep.offsets(generator.lanes)
        values += [*offsets[quads[::QUAD]].tolist(), *offsets[singles].tolist()]
        return Multiplication(
            sweep=sweep,
            geometry=generator.module.constant(generator.unique("geometry"), values),
            widths=widths,
            weights=generator.weights.add(np.frombuffer(packed, np.float32)),
            panel_bytes=lambda vectors: (1 + depth) * vectors * generator.vector_bytes,
            streams=streams,
            c=c,
            masked=masked,
            epilogue=epilogue,
            has_segments=segments > 1,
            has_quads=len(quads) > 0,
            has_singles=len(singles) > 0,
        )

    def _sweep_jobs(self, sweep: Sweep, a: Memory, c: Memory, bias: np.ndarray | None, epilogue: Epilogue) -> list[Job]:
        product = self.multiplication(sweep, c.layout, bias, epilogue)
        images = c.layout.shape[0]
        panel_groups, pixel_chunks = self._cut(product, images)

        def body(kernel: Kernel) -> None:
            self._chunk(kernel, product, a, c, panel_groups, pixel_chunks)

        return [self.generator.job("contract", images * panel_groups * len(pixel_chunks), body)]

    def _cut(self, product: Multiplication, images: int) -> tuple[int, list[tuple[int, int]]]:
        """How many groups of panels, and which (first pixel, pixels), a layer is cut into.

        Whichever of weights and pixels is larger is cut, so that the other one stays in the cache; both if there are
        still too few chunks for threads to end together.
        """
        sweep = product.sweep
        outputs, depth = sweep.weights.shape
        work = 2 * sweep.pixels * outputs * depth
        wanted = 1 if work * images < SMALL_WORK else max(-(-FEWEST_CHUNKS // images), work // CHUNK_WORK)
        count = sum(n for _, n in product.widths)
        even = len(product.widths) == 1 and not product.masked
        panel_groups = count if even and wanted > 1 and outputs * depth > sweep.pixels * sweep.depth else 1
        parts = max(1, -(-wanted // panel_groups))
        rows = self.generator.machine.tiles[product.widths[0][0] - 1]
        size = max(-(-sweep.pixels // parts), min(4 * rows, sweep.pixels))
        size = -(-size // rows) * rows
        starts = range(0, sweep.pixels, size)
        return panel_groups, [(start, min(size, sweep.pixels - start)) for start in starts]

    def _chunk(
        self,
        kernel: Kernel,
        product: Multiplication,
        a: Memory,
        c: Memory,
        panel_groups: int,
        pixel_chunks: list[tuple[int, int]],
    ) -> None:
        f = kernel.f
        parts = len(pixel_chunks)
        part, rest = kernel.chunk % parts, kernel.chunk // parts
        group, image = rest % panel_groups, rest // panel_groups
        sweep = product.sweep
        pointers = [kernel.pointer(a) + (image * a.layout.image + sweep.a_start)]
        pointers += [kernel.pointer(c) + (image * c.layout.image + sweep.c_start)]
        pointers += [kernel.pointer(s.memory) + (image * s.image + s.start) for s in product.streams]
        first = part * pixel_chunks[0][1]

        def run(pixels: int) -> None:
            self.run_panels(kernel, product, pointers, first, pixels, group if panel_groups > 1 else None)

        sizes = [size for _, size in pixel_chunks]
        if sizes[-1] == sizes[0]:
            run(sizes[0])
        else:
            f.when_last(part, parts, lambda: run(sizes[0]), lambda: run(sizes[-1]))

    def run_panels(
        self,
        kernel: Kernel,
        product: Multiplication,
        pointers: list[Value],
        first: Value,
        pixels: int,
        group: Value | None = None,
    ) -> None:
        """Pixels first ... first + pixels - 1 times all panels, or times panel number `group` alone.

        pointers: A, C and the streams at pixel 0 and channel 0.
        """
        weights = kernel.f.parameters[1] + product.weights
        moves = [product.c.block, *(s.block for s in product.streams)]
        for position, (vectors, count) in enumerate(product.widths):
            last_kind = position == len(product.widths) - 1
            size = product.panel_bytes(vectors)
            whole = 1 if group is not None else count - (1 if product.masked and last_kind else 0)
            at = [weights, *pointers[1:]]
            if group is not None:
                at = [weights + group * size, *_advance(pointers[1:], moves, group * vectors)]
            at = self._panel_loop(kernel, product, pointers[0], at, (vectors, whole, size), first, pixels, masked=False)
            if product.masked and last_kind:
                at = self._panel_loop(kernel, product, pointers[0], at, (vectors, 1, size), first, pixels, masked=True)
            weights, pointers = at[0], [pointers[0], *at[1:]]

    def _panel_loop(
        self,
        kernel: Kernel,
        product: Multiplication,
        a: Value,
        at: list[Value],
        panel: tuple[int, int, int],
        first: Value,
        pixels: int,
        *,
        masked: bool,
    ) -> list[Value]:
        f = kernel.f
        vectors, count, size = panel
        moves = [product.c.block * vectors, *(s.block * vectors for s in product.streams)]

        def one(_: Value, weights: Value, *pointers: Value) -> list[Value]:
            self._tiles(kernel, product, a, weights, list(pointers), first, pixels, vectors, masked=masked)
            return [weights + size, *(p + move for p, move in zip(pointers, moves, strict=True))]

        return f.loop(count, one, *at) if count else at

    def _tiles(
        self,
        kernel: Kernel,
        product: Multiplication,
        a: Value,
        weights: Value,
        pointers: list[Value],
        first: Value,
        pixels: int,
        vectors: int,
        *,
        masked: bool,
    ) -> None:
        f = kernel.f
        geometry = Value(f, POINTER, product.geometry)
        for rows, count in split(pixels, self.generator.machine.tiles[vectors - 1]):
            shape = TileShape(
                rows,
                vectors,
                has_segments=product.has_segments,
                has_quads=product.has_quads,
                has_singles=product.has_singles,
                masked=masked,
                epilogue=product.epilogue,
            )
            name = self.tiles.function(shape)
            f.call(name, a, weights, pointers[0], geometry, first, f.index(count), *pointers[1:])
            first = first + rows * count


def _advance(pointers: list[Value], moves: list[int], count: Value) -> list[Value]:
    return [p + count * move for p, move in zip(pointers, moves, strict=True)]


def _shift(stream: Stream, start: int) -> Stream:
    return stream if stream.splat else replace(stream, start=stream.start + start)
