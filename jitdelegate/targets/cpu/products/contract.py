"""Contract: implicit GEMM, cut into chunks of pixels and panels of output channels. Tile functions compute the chunks.

Weights narrower than the data are converted in registers where a panel meets few pixels. Elsewhere each panel is
converted once per chunk, into scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream, numbers_pointer, stream_pointers
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel, Memory, split
from jitdelegate.targets.cpu.code.narrow import without_cast
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.cpu.sources.converted import Converted
from jitdelegate.targets.cpu.sources.filters import ContractFilters, contract_filters
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep, sweeps
from jitdelegate.targets.cpu.sources.panels import pack, panel_widths
from jitdelegate.targets.cpu.walks.tile import TileShape, tile_function

CHUNK_WORK = 4_000_000
"""Floating-point operations that are worth a chunk of their own."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large layer, so that threads end at about the same time."""
FEWEST_PANELS = 32
"""Fewest chunks if each panel is one chunk or several."""
SMALL_WORK = 400_000
"""Floating-point operations below which a layer is not cut: threads would cost more than they save."""
UNPACK_TILES = 2
"""Tiles of pixels that meet a panel, above which its weights are rather converted once."""


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
    """One sweep with all that chunk functions need to compute parts of it.

    Attributes:
        source: the data where they are converted first; None where tiles read them as they are.
        products: how tiles multiply.
        packed: how panels are stored: as `products` has them, or to be converted first, at `scratch` bytes into the
            scratch memory.
        quads, singles: quads of steps of K in panels, and steps after them.
    """

    sweep: Sweep
    source: Converted | None
    products: Products
    packed: Products
    scratch: int
    quads: int
    singles: int
    geometry: str
    panels: tuple[Panels, ...]
    streams: tuple[Stream, ...]
    c: Layout
    epilogue: Epilogue
    has_segments: bool

    @property
    def is_linear(self) -> bool:
        """Whether rows of pixels follow each other without a gap. Tiles of floats do not look at it."""
        sweep, is_integer = self.sweep, self.products.accumulator != "float32"
        steps = [(sweep.a_row, sweep.a_pixel), (sweep.c_row, sweep.c_pixel), *((s.row, s.pixel) for s in self.streams)]
        return is_integer and all(row == sweep.columns * pixel for row, pixel in steps)

    @property
    def still(self) -> tuple[bool, ...]:
        """For each stream, whether it is the same for all pixels. Tiles of floats do not look at it."""
        return () if self.products.accumulator == "float32" else tuple(s.row == s.pixel == 0 for s in self.streams)

    def prepared(self, kernel: Kernel, pointers: list[Value], first: Value, pixels: int) -> list[Value]:
        """The pointers, that to the data after the conversion of what some pixels read."""
        a, *others = pointers
        return [self.source.prepared(kernel, a, first, pixels) if self.source else a, *others]

    def stored_together(self, panels: Panels) -> int:
        """Bytes that a tile stores together of each pixel; 0 where vectors are stored one by one."""
        if not _gives_bytes(self.products, self.c):
            return 0
        lanes, tail = self.c.lanes, len(self.sweep.weights) % self.c.lanes
        return panels.vectors * lanes - (lanes - tail if panels.masked else 0)


def _gives_bytes(products: Products, c: Layout) -> bool:
    """Whether results are sums of integers that become bytes, which lie side by side."""
    is_row_of_bytes = c.dtype in ("int8", "uint8") and not c.blocked
    return is_row_of_bytes and products.accumulator == "int32" and bool(products.machine.pairs)


def write_contract(writer: Writer, node: Node, form: Contract) -> list[Job]:
    """The jobs of a Contract node."""
    filters = contract_filters(writer.generator.machine, writer.graph, node)
    return ContractWriter(writer.generator).jobs(form, *writer.ends(node), filters, writer.epilogue(node))


