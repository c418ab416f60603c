"""Contract: implicit GEMM, cut into chunks of pixels and panels of output channels. Tile functions compute the chunks.

Weights narrower than the data are converted in registers where a panel meets few pixels. Elsewhere each panel is
converted once per chunk, into scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream, stream_pointers
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.narrow import without_cast
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.byte_pairs import BytePairs
from jitdelegate.targets.cpu.multiply.pairs import WordPairs
from jitdelegate.targets.cpu.multiply.products import QUAD, Products, folded
from jitdelegate.targets.cpu.products.choose_winograd import algorithm_for, slices
from jitdelegate.targets.cpu.products.chunks import Chunks, PanelProduct, PanelWalk, chunks_wanted, worth
from jitdelegate.targets.cpu.products.dots import MOST_OUTPUTS, dot_sweeps, write_dots
from jitdelegate.targets.cpu.products.winograd import write_winograd
from jitdelegate.targets.cpu.sources.converted import Converted
from jitdelegate.targets.cpu.sources.filters import ContractFilters, contract_filters
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep, sweeps
from jitdelegate.targets.cpu.sources.panels import Constant, Order, PanelGroup, Unpacked, pack, panel_groups, sizes_of
from jitdelegate.targets.cpu.walks.tile import PixelTileShape, pixel_tile_function

FEWEST_PANELS = 32
"""Fewest chunks if each panel is one chunk or several."""
NEAR_BYTES = 1 << 19
"""Data of an image that stay in a core's cache while one panel after another meets all of them."""
LEAST_SAFE = 0.4
"""Part of the steps that cannot saturate from which on products by bytes are faster."""
FEW_TILES = 2
"""Most tiles of pixels that are few: data are not rather converted for all panels at once."""


@dataclass(frozen=True)
class Multiplication(PanelProduct):
    """One sweep with all that chunk functions need to compute parts of it.

    Attributes:
        source: the data where they are converted first; None where tiles read them as they are.
        panels: the weights, with so many quads of steps of K and single ones.
        geometry_bytes: those of each panel's own geometry; 0 where all panels have the same.
    """

    sweep: Sweep
    source: Converted | None
    panels: Constant
    c: Layout
    has_segments: bool
    geometry_bytes: int

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for the same code, unless data are converted first. The geometry has the sweep's distances."""
        facts = self.has_segments, self.geometry_bytes, self.sweep.rows, *self.sweep.weights.shape
        return *super().key, self.panels, self.c, self.sweep.a_start, self.sweep.c_start, *facts

    def geometry_moves(self, group: PanelGroup) -> tuple[int, int]:
        before = sum(other.count for other in self.panels.groups if other.start < group.start)
        return before * self.geometry_bytes, self.geometry_bytes

    def tile(self, generator: Generator, group: PanelGroup, rows: int) -> str:
        is_integer, streams = self.products.accumulator != "float32", self.epilogue.streams
        shape = PixelTileShape(
            self.products,
            rows,
            group.vectors,
            group.masked,
            self.epilogue,
            packed=self._stored_together(group),
            halved=group.halved,
            has_segments=self.has_segments,
            has_quads=self.panels.quads > 0,
            has_singles=self.panels.singles > 0,
            is_linear=is_integer and self._is_linear,
            still=tuple(s.row == s.pixel == 0 for s in streams) if is_integer else (),
        )
        return pixel_tile_function(generator, shape)

    @property
    def _is_linear(self) -> bool:
        """Whether rows of pixels follow each other without a gap."""
        sweep = self.sweep
        steps = [
            (sweep.a_row, sweep.a_pixel),
            (sweep.c_row, sweep.c_pixel),
            *((s.row, s.pixel) for s in self.epilogue.streams),
        ]
        return all(row == sweep.columns * pixel for row, pixel in steps)

    def prepared(self, kernel: Kernel, pointers: list[Value], first: Value, pixels: int) -> list[Value]:
        """The pointers, that to the data after the conversion of what some pixels read."""
        a, *others = pointers
        return [self.source.prepared(kernel, a, first, pixels) if self.source else a, *others]

    def _stored_together(self, group: PanelGroup) -> int:
        """Bytes that a tile stores together of each pixel; 0 where vectors are stored one by one."""
        if not _gives_bytes(self.products, self.c):
            return 0
        lanes, tail = self.c.lanes, len(self.sweep.weights) % self.c.lanes
        return group.vectors * lanes - (lanes - tail if group.masked else 0)


