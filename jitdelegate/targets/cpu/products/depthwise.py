"""Depthwise: one channel block at a time, with a few output pixels in registers. With row-band fusion, each thread
computes a strip of rows into scratch memory, and the 1x1 Contract after it reads the strip from the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from jitdelegate.ir.forms import Contract, Depthwise
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.cpu.code.epilogue import Epilogue, numbers_pointer, stream_pointers
from jitdelegate.targets.cpu.code.kernel import ALIGN, Generator, Job, Kernel, Memory, divisor, split
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.products.chunks import PanelWalk
from jitdelegate.targets.cpu.products.contract import ContractWriter
from jitdelegate.targets.cpu.sources.filters import ContractFilters, contract_filters
from jitdelegate.targets.cpu.sources.indirect_gemm import sweeps
from jitdelegate.targets.cpu.walks.depthwise_bytes import byte_filters
from jitdelegate.targets.cpu.walks.depthwise_row import Filters, RowShape, narrow_taps, row_function
from jitdelegate.targets.planning.fusions import Fusion

CHUNK_WORK = 125_000
"""Multiply-adds that are worth a chunk of their own; depthwise work is bound by memory, not by arithmetic."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large layer, so that threads end at about the same time."""
STRIP_PIXELS = 24
"""Pixels of a strip before a fused 1x1: enough to use each panel of weights a few times; four times as many where
weights are converted."""


@dataclass(frozen=True)
class Layer:
    """A Depthwise with its constants."""

    form: Depthwise
    filters: Filters
    epilogue: Epilogue


def write_depthwise(writer: Writer, node: Node, form: Depthwise) -> list[Job]:
    """The jobs of a Depthwise node that is not fused."""
    generator, (a, c) = writer.generator, writer.ends(node)
    if form.accumulator == "float32" and form.multiplier > 1 and generator.lanes % form.multiplier:
        weights, bias = writer.constant(node.inputs[1]), writer.optional(node.inputs[2])
        grouped = ContractFilters(np.ascontiguousarray(weights.transpose(3, 1, 2, 0)), bias=bias)
        return ContractWriter(generator).jobs(_as_groups(form, weights), a, c, grouped, writer.epilogue(node))
    return DepthwiseWriter(generator).jobs(_layer(writer, node, form, c.layout), a, c)


def _joined(layer: Layer, a: Layout, c: Layout) -> Layer:
    """The layer with neighbouring pixels as one pixel, as many as fill whole vectors, where one does not."""
    form, filters, epilogue, (*_, columns, channels) = layer.form, layer.filters, layer.epilogue, c.shape
    count = c.lanes // gcd(c.lanes, channels)
    ends = [(layout.pixel, layout.element) for layout in (a, c)]
    ends += [(s.pixel, s.memory.layout.element) for s in epilogue.streams if not s.splat or s.pixel]
    is_dense = all(pixel == channels * element for pixel, element in ends)
    is_plain = type(filters) is Filters and form.stride[1] == form.multiplier == 1
    if not is_plain or not is_dense or not 1 < count <= columns:
        return layer
    streams = tuple(replace(stream, pixel=count * stream.pixel) for stream in epilogue.streams)
    return Layer(form, filters.of_pixels(count), replace(epilogue, streams=streams))


def _layer(writer: Writer, node: Node, form: Depthwise, c: Layout) -> Layer:
    """The layer of a Depthwise whose results are stored by layout `c`."""
    data, weights, bias = node.inputs[:3]
    dtype, epilogue, machine = writer.memory(data).layout.dtype, writer.epilogue(node), writer.generator.machine
    taps, scales = narrow_taps(machine, writer.graph.tensors[weights])
    operands = form, dtype, taps, writer.optional(bias), epilogue
    filters, own = byte_filters(writer.generator, *operands, c) or Filters.of(*operands)
    return _joined(Layer(form, replace(filters, scales=scales), own.shared()), writer.memory(data).layout, c)


def _as_groups(form: Depthwise, weights: np.ndarray) -> Contract:
    """The grouped Contract, of depth 1, that replaces a Depthwise whose filters per channel do not divide the lanes."""
    return Contract(
        kernel=form.kernel,
        stride=form.stride,
        dilation=form.dilation,
        padding=form.padding,
        groups=weights.shape[3] // form.multiplier,
    )


def fuse_separables(plan: Plan, pairs: Iterable[tuple[int, int]]) -> Iterator[Fusion]:
    """The pairs of floats between which a large result would lie."""
    for pair in pairs:
        between = plan.graph.nodes[pair[0]].outputs[0]
        if plan.graph.tensors[between].dtype == "float32" and plan.is_large(between):
            yield Fusion(pair, write_separable)


def write_separable(writer: Writer, nodes: Sequence[Node]) -> list[Job]:
    """The jobs of a Depthwise and of the 1x1 Contract that is the only reader of its result."""
    depthwise, contract = nodes
    assert isinstance(depthwise.form, Depthwise)
    assert isinstance(contract.form, Contract)
    memories = writer.memory(depthwise.inputs[0]), writer.memory(contract.outputs[0])
    between = _between(image_shape(writer.shape(depthwise.outputs[0])), writer.generator.lanes)
    return DepthwiseWriter(writer.generator).fused_jobs(
        _layer(writer, depthwise, depthwise.form, between),
        contract.form,
        *memories,
        contract_filters(writer.generator.machine, writer.graph, contract),
        writer.epilogue(contract),
    )


