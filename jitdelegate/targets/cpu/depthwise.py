"""Depthwise: one channel block at a time, with a few output pixels in registers. With row-band fusion, each thread
computes a strip of rows into scratch memory, and the 1x1 Contract after it reads the strip from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.forms import Contract, Depthwise
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.contract import ContractWriter
from jitdelegate.targets.cpu.epilogue import Epilogue, stream_pointers
from jitdelegate.targets.cpu.indirect_gemm import sweeps
from jitdelegate.targets.cpu.kernel import ALIGN, Generator, Job, JobWriter, Kernel, Memory, divisor, split
from jitdelegate.targets.cpu.panels import Filters, narrow_filters
from jitdelegate.targets.cpu.vector_ir import FLOAT_BYTES, INDEX, POINTER, Value
from jitdelegate.targets.cpu.writer import Writer

UNROLLED_TAPS = 9
"""Windows with more taps than this are computed in a loop over their rows."""
UNROLLED_COLUMNS = 64
"""Windows wider than this are computed in a loop over their columns too."""
CHUNK_WORK = 125_000
"""Multiply-adds that are worth a chunk of their own; depthwise work is bound by memory, not by arithmetic."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large layer, so that threads end at about the same time."""
STRIP_PIXELS = 24
"""Pixels of a strip before a fused 1x1: enough to use each panel of weights a few times; twice as many where weights
are converted."""