def _gives_bytes(products: Products, c: Layout) -> bool:
    """Whether results are sums of integers that become bytes, which lie side by side."""
    is_row_of_bytes = c.dtype in ("int8", "uint8") and not c.blocked
    return is_row_of_bytes and products.accumulator == "int32" and products.machine.narrows != ""


def write_contract(writer: Writer, node: Node, form: Contract) -> list[Job]:
    """The jobs of a Contract node."""
    filters = contract_filters(writer.generator.machine, writer.graph, node)
    return ContractWriter(writer.generator).jobs(form, *writer.ends(node), filters, writer.epilogue(node))


def by_bytes(products: Products, sweep: Sweep, a: Layout) -> tuple[Products, list[Order] | None]:
    """Products by `BytePairs` and the order of the steps of each panel, where that is faster: where enough steps of
    every panel cannot saturate. Else the same products."""
    pairs = BytePairs(products.machine, is_signed=a.dtype == "int8")
    offsets = sweep.offsets(pairs)
    distances = np.array([sweep.a_row, sweep.a_pixel, *sweep.taps[2:], *offsets])
    if not isinstance(products, WordPairs) or len(offsets) < 2 or (distances % pairs.channels).any():
        return products, None
    fits, orders = pairs.fits(sweep.filters(pairs)), list[Order]()
    for group in panel_groups(pairs, len(fits)):
        for number in range(group.count):
            first = (group.start + number * group.vectors) * pairs.lanes
            is_safe = np.asarray(fits[first : first + group.vectors * pairs.lanes].all(0))
            is_safe[-1] &= not is_safe.all()  # each of the two loops has a turn
            orders.append((np.argsort(~is_safe, kind="stable"), int(is_safe.sum())))
    safe = [count for _, count in orders]
    is_faster = min(safe) > 0 and sum(safe) >= LEAST_SAFE * len(offsets) * len(safe)
    return (pairs, orders) if is_faster else (products, None)