def _between(shape: tuple[int, int, int, int], lanes: int) -> Layout:
    """How results lie between a Depthwise and the Contract after it: in blocks, unless these would be half empty."""
    return Layout(shape, lanes, blocked=2 * shape[3] > lanes)


@dataclass(frozen=True)
class DepthwiseWriter:
    """Writes the jobs of Depthwise nodes, alone and fused."""

    generator: Generator

    def jobs(self, layer: Layer, a: Memory, c: Memory) -> list[Job]:
        """The jobs of a Depthwise that is not fused: chunks are rows of the output, or halves of a row's blocks where
        there are few rows."""
        form, epilogue, packed = layer.form, layer.epilogue, layer.filters.pack(self.generator)
        images, rows, columns, channels = c.layout.shape
        blocks = -(-layer.filters.channels // layer.filters.block_channels(self.generator))
        work = columns * channels * form.kernel[0] * form.kernel[1]
        at_once = divisor(rows, CHUNK_WORK // work)
        is_regular = (
            not layer.filters.tail(self.generator, epilogue, c.layout) and _period(form, self.generator.lanes) == 1
        )
        is_halved = at_once == 1 < blocks and 1 < rows < FEWEST_CHUNKS and is_regular
        parts = 2 if is_halved else 1

        def body(kernel: Kernel) -> None:
            f = kernel.f
            part, start = kernel.chunk % parts, kernel.chunk // parts * at_once
            image, first = start // rows, start % rows
            source = kernel.pointer(a) + image * a.layout.image
            target = kernel.pointer(c) + image * c.layout.image
            extra = stream_pointers(kernel, epilogue.streams, image)
            half = part * blocks // 2
            some = (half, (part + 1) * blocks // 2 - half) if is_halved else None

            def row(i: Value) -> None:
                y = first + i
                at = [e + y * s.row for e, s in zip(extra, epilogue.streams, strict=True)]
                ends = (source, a.layout), (target + y * c.layout.row, c.layout)
                self.emit_row(kernel, layer, packed, *ends, y, at, some)

            f.loop(at_once, row)

        return [
            self.generator.job(
                "depthwise", images * rows // at_once * parts, body, worth=images * rows * work / CHUNK_WORK
            )
        ]

    def emit_row(
        self,
        kernel: Kernel,
        layer: Layer,
        packed: int,
        a: tuple[Value, Layout],
        c: tuple[Value, Layout],
        y: Value,
        streams: list[Value],
        some: tuple[Value, Value] | None = None,
    ) -> None:
        """All channel blocks of output row `y`, or only `some`: (the first, their number), none of them masked.

        `c` and `streams` point to the row's first pixel, `a` to the image. A blocked row is walked along from end to
        end, block by block. A row-major one is walked along in groups of pixels, because all channels of a pixel are
        neighbours.
        """
        f, generator = kernel.f, self.generator
        form, filters, epilogue = layer.form, layer.filters, layer.epilogue
        (source, a_layout), (target, c_layout) = a, c
        top = y * form.stride[0] - form.padding[0]
        source = source + (top * a_layout.row - form.padding[2] * a_layout.pixel)
        tail, stride = filters.tail(self.generator, epilogue, c_layout), form.stride[1] * filters.joined
        shape = RowShape(
            form.kernel,
            stride,
            form.dilation[1],
            a_layout.pixel,
            c_layout.pixel * filters.joined,
            c_layout.shape[2] // filters.joined,
            masked=False,
            filters=filters,
            epilogue=epilogue,
        )
        lanes, period, channels = generator.lanes, _period(form, generator.lanes), filters.block_channels(generator)
        wide = channels // lanes
        a_period = (
            period * lanes // form.multiplier * a_layout.element if form.multiplier > 1 else wide * a_layout.block
        )
        moves = [filters.block_bytes(generator), wide * c_layout.block, *(wide * s.block for s in epilogue.streams)]
        every = (a_period, *moves)
        steps = [stride * a_layout.pixel, 0, shape.c_pixel, *(s.pixel for s in epilogue.streams)]
        tap = f.index(form.dilation[0] * a_layout.row)
        pointers = [source, kernel.constants(packed), target, *streams]
        numbers = numbers_pointer(kernel, epilogue.numbers)
        whole: Value | int = -(-filters.channels // channels) - (1 if tail else 0)
        if some:
            first, whole = some
            pointers = [p + first * move for p, move in zip(pointers, every, strict=True)]

        def block(number: int, shape: RowShape, *at: Value) -> list[Value]:
            """Block `number` of a period; the first pointer is that to the channels of the period's first block."""
            start, sources = _channels(form, number, lanes)
            function = row_function(generator, replace(shape, channels=sources))
            source, weights, target, *streams = at
            f.call(function, source + start * a_layout.element, tap, weights, target, f.index(tail), *streams, *numbers)
            a_move = a_period if number == period - 1 else 0
            return [p + move for p, move in zip(at, (a_move, *moves), strict=True)]

        def some_blocks(count: int, shape: RowShape, *at: Value) -> list[Value]:
            for number in range(count):
                at = tuple(block(number, shape, *at))
            return list(at)

        def blocks(shape: RowShape, *pointers: Value) -> list[Value]:
            at = list(pointers)
            periods, rest = divmod(whole, period) if isinstance(whole, int) else (whole, 0)
            if periods:
                at = f.loop(periods, lambda _, *at: some_blocks(period, shape, *at), *at)
            at = some_blocks(rest, shape, *at)
            if tail:
                block(rest, replace(shape, masked=True), *at)
            return [p + shape.columns * step for p, step in zip(pointers, steps, strict=True)]

        if a_layout.blocked or filters.channels <= channels or filters.joined > 1:
            blocks(shape, *pointers)
            if rest := c_layout.shape[2] % filters.joined:
                left = [step * (shape.columns - 1) + step // filters.joined * rest for step in steps]
                blocks(replace(shape, columns=1), *(p + step for p, step in zip(pointers, left, strict=True)))
            return
        for columns, count in split(shape.columns, filters.columns_at_once(generator)):
            group = replace(shape, columns=columns)
            pointers = f.loop(count, lambda _, *at, group=group: blocks(group, *at), *pointers)

    def fused_jobs(
        self,
        layer: Layer,
        contract: Contract,
        a: Memory,
        c: Memory,
        filters: ContractFilters,
        epilogue: Epilogue,
    ) -> list[Job]:
        """A Depthwise whose result only a 1x1 Contract reads: each thread keeps one strip in scratch memory."""
        images, rows, columns, _ = c.layout.shape
        channels, own = layer.filters.channels // layer.filters.joined, layer.epilogue
        between = _between((1, 1, 1, channels), self.generator.lanes)
        products = filters.products(self.generator.machine, contract, between)
        strip = min(rows, -(-STRIP_PIXELS * (1 if products.unpacked is products else 4) // columns))
        strips = -(-rows // strip)
        between = replace(between, shape=(1, 1, strip * columns, channels))
        self.generator.reserve_scratch(between.size)
        (sweep,) = sweeps(contract, between, c.layout, filters.stored)
        sweep = replace(sweep, rows=rows, columns=columns, a_row=columns * between.pixel)
        contracts = ContractWriter(self.generator)
        lines = -(-between.size // ALIGN)
        product = contracts.multiplication(
            sweep, products, between, c.layout, filters, epilogue, strip * columns, scratch=lines * ALIGN
        )
        packed = layer.filters.pack(self.generator)
        line = replace(between, shape=(1, 1, columns, channels))
        if between.blocked:
            line = RowOfStrip(line.shape, line.lanes, blocked=True, strip=strip * columns)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            number, image = kernel.chunk % strips, kernel.chunk // strips
            first = number * strip
            source = kernel.pointer(a) + image * a.layout.image
            extra = stream_pointers(kernel, own.streams, image)
            results = [
                kernel.pointer(c) + image * c.layout.image,
                *stream_pointers(kernel, product.epilogue.streams, image),
            ]
            moves = [c.layout.row, *(s.row for s in product.epilogue.streams)]

            def row(i: Value) -> None:
                y = first + i
                at = [e + y * s.row for e, s in zip(extra, own.streams, strict=True)]
                target = kernel.scratch + i * (columns * between.pixel)
                self.emit_row(kernel, layer, packed, (source, a.layout), (target, line), y, at)

            def run(count: int) -> None:
                f.loop(count, row)
                pointers = [p + first * move for p, move in zip(results, moves, strict=True)]
                ready = product.prepared(kernel, [kernel.scratch, *pointers], f.index(0), count * columns)
                walk = PanelWalk(kernel, product, product.panels, f.index(0), count * columns)
                walk.along(product.panels.groups, ready)

            f.when_last(number, strips, lambda: run(strip), lambda: run(rows - (strips - 1) * strip))

        return [self.generator.job("depthwise_contract", images * strips, body)]


@dataclass(frozen=True)
class RowOfStrip(Layout):
    """One image row inside a strip: the distance between blocks is the length of the whole strip."""

    strip: int = 0

    @property
    def block(self) -> int:
        return self.strip * self.lanes * self.element


def _period(form: Depthwise, lanes: int) -> int:
    """Blocks of output channels after which the first one belongs to another channel of the data in the same way."""
    return form.multiplier // gcd(form.multiplier, lanes)


def _channels(form: Depthwise, block: int, lanes: int) -> tuple[int, tuple[int, ...]]:
    """The data's channel of a block's first lane, and the distance of each lane's channel from it; () where each lane
    has its own channel."""
    start, *_ = channels = [output // form.multiplier for output in range(block * lanes, (block + 1) * lanes)]
    return start, () if form.multiplier == 1 else tuple(channel - start for channel in channels)
