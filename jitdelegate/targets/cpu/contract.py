"""Contract: implicit GEMM, cut into chunks of pixels and panels of output channels. Tile functions compute the chunks.

A panel is up to four vectors of output channels: [bias][steps of K][vectors * lanes][channels of a step].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.epilogue import Epilogue, Stream, numbers_pointer, stream_pointers
from jitdelegate.targets.cpu.indirect_gemm import Sweep, sweeps
from jitdelegate.targets.cpu.kernel import Generator, Job, JobWriter, Kernel, Memory, split
from jitdelegate.targets.cpu.products import QUAD, Products, products_of
from jitdelegate.targets.cpu.tile import TileShape, tile_function
from jitdelegate.targets.cpu.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.writer import Writer
from jitdelegate.targets.implicit_gemm import filters_of

CHUNK_WORK = 4_000_000
"""Floating-point operations that are worth a chunk of their own."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large layer, so that threads end at about the same time."""
FEWEST_PANELS = 32
"""Fewest chunks if each panel is one chunk or several."""
SMALL_WORK = 400_000
"""Floating-point operations below which a layer is not cut: threads would cost more than they save."""


def pack(
    generator: Generator, products: Products, weights: np.ndarray, order: np.ndarray, bias: np.ndarray | None
) -> tuple[int, list[tuple[int, int]]]:
    """[O, steps, channels of a step], with steps in this `order`, and the bias [O] packed as panels: (their offset in
    the weights, their widths)."""
    outputs, steps, channels = weights.shape
    lanes = generator.lanes
    blocks = -(-outputs // lanes)
    widths = split(blocks, len(products.rows))  # nearly equal panels
    in_order = np.array_equal(order, np.arange(steps))

    def panels() -> Iterator[np.ndarray]:
        first = 0
        for width in (vectors * lanes for vectors, count in widths for _ in range(count)):
            rows = weights[first : first + width]
            line, panel = np.zeros(width, products.accumulator), np.zeros((steps, width, channels), products.stored)
            panel[:, : len(rows)] = rows.swapaxes(0, 1) if in_order else rows.swapaxes(0, 1)[order]
            if bias is not None:
                line[: len(rows)] = bias[first : first + width]
            first += width
            yield from (line, products.arranged(panel))

    sources = [weights, order] if bias is None else [weights, order, bias]
    return generator.weights.pack(("panels", products.key, *widths), sources, panels), widths


def pack_in_order(
    generator: Generator, weights: np.ndarray, bias: np.ndarray | None
) -> tuple[int, list[tuple[int, int]]]:
    """`pack` of a matrix as a Contract without a window has it."""
    return pack(generator, Products(generator.machine), weights[:, :, None], np.arange(weights.shape[1]), bias)


@dataclass(frozen=True)
class Panels:
    """Panels of equal width and code, one after another.

    Attributes:
        masked: True for a panel whose last vector is not full and must be stored with a mask.
        size: bytes of one panel.
        weights: offset of the first panel in the weights.
        block: the first panel's first block of output channels.
    """

    vectors: int
    count: int
    masked: bool
    size: int
    weights: int
    block: int


@dataclass(frozen=True)
class Multiplication:
    """One sweep with all that chunk functions need to compute parts of it."""

    sweep: Sweep
    products: Products
    geometry: str
    panels: tuple[Panels, ...]
    streams: tuple[Stream, ...]
    c: Layout
    epilogue: Epilogue
    has_segments: bool
    has_quads: bool
    has_singles: bool


def write_contract(writer: Writer, node: Node, form: Contract) -> list[Job]:
    """The jobs of a Contract node."""
    weights, bias = filters_of(writer.constant(node.inputs[1])), writer.optional(node.inputs[2])
    return ContractWriter(writer.generator).jobs(form, *writer.ends(node), weights, bias, writer.epilogue(node))


class ContractWriter(JobWriter):
    """Writes the jobs of Contract nodes."""

    def jobs(
        self, form: Contract, a: Memory, c: Memory, weights: np.ndarray, bias: np.ndarray | None, epilogue: Epilogue
    ) -> list[Job]:
        """The jobs of a node; `weights` are [O, kh, kw, I]."""
        products = products_of(self.generator.machine, form, a.layout.dtype)
        outputs = weights.shape[0] // form.groups
        inputs = weights.shape[3]
        found = []
        for group in range(form.groups):
            rows = slice(group * outputs, (group + 1) * outputs)
            part = None if bias is None else bias[rows]
            shifted = replace(epilogue, streams=tuple(self._shift(s, rows.start) for s in epilogue.streams))
            for sweep in sweeps(form, a.layout, c.layout, weights[rows]):
                a_start = sweep.a_start + self._to_channel(group * inputs, a.layout)
                c_start = sweep.c_start + self._to_channel(rows.start, c.layout)
                found += self._sweep_jobs(
                    replace(sweep, a_start=a_start, c_start=c_start),
                    products,
                    a,
                    c,
                    products.folded(part, sweep.weights, form.input_zero),
                    shifted,
                )
        return found

    def _to_channel(self, channel: int, layout: Layout, block: int | None = None) -> int:
        """Bytes to a channel of a pixel, where blocks of channels are `block` bytes apart instead of the layout's."""
        blocks, lane = divmod(channel, self.generator.lanes)
        return blocks * (layout.block if block is None else block) + lane * layout.element

    def _shift(self, stream: Stream, channel: int) -> Stream:
        """The stream from a channel on."""
        if stream.splat:
            return stream
        return replace(stream, start=stream.start + self._to_channel(channel, stream.memory.layout, stream.block))

    def multiplication(
        self, sweep: Sweep, products: Products, c: Layout, bias: np.ndarray | None, epilogue: Epilogue
    ) -> Multiplication:
        """Packs the weights of a sweep and stores its geometry as a constant; `bias` has the zero point folded in."""
        generator, outputs = self.generator, len(sweep.weights)
        quads, singles = sweep.order(products)
        segments, length = products.segments(len(quads) // QUAD)
        filters, offsets = sweep.filters(products), sweep.offsets(products)
        added = segments * length * QUAD - len(quads)
        if added:  # further steps read the data of the first one
            quads = np.concatenate([quads, np.arange(added) + len(offsets)])
            offsets, filters = np.pad(offsets, (0, added)), np.pad(filters, ((0, 0), (0, added), (0, 0)))
        weights, widths = pack(generator, products, filters, np.concatenate([quads, singles]), bias)
        streams = tuple(
            s.stepped(sweep.y * s.row + sweep.x * s.pixel, sweep.step_y, sweep.step_x) for s in epilogue.streams
        )
        tail = outputs % generator.lanes
        masked = bool(tail) and (not c.blocked or epilogue.lanes_to_mask(c) > 0)
        values = [sweep.columns, sweep.a_pixel, sweep.a_row, sweep.c_pixel, sweep.c_row, c.block, tail]
        values += [segments, length, len(singles)]
        for stream in streams:
            values += [stream.pixel, stream.row, stream.block]
        values += [*offsets[quads[::QUAD]].tolist(), *offsets[singles].tolist()]
        geometry = generator.once("geometry", tuple(values), lambda name: generator.module.constant(name, values))
        return Multiplication(
            sweep=sweep,
            products=products,
            geometry=f"@{geometry}",
            panels=tuple(
                _panels(widths, products.bias_bytes + filters.shape[1] * products.weight_bytes, weights, masked=masked)
            ),
            streams=streams,
            c=c,
            epilogue=epilogue.shared(),
            has_segments=segments > 1,
            has_quads=len(quads) > 0,
            has_singles=len(singles) > 0,
        )

    def _sweep_jobs(
        self,
        sweep: Sweep,
        products: Products,
        a: Memory,
        c: Memory,
        bias: np.ndarray | None,
        epilogue: Epilogue,
    ) -> list[Job]:
        product = self.multiplication(sweep, products, c.layout, bias, epilogue)
        by_panel, pixel_chunks = self._cut(product, c.layout.shape[0])
        groups = [[panels] for panels in product.panels] if by_panel else [list(product.panels)]
        return [self._job(product, a, c, group, pixel_chunks, by_panel=by_panel) for group in groups]

    def _cut(self, product: Multiplication, images: int) -> tuple[bool, list[tuple[int, int]]]:
        """(whether each panel is a chunk of its own, the (first pixel, pixels) ranges that a layer is cut into).

        The larger of weights and pixels is cut, and the smaller stays in the cache. Both are cut if there are still too
        few chunks for threads to end at about the same time.
        """
        sweep = product.sweep
        outputs, depth = sweep.weights.shape
        work = 2 * sweep.pixels * outputs * depth // product.products.speed
        wanted = 1 if work * images < SMALL_WORK else max(-(-FEWEST_CHUNKS // images), work // CHUNK_WORK)
        by_panel = wanted > 1 and outputs * depth > sweep.pixels * sweep.depth
        rows = product.products.rows[product.panels[0].vectors - 1]
        if by_panel:
            panels = sum(panels.count for panels in product.panels)
            halves = min(-(-FEWEST_PANELS // (2 * panels)), sweep.pixels // (8 * rows))
            size = -(-sweep.pixels // max(1, 2 * halves))  # two threads each have half the pixels
        else:
            size = max(-(-sweep.pixels // wanted), min(4 * rows, sweep.pixels))
        if not by_panel or halves > 1:  # few chunks are rather of equal size
            size = -(-size // rows) * rows
        count = max(1, (sweep.pixels + size // 2) // size)  # a short rest belongs to the last range
        ranges = [(number * size, size) for number in range(count - 1)]
        return by_panel, [*ranges, ((count - 1) * size, sweep.pixels - (count - 1) * size)]

    def _job(
        self,
        product: Multiplication,
        a: Memory,
        c: Memory,
        group: list[Panels],
        pixel_chunks: list[tuple[int, int]],
        *,
        by_panel: bool,
    ) -> Job:
        """The job whose chunks are (image, panel if `by_panel`, pixels); the last range may have another size."""
        sweep, parts = product.sweep, len(pixel_chunks)
        count = group[0].count if by_panel else 1

        def body(kernel: Kernel) -> None:
            f = kernel.f
            part, rest = kernel.chunk % parts, kernel.chunk // parts
            number, image = rest % count, rest // count
            pointers = [kernel.pointer(a) + (image * a.layout.image + sweep.a_start)]
            pointers += [kernel.pointer(c) + (image * c.layout.image + sweep.c_start)]
            pointers += stream_pointers(kernel, product.streams, image)
            first = part * pixel_chunks[0][1]

            def run(pixels: int) -> None:
                for panels in group:
                    self._walk(kernel, product, panels, pointers, first, pixels, number if by_panel else None)

            sizes = [size for _, size in pixel_chunks]
            if sizes[-1] == sizes[0]:
                run(sizes[0])
            else:
                f.when_last(part, parts, lambda: run(sizes[0]), lambda: run(sizes[-1]))

        outputs = sum(panels.count * panels.vectors for panels in group) * self.generator.lanes
        depth = product.sweep.weights.shape[1] // product.products.speed
        work = 2 * c.layout.shape[0] * product.sweep.pixels * outputs * depth
        return self.generator.job(
            "contract",
            c.layout.shape[0] * count * parts,
            body,
            worth=work / SMALL_WORK,
            panels=count,
            parts=parts if by_panel else 1,
        )

    def run_panels(
        self, kernel: Kernel, product: Multiplication, pointers: list[Value], first: Value, pixels: int
    ) -> None:
        """Pixels first ... first + pixels - 1 times all panels. Pointers are A, C and the epilogue operands, each at
        pixel 0 and channel 0."""
        for panels in product.panels:
            self._walk(kernel, product, panels, pointers, first, pixels)

    def _walk(
        self,
        kernel: Kernel,
        product: Multiplication,
        panels: Panels,
        pointers: list[Value],
        first: Value,
        pixels: int,
        number: Value | None = None,
    ) -> None:
        """The pixels times each of the panels, or only times panel number `number`."""
        a, *others = pointers
        blocks = [product.c.block, *(s.block for s in product.streams)]
        moves = [panels.size, *(panels.vectors * block for block in blocks)]
        at = [kernel.constants(panels.weights)]
        at += [p + panels.block * block for p, block in zip(others, blocks, strict=True)]
        if number is not None:
            at = [p + number * move for p, move in zip(at, moves, strict=True)]

        def one(_: Value, weights: Value, *pointers: Value) -> list[Value]:
            self._tiles(kernel, product, panels, a, weights, list(pointers), first, pixels)
            return [p + move for p, move in zip((weights, *pointers), moves, strict=True)]

        kernel.f.loop(1 if number is not None else panels.count, one, *at)

    def _tiles(
        self,
        kernel: Kernel,
        product: Multiplication,
        panels: Panels,
        a: Value,
        weights: Value,
        pointers: list[Value],
        first: Value,
        pixels: int,
    ) -> None:
        f = kernel.f
        geometry, numbers = Value(f, POINTER, product.geometry), numbers_pointer(kernel, product.epilogue.numbers)
        for rows, count in split(pixels, product.products.rows[panels.vectors - 1]):
            shape = TileShape(
                product.products,
                rows,
                panels.vectors,
                has_segments=product.has_segments,
                has_quads=product.has_quads,
                has_singles=product.has_singles,
                masked=panels.masked,
                epilogue=product.epilogue,
            )
            name = tile_function(self.generator, shape)
            f.call(name, a, weights, pointers[0], geometry, first, f.index(count), *pointers[1:], *numbers)
            first = first + rows * count


def _panels(widths: list[tuple[int, int]], vector_size: int, weights: int, *, masked: bool) -> Iterator[Panels]:
    """Panels of the packed `widths`, starting at offset `weights`; a panel has `vector_size` bytes per vector of width.
    `masked` applies to the last panel."""
    block = 0
    for position, (vectors, count) in enumerate(widths):
        last = int(masked and position == len(widths) - 1)
        for number, is_masked in ((count - last, False), (last, True)):
            if number:
                yield Panels(vectors, number, is_masked, vectors * vector_size, weights, block)
            weights += number * vectors * vector_size
            block += number * vectors