@dataclass(frozen=True)
class ContractWriter:
    """Writes the jobs of Contract nodes."""

    generator: Generator

    def jobs(self, form: Contract, a: Memory, c: Memory, filters: ContractFilters, epilogue: Epilogue) -> list[Job]:
        """The jobs of a node."""
        products = filters.products(self.generator.machine, form, a.layout)
        if len(filters.stored) <= MOST_OUTPUTS:
            dots = dot_sweeps(form, products, filters, a.layout, c.layout, epilogue)
            if dots:
                return [write_dots(self.generator, phases, (a, c), filters, epilogue) for phases in dots]
        outputs = filters.stored.shape[0] // form.groups
        inputs = filters.stored.shape[3]
        jobs = list[Job]()
        may_grow = not self.generator.saves_memory
        algorithm = algorithm_for(form, products, filters.stored, a.layout, c.layout) if may_grow else None
        parts = [(slice(group * outputs, (group + 1) * outputs), group * inputs) for group in range(form.groups)]
        if algorithm:
            parts = [(rows, 0) for rows in slices(algorithm, outputs, products.lanes)]
        for rows, first in parts:
            part = filters.part(rows)
            shifted = replace(epilogue, streams=tuple(self._shift(s, rows.start) for s in epilogue.streams))
            for sweep in sweeps(form, a.layout, c.layout, part.stored):
                a_start = sweep.a_start + self._to_channel(first, a.layout)
                c_start = sweep.c_start + self._to_channel(rows.start, c.layout)
                sweep = replace(sweep, a_start=a_start, c_start=c_start)
                zero = form.input_zero + products.offset
                bias = folded(part.bias, sweep.weights, zero, products.accumulator, part.sums)
                ready = replace(part, bias=bias)
                if algorithm:
                    jobs.append(write_winograd(self.generator, algorithm, sweep, products, (a, c), ready, shifted))
                else:
                    jobs += self._sweep_jobs(sweep, products, a, c, ready, shifted)
        return jobs

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
        tail = outputs % generator.lanes
        widest = panel_groups(packed, outputs)[0].vectors
        tiles = generator.machine.unpack_tiles if packed.unpacked is not packed else FEW_TILES
        is_few = pixels <= tiles * packed.rows[widest - 1]
        packed, orders = (packed.few, None) if is_few else by_bytes(packed, sweep, a)
        products = packed if is_few else packed.unpacked
        source = self._source(sweep, packed, a, pixels, scratch)
        sweep = source.read if source else sweep
        segments, steps, offsets = 1, sweep.filters(packed), sweep.offsets(packed)
        if orders:
            filters = replace(filters, bias=folded(filters.bias, sweep.weights, packed.offset, "int32"))
        else:
            quads, singles = sweep.order(packed)
            segments, length = products.segments(len(quads) // QUAD)
            added = segments * length * QUAD - len(quads)
            if added:  # further steps read the data of the first one
                quads = np.concatenate([quads, np.arange(added) + len(offsets)])
                offsets, steps = np.pad(offsets, (0, added)), np.pad(steps, ((0, 0), (0, added), (0, 0)))
            orders = [(np.concatenate([quads, singles]), len(quads) // QUAD)]
        masked = tail > 0 and (not c.blocked or epilogue.lanes_to_mask(c) > 0)
        halved = products.half_type != "" and 0 < tail <= generator.lanes // 2
        groups = panel_groups(packed, outputs, masked=masked, halved=halved)
        size = sizes_of(orders, packed)
        place = pack(generator, packed, groups, steps, orders, filters.bias, filters.scales)
        offset = generator.number_of("weights", place)
        panels = Constant(packed, groups, offset, *size)
        if products is not packed:
            panels = Unpacked(packed, groups, offset, *size, scratch)
            generator.reserve_scratch(scratch + products.panel_bytes(widest, *size))
        streams = tuple(
            s.stepped(sweep.y * s.row + sweep.x * s.pixel, sweep.step_y, sweep.step_x) for s in epilogue.streams
        )
        values = list[int]()
        for order, turns in orders:
            quads, singles = order[: turns * packed.turn : packed.turn], order[turns * packed.turn :]
            values += [sweep.columns, sweep.a_pixel, sweep.a_row, sweep.c_pixel, sweep.c_row, c.block, tail]
            values += [segments, turns // segments, len(singles)]
            for stream in streams:
                values += [stream.pixel, stream.row, stream.block]
            values += [*offsets[quads].tolist(), *offsets[singles].tolist()]
        apart = 8 * len(values) // len(orders) if len(orders) > 1 else 0
        geometry = generator.integers("geometry", values)
        epilogue = (without_cast(epilogue) if _gives_bytes(products, c) else epilogue).shared()
        epilogue = replace(epilogue, streams=streams)
        return Multiplication(products, epilogue, c.block, geometry, sweep, source, panels, c, segments > 1, apart)

    def _source(self, sweep: Sweep, products: Products, a: Layout, pixels: int, scratch: int) -> Converted | None:
        """The sweep's data where they are converted first; None where they are read as they are."""
        offsets = sweep.offsets(products)
        if products.converted in ("", a.dtype) or not offsets.size:
            return None
        first, end = int(offsets.min()), int(offsets.max()) + products.channels * a.element
        source = Converted(a.dtype, products.converted, sweep, first, end, scratch)
        source.reserve(self.generator, pixels)
        return source

    def _sweep_jobs(
        self, sweep: Sweep, products: Products, a: Memory, c: Memory, filters: ContractFilters, epilogue: Epilogue
    ) -> list[Job]:
        by_panel, chunks = self._cut(sweep, products, c.layout.shape[0])
        most = max(chunks.rows, chunks.last)
        product = self.multiplication(sweep, products, a.layout, c.layout, filters, epilogue, most)
        if not by_panel:
            return [self._job(product, a, c, product.panels.groups, chunks)]
        return [self._job(product, a, c, [g], replace(chunks, panels=g.count)) for g in product.panels.groups]

    def _cut(self, sweep: Sweep, products: Products, images: int) -> tuple[bool, Chunks]:
        """(whether each panel is a chunk of its own, the chunks of pixels).

        The larger of weights and pixels is cut, and the smaller stays in the cache. Both are cut if there are still too
        few chunks for threads to end at about the same time, as far as one panel after another finds the pixels in the
        cache. Chunks that convert weights have more pixels, and those that convert the data of many pixels have all
        panels.
        """
        outputs, depth = sweep.weights.shape
        groups = panel_groups(products, outputs)
        lanes = sum(group.count * group.vectors for group in groups) * self.generator.lanes
        wanted = chunks_wanted(products.work(sweep.pixels, lanes * depth), images)
        rows = products.rows[groups[0].vectors - 1]
        may_convert = not products.converted or sweep.pixels <= FEW_TILES * rows
        by_panel = wanted > 1 and may_convert and outputs * depth > sweep.pixels * sweep.depth
        fewest = 4 * rows if products.unpacked is products else min(24 * rows, -(-sweep.pixels // 4))
        if by_panel:
            panels = sum(group.count for group in groups)
            halves = min(-(-FEWEST_PANELS // (2 * panels)), sweep.pixels // (2 * fewest))
            size = -(-sweep.pixels // max(1, 2 * halves))  # two threads each have half the pixels
        else:
            size = max(-(-sweep.pixels // wanted), min(fewest, sweep.pixels))
        if not by_panel or halves > 1:  # few chunks are rather of equal size
            size = -(-size // rows) * rows
        parts = max(1, (sweep.pixels + size // 2) // size)  # a short rest belongs to the last part
        is_near = sweep.pixels * sweep.depth * FLOAT_BYTES <= NEAR_BYTES
        by_panel = by_panel or (may_convert and is_near and 2 * images * parts <= wanted)
        last = sweep.pixels - (parts - 1) * size
        return by_panel, Chunks(images, 0, parts, size if parts > 1 else last, last)

    def _job(self, product: Multiplication, a: Memory, c: Memory, groups: Sequence[PanelGroup], chunks: Chunks) -> Job:
        sweep = product.sweep

        def body(kernel: Kernel) -> None:
            image, number, part = chunks.numbers(kernel)
            pointers = [kernel.pointer(a) + (image * a.layout.image + sweep.a_start)]
            pointers += [kernel.pointer(c) + (image * c.layout.image + sweep.c_start)]
            pointers += stream_pointers(kernel, product.epilogue.streams, image)
            first = part * chunks.rows

            def run(pixels: int) -> None:
                ready = product.prepared(kernel, pointers, first, pixels)
                PanelWalk(kernel, product, product.panels, first, pixels).along(groups, ready, number)

            chunks.run(kernel, part, run)

        outputs = sum(group.count * group.vectors for group in groups) * self.generator.lanes
        work = chunks.images * product.products.work(sweep.pixels, outputs * sweep.weights.shape[1])
        panels = max(1, chunks.panels)

        def write() -> Job:
            return self.generator.job(
                "contract", chunks.count, body, worth=worth(work), panels=panels, parts=chunks.parts
            )

        key = "contract", *product.key, a, c, *groups, chunks
        return write() if product.source else self.generator.once_for(key, write)