class ContractWriter(JobWriter):
    """Writes the jobs of Contract nodes."""

    def jobs(self, form: Contract, a: Memory, c: Memory, filters: ContractFilters, epilogue: Epilogue) -> list[Job]:
        """The jobs of a node."""
        products = filters.products(self.generator.machine, form, a.layout.dtype)
        outputs = filters.stored.shape[0] // form.groups
        inputs = filters.stored.shape[3]
        found = []
        for group in range(form.groups):
            rows = slice(group * outputs, (group + 1) * outputs)
            part = filters.part(rows)
            shifted = replace(epilogue, streams=tuple(self._shift(s, rows.start) for s in epilogue.streams))
            for sweep in sweeps(form, a.layout, c.layout, part.stored):
                a_start = sweep.a_start + self._to_channel(group * inputs, a.layout)
                c_start = sweep.c_start + self._to_channel(rows.start, c.layout)
                sweep = replace(sweep, a_start=a_start, c_start=c_start)
                folded = replace(part, bias=products.folded(part.bias, sweep.weights, form.input_zero, part.scales))
                found += self._sweep_jobs(sweep, products, a, c, folded, shifted)
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
        self,
        sweep: Sweep,
        packed: Products,
        a: Layout,
        c: Layout,
        filters: ContractFilters,
        epilogue: Epilogue,
        pixels: int,
        scratch: int = 0,
    ) -> Multiplication:
        """Packs the weights of a sweep and stores its geometry as a constant.

        Args:
            filters: those of the sweep's channels, with the zero point folded into the bias.
            pixels: most pixels that meet a panel at once.
            scratch: bytes of scratch memory that are in use.
        """
        generator, outputs = self.generator, len(sweep.weights)
        is_few = pixels <= UNPACK_TILES * self._rows(packed, outputs)
        packed = packed.few if is_few else packed
        products = packed if is_few else packed.unpacked
        source = self._source(sweep, packed, a, pixels, scratch)
        sweep = source.read if source else sweep
        quads, singles = sweep.order(packed)
        segments, length = products.segments(len(quads) // QUAD)
        steps, offsets = sweep.filters(packed), sweep.offsets(packed)
        added = segments * length * QUAD - len(quads)
        if added:  # further steps read the data of the first one
            quads = np.concatenate([quads, np.arange(added) + len(offsets)])
            offsets, steps = np.pad(offsets, (0, added)), np.pad(steps, ((0, 0), (0, added), (0, 0)))
        order, count = np.concatenate([quads, singles]), len(quads) // QUAD
        weights, widths = (
            pack(generator, packed, steps, order, count, filters.bias, filters.scales),
            panel_widths(packed, outputs),
        )
        if products is not packed:
            generator.reserve_scratch(scratch + products.panel_bytes(widths[0][0], count, len(singles)))
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
            source=source,
            products=products,
            packed=packed,
            scratch=scratch,
            quads=count,
            singles=len(singles),
            geometry=f"@{geometry}",
            panels=tuple(_panels(packed, widths, (count, len(singles)), weights, masked=masked)),
            streams=streams,
            c=c,
            epilogue=(without_cast(epilogue) if _gives_bytes(products, c) else epilogue).shared(),
            has_segments=segments > 1,
        )

    @staticmethod
    def _rows(products: Products, outputs: int) -> int:
        """Rows of the tile of the widest panel."""
        return products.rows[panel_widths(products, outputs)[0][0] - 1]

    def _source(self, sweep: Sweep, products: Products, a: Layout, pixels: int, scratch: int) -> Converted | None:
        """The sweep's data where they are converted first; None where they are read as they are."""
        offsets = sweep.offsets(products)
        if products.converted in ("", a.dtype) or not offsets.size:
            return None
        first, end = int(offsets.min()), int(offsets.max()) + products.channels * a.element
        source = Converted(sweep, a.dtype, products.converted, first, end, scratch)
        source.reserve(self.generator, pixels)
        return source

    def _sweep_jobs(
        self, sweep: Sweep, products: Products, a: Memory, c: Memory, filters: ContractFilters, epilogue: Epilogue
    ) -> list[Job]:
        by_panel, pixel_chunks = self._cut(sweep, products, c.layout.shape[0])
        pixels = max(size for _, size in pixel_chunks)
        product = self.multiplication(sweep, products, a.layout, c.layout, filters, epilogue, pixels)
        groups = [[panels] for panels in product.panels] if by_panel else [list(product.panels)]
        return [self._job(product, a, c, group, pixel_chunks, by_panel=by_panel) for group in groups]

    def _cut(self, sweep: Sweep, products: Products, images: int) -> tuple[bool, list[tuple[int, int]]]:
        """(whether each panel is a chunk of its own, the (first pixel, pixels) ranges that a layer is cut into).

        The larger of weights and pixels is cut, and the smaller stays in the cache. Both are cut if there are still too
        few chunks for threads to end at about the same time. Chunks that convert weights have more pixels.
        """
        outputs, depth = sweep.weights.shape
        work = products.work(sweep.pixels, outputs * depth)
        wanted = 1 if work * images < SMALL_WORK else max(-(-FEWEST_CHUNKS // images), work // CHUNK_WORK)
        by_panel = wanted > 1 and outputs * depth > sweep.pixels * sweep.depth
        rows = self._rows(products, outputs)
        fewest = 4 * rows if products.unpacked is products else min(24 * rows, -(-sweep.pixels // 4))
        if by_panel:
            panels = sum(count for _, count in panel_widths(products, outputs))
            halves = min(-(-FEWEST_PANELS // (2 * panels)), sweep.pixels // (2 * fewest))
            size = -(-sweep.pixels // max(1, 2 * halves))  # two threads each have half the pixels
        else:
            size = max(-(-sweep.pixels // wanted), min(fewest, sweep.pixels))
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
                ready = product.prepared(kernel, pointers, first, pixels)
                for panels in group:
                    self._walk(kernel, product, panels, ready, first, pixels, number if by_panel else None)

            sizes = [size for _, size in pixel_chunks]
            if sizes[-1] == sizes[0]:
                run(sizes[0])
            else:
                f.when_last(part, parts, lambda: run(sizes[0]), lambda: run(sizes[-1]))

        outputs = sum(panels.count * panels.vectors for panels in group) * self.generator.lanes
        work = c.layout.shape[0] * product.products.work(sweep.pixels, outputs * sweep.weights.shape[1])
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
        ready = product.prepared(kernel, pointers, first, pixels)
        for panels in product.panels:
            self._walk(kernel, product, panels, ready, first, pixels)

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
            ready = self._unpacked(kernel, product, panels.vectors, weights)
            self._tiles(kernel, product, panels, a, ready, list(pointers), first, pixels)
            return [p + move for p, move in zip((weights, *pointers), moves, strict=True)]

        kernel.f.loop(1 if number is not None else panels.count, one, *at)

    def _unpacked(self, kernel: Kernel, product: Multiplication, vectors: int, panel: Value) -> Value:
        """The address of a panel as tiles read it: it may be converted in scratch memory first."""
        if product.products is product.packed:
            return panel
        f, target, blocks = kernel.f, kernel.scratch + product.scratch, product.packed.scales
        name = product.packed.unpack_function(self.generator, vectors, product.quads, product.singles)
        counts = (blocks, product.quads // max(blocks, 1), product.singles)
        f.call(name, panel, target, *map(f.index, counts))
        return target

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
                has_quads=product.quads > 0,
                has_singles=product.singles > 0,
                masked=panels.masked,
                epilogue=product.epilogue,
                is_linear=product.is_linear,
                packed=product.stored_together(panels),
                still=product.still,
            )
            name = tile_function(self.generator, shape)
            f.call(name, a, weights, pointers[0], geometry, first, f.index(count), *pointers[1:], *numbers)
            first = first + rows * count


def _panels(
    products: Products, widths: list[tuple[int, int]], steps: tuple[int, int], weights: int, *, masked: bool
) -> Iterator[Panels]:
    """Panels of the packed `widths`, starting at offset `weights`, with `steps`: quads and singles. `masked` applies to
    the last panel."""
    block = 0
    for position, (vectors, count) in enumerate(widths):
        last = int(masked and position == len(widths) - 1)
        size = products.panel_bytes(vectors, *steps)
        for number, is_masked in ((count - last, False), (last, True)):
            if number:
                yield Panels(vectors, number, is_masked, size, weights, block)
            weights += number * size
            block += number * vectors