def pack(generator: Generator, weights: np.ndarray, bias: np.ndarray | None) -> int:
    """f32[1, kh, kw, C] and f32[C] as [C / lanes][bias, taps ...][lanes]; the offset in the weights."""
    taps = weights.reshape(-1, weights.shape[3])
    lanes = generator.lanes
    blocks = -(-taps.shape[1] // lanes)
    table = np.zeros((1 + taps.shape[0], blocks * lanes), np.float32)
    table[1:, : taps.shape[1]] = taps
    if bias is not None:
        table[0, : bias.size] = bias
    return generator.weights.add(table.reshape(-1, blocks, lanes).transpose(1, 0, 2))


@dataclass(frozen=True)
class RowShape:
    """The facts that are fixed in the code of a row function."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    a_pixel: int
    c_pixel: int
    columns: int
    masked: bool
    epilogue: Epilogue
    multiplier: int = 1

    @property
    def key(self) -> str:
        fixed = (*self.kernel, self.stride, self.dilation, self.a_pixel, self.c_pixel, self.columns, self.masked)
        pixels = tuple(s.pixel for s in self.epilogue.streams)
        return f"{fixed} {self.multiplier} {pixels} {self.epilogue.key}"


def write_depthwise(writer: Writer, node: Node, form: Depthwise) -> list[Job]:
    """The jobs of a Depthwise node that is not fused."""
    generator, weights, bias = writer.generator, writer.constant(node.inputs[1]), writer.optional(node.inputs[2])
    ends, epilogue = writer.ends(node), writer.epilogue(node)
    if form.multiplier > 1 and generator.lanes % form.multiplier:
        grouped = Filters(np.ascontiguousarray(weights.transpose(3, 1, 2, 0)), bias=bias)
        return ContractWriter(generator).jobs(_as_groups(form, weights), *ends, grouped, epilogue)
    return DepthwiseWriter(generator).jobs(form, *ends, weights, bias, epilogue)


def _as_groups(form: Depthwise, weights: np.ndarray) -> Contract:
    """The grouped Contract, of depth 1, that replaces a Depthwise whose filters per channel do not divide the lanes."""
    return Contract(
        kernel=form.kernel,
        stride=form.stride,
        dilation=form.dilation,
        padding=form.padding,
        groups=weights.shape[3] // form.multiplier,
    )


def write_fused(writer: Writer, depthwise: Node, contract: Node) -> list[Job]:
    """The jobs of a Depthwise and of the 1x1 Contract that is the only reader of its result."""
    assert isinstance(depthwise.form, Depthwise)
    assert isinstance(contract.form, Contract)
    return DepthwiseWriter(writer.generator).fused_jobs(
        depthwise.form,
        contract.form,
        writer.memory(depthwise.inputs[0]),
        writer.memory(contract.outputs[0]),
        (writer.constant(depthwise.inputs[1]), writer.optional(depthwise.inputs[2])),
        narrow_filters(writer.generator.machine, writer.graph, contract),
        (writer.epilogue(depthwise), writer.epilogue(contract)),
    )


class DepthwiseWriter(JobWriter):
    """Writes the jobs of Depthwise nodes, alone and fused."""

    # one row of one channel block

    def row_function(self, shape: RowShape) -> str:
        """`void row(a, tap row distance, weights, c, lanes, stream pointers ...)` for one row and channel block.

        `a` points to the first tap of the first pixel; `lanes` is the number of channels to store if masked.
        """
        return self.generator.once("depthwise_row", shape.key, lambda name: self._write_row(shape, name))

    def _write_row(self, shape: RowShape, name: str) -> None:
        streams = shape.epilogue.streams
        parameters = [("a", POINTER), ("tap", INDEX), ("w", POINTER), ("c", POINTER), ("lanes", INDEX)]
        parameters += [(f"s{k}", POINTER) for k in range(len(streams))]
        f = self.generator.module.function(name, parameters)
        a, tap, w, c, lanes, *at = f.parameters
        mask = f.first_lanes(lanes, self.generator.lanes) if shape.masked else None
        moves = [shape.a_pixel * shape.stride, shape.c_pixel, *(s.pixel for s in streams)]
        pointers = [a, c, *at]
        for size, count in split(shape.columns, self._columns_at_once()):

            def group(_: Value, *pointers: Value, size: int = size) -> list[Value]:
                sums = self._sums(shape, pointers[0], tap, w, size)
                for i, value in enumerate(sums):
                    extra = [p + i * move for p, move in zip(pointers[2:], moves[2:], strict=True)]
                    shape.epilogue.store(f, value, extra, pointers[1] + i * shape.c_pixel, mask)
                return [p + size * move for p, move in zip(pointers, moves, strict=True)]

            pointers = f.loop(count, group, *pointers)
        f.finish()

    def _columns_at_once(self) -> int:
        return 8 if len(self.generator.machine.tiles) > 2 else 4

    def _sums(self, shape: RowShape, a: Value, tap: Value, w: Value, size: int) -> list[Value]:
        """The sums of the window's products, plus the bias, for `size` neighbouring pixels."""
        f, generator = a.function, self.generator
        bias = w
        rows, columns = shape.kernel

        def column(_: Value, a: Value, w: Value, *sums: Value) -> list[Value]:
            found = self._taps(shape, a, w, sums, 1)
            return [a + shape.dilation * shape.a_pixel, w + generator.vector_bytes, *found]

        def row(_: Value, a: Value, w: Value, *sums: Value) -> list[Value]:
            if columns > UNROLLED_COLUMNS:
                _, w, *found = f.loop(columns, column, a, w, *sums)
                return [a + tap, w, *found]
            found = self._taps(shape, a, w, sums, columns)
            return [a + tap, w + columns * generator.vector_bytes, *found]

        state = [a, w + generator.vector_bytes, *[f.literal(generator.vector, 0.0)] * size]
        if rows * columns > UNROLLED_TAPS:
            state = f.loop(rows, row, *state)
        else:
            for _ in range(rows):
                state = row(f.index(0), *state)
        last = f.load(generator.vector, bias, 64)
        return [total + last for total in state[2:]]

    def _taps(self, shape: RowShape, a: Value, w: Value, sums: Sequence[Value], columns: int) -> list[Value]:
        """The sums of neighbouring pixels plus the products of `columns` neighbouring taps. Input pixels that several
        output pixels share are loaded once."""
        f, generator = a.function, self.generator
        found = list(sums)
        loaded: dict[int, Value] = {}
        for x in range(columns):
            factor = f.load(generator.vector, w + x * generator.vector_bytes, 64)
            for i in range(len(found)):
                distance = (i * shape.stride + x * shape.dilation) * shape.a_pixel
                if distance not in loaded:
                    loaded[distance] = self._channels(shape, a + distance)
                found[i] = f.fma(loaded[distance], factor, found[i])
        return found

    def _channels(self, shape: RowShape, at: Value) -> Value:
        """The input channels that belong to one block of output channels."""
        f, lanes = at.function, self.generator.lanes
        if shape.multiplier == 1:
            return f.load(self.generator.vector, at)
        value = f.literal(self.generator.vector, 0.0)
        for lane in range(lanes):
            source = f.load("float", at + lane // shape.multiplier * FLOAT_BYTES)
            value = f.emit(self.generator.vector, f"insertelement {value}, {source}, i64 {lane}")
        return value

    # whole layers

    def jobs(
        self, form: Depthwise, a: Memory, c: Memory, weights: np.ndarray, bias: np.ndarray | None, epilogue: Epilogue
    ) -> list[Job]:
        """The jobs of a Depthwise that is not fused: chunks are rows of the output, or halves of a row's blocks where
        there are few rows."""
        packed = pack(self.generator, weights, bias)
        images, rows, columns, channels = c.layout.shape
        blocks = c.layout.blocks
        work = columns * channels * form.kernel[0] * form.kernel[1]
        at_once = divisor(rows, CHUNK_WORK // work)
        is_halved = at_once == 1 < blocks and 1 < rows < FEWEST_CHUNKS and not epilogue.lanes_to_mask(c.layout)
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
                self.emit_row(kernel, form, *ends, packed, epilogue, y, at, some)

            f.loop(at_once, row)

        return [
            self.generator.job(
                "depthwise", images * rows // at_once * parts, body, worth=images * rows * work / CHUNK_WORK
            )
        ]

    def emit_row(
        self,
        kernel: Kernel,
        form: Depthwise,
        a: tuple[Value, Layout],
        c: tuple[Value, Layout],
        packed: int,
        epilogue: Epilogue,
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
        (source, a_layout), (target, c_layout) = a, c
        top = y * form.stride[0] - form.padding[0]
        source = source + (top * a_layout.row - form.padding[2] * a_layout.pixel)
        tail = epilogue.lanes_to_mask(c_layout)
        shape = RowShape(
            form.kernel,
            form.stride[1],
            form.dilation[1],
            a_layout.pixel,
            c_layout.pixel,
            c_layout.shape[2],
            masked=False,
            epilogue=epilogue,
            multiplier=form.multiplier,
        )
        size = (1 + form.kernel[0] * form.kernel[1]) * generator.vector_bytes
        a_block = generator.vector_bytes // form.multiplier if form.multiplier > 1 else a_layout.block
        moves = [a_block, size, c_layout.block, *(s.block for s in epilogue.streams)]
        steps = [form.stride[1] * a_layout.pixel, 0, c_layout.pixel, *(s.pixel for s in epilogue.streams)]
        tap = f.index(form.dilation[0] * a_layout.row)
        pointers = [source, kernel.constants(packed), target, *streams]
        whole: Value | int = c_layout.blocks - (1 if tail else 0)
        if some:
            first, whole = some
            pointers = [p + first * move for p, move in zip(pointers, moves, strict=True)]

        def block(shape: RowShape, source: Value, weights: Value, target: Value, *streams: Value) -> list[Value]:
            f.call(self.row_function(shape), source, tap, weights, target, f.index(tail), *streams)
            return [p + move for p, move in zip((source, weights, target, *streams), moves, strict=True)]

        def blocks(shape: RowShape, *pointers: Value) -> list[Value]:
            at = list(pointers)
            if whole:
                at = f.loop(whole, lambda _, *at: block(shape, *at), *at)
            if tail:
                block(replace(shape, masked=True), *at)
            return [p + shape.columns * step for p, step in zip(pointers, steps, strict=True)]

        if a_layout.blocked or c_layout.blocks == 1:
            blocks(shape, *pointers)
            return
        for columns, count in split(shape.columns, self._columns_at_once()):
            group = replace(shape, columns=columns)
            pointers = f.loop(count, lambda _, *at, group=group: blocks(group, *at), *pointers)

    def fused_jobs(
        self,
        form: Depthwise,
        contract: Contract,
        a: Memory,
        c: Memory,
        taps: tuple[np.ndarray, np.ndarray | None],
        filters: Filters,
        epilogues: tuple[Epilogue, Epilogue],
    ) -> list[Job]:
        """A Depthwise whose result only a 1x1 Contract reads: each thread keeps one strip in scratch memory."""
        images, rows, columns, _ = c.layout.shape
        channels = taps[0].shape[3]
        strip = min(rows, -(-STRIP_PIXELS * (1 if filters.is_wide else 2) // columns))
        strips = -(-rows // strip)
        between = Layout((1, 1, strip * columns, channels), self.generator.lanes, blocked=True)
        self.generator.reserve_scratch(between.size)
        (sweep,) = sweeps(contract, between, c.layout, filters.stored)
        sweep = replace(sweep, rows=rows, columns=columns, a_row=columns * between.pixel)
        contracts = ContractWriter(self.generator)
        scratch = -(-between.size // ALIGN) * ALIGN
        product = contracts.multiplication(sweep, c.layout, filters, epilogues[1], strip * columns, scratch)
        packed = pack(self.generator, *taps)
        line = RowOfStrip((1, 1, columns, channels), between.lanes, blocked=True, strip=strip * columns)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            number, image = kernel.chunk % strips, kernel.chunk // strips
            first = number * strip
            source = kernel.pointer(a) + image * a.layout.image
            extra = stream_pointers(kernel, epilogues[0].streams, image)
            results = [kernel.pointer(c) + image * c.layout.image, *stream_pointers(kernel, product.streams, image)]
            moves = [c.layout.row, *(s.row for s in product.streams)]

            def row(i: Value) -> None:
                y = first + i
                at = [e + y * s.row for e, s in zip(extra, epilogues[0].streams, strict=True)]
                target = kernel.scratch + i * (columns * between.pixel)
                self.emit_row(kernel, form, (source, a.layout), (target, line), packed, epilogues[0], y, at)

            def run(count: int) -> None:
                f.loop(count, row)
                pointers = [p + first * move for p, move in zip(results, moves, strict=True)]
                contracts.run_panels(kernel, product, [kernel.scratch, *pointers], f.index(0), count * columns)

            f.when_last(number, strips, lambda: run(strip), lambda: run(rows - (strips - 1) * strip))

        return [self.generator.job("depthwise_contract", images * strips, body)]


@dataclass(frozen=True)
class RowOfStrip(Layout):
    """One image row inside a strip: the distance between blocks is the length of the whole strip."""

    strip: int = 0

    @property
    def block(self) -> int:
        return self.strip * self.lanes * self.element
