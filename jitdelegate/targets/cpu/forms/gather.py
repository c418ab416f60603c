"""Gather: copies slices whose indices are known at run time, as bytes, for all element types.

Rows of a table that is also the matrix of a Contract, as of tokens and their scores, are read from the Contract's
panels, so that the program, or all programs of the model, store the table once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.dequantize import dequantized
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ir.layout import Layout
from jitdelegate.ops.dynamic_weights import rounded
from jitdelegate.targets.cpu.code.kernel import Axis, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, is_dense, job_of_rows, look_up, placed, refusal_check, size_of
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.narrow_products import BlockBytes, channel_bytes, read_lines
from jitdelegate.targets.cpu.multiply.products import QUAD, ByteProducts, Products, folded
from jitdelegate.targets.cpu.sources.filters import ContractFilters, block_filters, contract_filters
from jitdelegate.targets.cpu.sources.panels import pack, panel_groups

FEWEST_PRODUCTS = 1000
"""Multiplications per element that is gathered, above which slower reads do not count: of the Contract, or of all in
the program where another subgraph has the Contract."""


@dataclass(frozen=True)
class Slices:
    """Memory layout of the slices of one Gather.

    Attributes:
        source, indices, target: the axes that count slices, in data, indices and output; distance 0 where an operand is
            repeated.
        indexed: the axes of the data that are indexed.
        inner: axes of the data and of the output along which the pieces of a slice lie.
        piece: number of elements that are contiguous in both.
    """

    source: list[Axis]
    indices: list[Axis]
    target: list[Axis]
    indexed: list[Axis]
    inner: tuple[list[Axis], list[Axis]]
    piece: int


def slices_of(form: Gather, data: Placed, indices: Placed, out: Placed) -> Slices:
    """The slices of a Gather."""
    batch, axis, count = form.batch, form.axis, indices.shape[-1]
    between = len(indices.shape) - 1 - batch
    outer, index = data.axes[batch:axis], indices.axes[batch:-1]
    inner = data.axes[axis + count :], out.axes[axis + between :]
    dense = all(is_dense(axes, data.nbytes) for axes in inner)
    return Slices(
        source=data.axes[:axis] + [Axis(repeated.size, 0) for repeated in index],
        indices=indices.axes[:batch] + [Axis(repeated.size, 0) for repeated in outer] + index,
        target=out.axes[: axis + between],
        indexed=data.axes[axis : axis + count],
        inner=([], []) if dense else (inner[0][:-1], inner[1][:-1]),
        piece=size_of(inner[0]) if dense else inner[0][-1].size,
    )


def write_gather(writer: Writer, node: Node, form: Gather) -> list[Job]:
    """The jobs of a Gather node."""
    reader = _reader_of_table(writer, node, form)
    if reader is not None:
        return _gather_from_panels(writer, node, form, reader)
    integers = _integers_of_table(writer, node, form)
    if integers is not None:
        return _gather_integers(writer, node, form, *integers)
    data, indices, out = placed(writer, node)
    slices = slices_of(form, data, indices, out)
    pieces = size_of(slices.inner[0])

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(indices.memory) + offset_of(f, number, slices.indices)
        start, is_inside = look_up(f, indices.dtype, at, slices.indexed)
        source = kernel.pointer(data.memory) + offset_of(f, number, slices.source) + start
        target = kernel.pointer(out.memory) + offset_of(f, number, slices.target)

        def piece(i: Value) -> None:
            start, end = source + offset_of(f, i, slices.inner[0]), target + offset_of(f, i, slices.inner[1])
            _copy(f, writer.generator.vector_bytes, data.nbytes, slices.piece, start, end, is_inside)

        f.loop(pieces, piece)

    check, work = refusal_check(writer, node, form, indices, slices.indexed), slices.piece * pieces
    return [job_of_rows(writer.generator, "gather", size_of(slices.target), work, one, check)]


def _copy(
    f: Function, vector_bytes: int, nbytes: int, count: int, source: Value, target: Value, is_inside: Value
) -> None:
    """Copies `count` elements, or writes zeros if not `is_inside`: whole vectors, then ever smaller ones."""
    lanes = vector_bytes // nbytes
    vectors, left = divmod(count, lanes)

    def move(width: int, at: Value) -> None:
        type_ = vector(width, f"i{8 * nbytes}")
        loaded = f.load(type_, source + at, nbytes)
        f.store(f.select(is_inside, loaded, f.literal(type_, 0)), target + at, nbytes)

    if vectors:
        f.loop(vectors, lambda i: move(lanes, i * vector_bytes))
    done, width = vectors * lanes, lanes
    while width := width // 2:
        if left & width:
            move(width, f.index(done * nbytes))
            done += width


def _reader_of_table(writer: Writer, node: Node, form: Gather) -> Node | None:
    """The Contract whose matrix f32[O, K] is the table from which the node gathers rows, of this graph or of another
    subgraph; None if there is none, or if it takes too little time for the reads of single elements not to matter."""
    table = node.inputs[0]
    machine = writer.generator.machine
    is_paired = machine.multiplies_bfloats or machine.multiplies_halves  # a row is not every so many bytes of a panel
    if is_paired or not _gathers_rows(writer, node, form) or writer.graph.tensors[table].dtype != "float32":
        return None
    least = FEWEST_PRODUCTS * prod(writer.shape(node.outputs[0]))
    for index in writer.graph.readers[table]:
        reader = writer.graph.nodes[index]
        is_matrix = isinstance(reader.form, Contract) and reader.form.is_pointwise and reader.inputs[1] == table
        if is_matrix and _products(writer, reader) >= least:
            return reader
    if writer.graph.tensors[table].is_matrix and sum(_products(writer, node) for node in writer.graph.nodes) >= least:
        return Node("FULLY_CONNECTED", (ABSENT, table, ABSENT), (), form=Contract())
    return None


def _gathers_rows(writer: Writer, node: Node, form: Gather) -> bool:
    """Whether the node gathers whole rows of a matrix."""
    table, indices = node.inputs[:2]
    return not form.axis and not form.batch and writer.shape(indices)[-1] == 1 and len(writer.shape(table)) == 2


def _integers_of_table(writer: Writer, node: Node, form: Gather) -> tuple[ContractFilters, Products, int] | None:
    """The weights, the products and the zero point of data by which products of bytes multiply a quantized table, in
    this graph or in another subgraph, if it is read from their panels; else None."""
    index, graph = node.inputs[0], writer.graph
    table, depth = graph.tensors[index], writer.shape(index)[-1]
    is_likely = table.is_matrix and table.dtype == "int8" and _gathers_rows(writer, node, form)
    if not is_likely or table.quant is None or depth % (QUAD * ByteProducts.channels):
        return None
    if sum(_products(writer, each) for each in graph.nodes) < FEWEST_PRODUCTS * prod(writer.shape(node.outputs[0])):
        return None
    has_blocks = table.quant.block_size > 0 and len(table.quant.scales) > 1
    accumulator = "float32" if has_blocks else "int32"
    for like in graph.nodes:
        own, data = like.form, graph.tensors[like.inputs[0]].dtype if like.inputs else ""
        if not isinstance(own, Contract) or own.accumulator != accumulator or data not in ("int8", "uint8"):
            continue
        if has_blocks:
            if (filters := block_filters(dequantized(rounded(table)), None)) is None:
                return None
        else:
            filters = contract_filters(
                writer.generator.machine, graph, replace(like, inputs=(like.inputs[0], index, ABSENT))
            )
        layout = Layout((1, 1, 1, depth), writer.generator.lanes, dtype=data)
        products = filters.products(writer.generator.machine, own, layout)
        return (filters, products, own.input_zero) if type(products) in (ByteProducts, BlockBytes) else None
    return None


def _products(writer: Writer, node: Node) -> int:
    """Multiplications of a node; 0 for other forms than a Contract."""
    if not isinstance(node.form, Contract):
        return 0
    return prod(writer.shape(node.outputs[0])) * prod(writer.shape(node.inputs[1])[1:])


def _gather_from_panels(writer: Writer, node: Node, gather: Gather, reader: Node) -> list[Job]:
    """The jobs of a Gather node: one row of floats per slice."""
    filters, form = contract_filters(writer.generator.machine, writer.graph, reader), reader.form
    assert isinstance(form, Contract)
    generator, (rows, depth) = writer.generator, writer.shape(node.inputs[0])
    products = filters.products(generator.machine, form, Layout((1, 1, rows, depth), generator.lanes))
    quads, singles = divmod(depth, QUAD)

    def copy(f: Function, panel: Value, channels: Value, lane: Value, is_inside: Value, target: Value) -> None:
        lane_of = _Lane(f, filters.narrow or "float32", panel, channels, lane, is_inside)
        lane_of.copy(target, products.scales, quads, singles)

    return _gather_rows(writer, node, gather, filters, products, copy)


def _gather_integers(
    writer: Writer, node: Node, gather: Gather, filters: ContractFilters, products: Products, zero: int
) -> list[Job]:
    """The jobs of a Gather node: one row of bytes per slice, from panels of bytes, or of int4 that come in pairs."""
    rows, depth = writer.shape(node.inputs[0])
    bias = folded(None, filters.stored.reshape(rows, depth), zero + products.offset, products.accumulator, filters.sums)
    is_paired = isinstance(products, BlockBytes)
    word = vector(ByteProducts.channels, "i8")

    def copy(f: Function, panel: Value, channels: Value, lane: Value, is_inside: Value, target: Value) -> None:
        def step(_: Value, at: Value, to: Value) -> list[Value]:
            loaded = f.load(word, at, 1)
            steps = [f.ashr(loaded << 4, 4), f.ashr(loaded, 4)] if is_paired else [loaded]
            for number, one in enumerate(steps):
                f.store(f.select(is_inside, one, f.literal(word, 0)), to + number * ByteProducts.channels, 1)
            return [at + channels * ByteProducts.channels, to + len(steps) * ByteProducts.channels]

        blocks = max(1, products.scales)
        rest = products.scales_bytes(channels // products.lanes) if is_paired else f.index(0)

        def block(_: Value, at: Value, to: Value) -> list[Value]:
            at, to = f.loop(depth // (blocks * ByteProducts.channels * (1 + is_paired)), step, at, to)
            return [at + rest, to]

        start = panel + channels * (products.bias_bytes // products.lanes) + lane * ByteProducts.channels
        f.loop(blocks, block, start + rest if products.scales == 1 else start, target)

    return _gather_rows(writer, node, gather, replace(filters, bias=bias), products, copy)


Copy = Callable[[Function, Value, Value, Value, Value, Value], None]
"""Writes a channel of a panel with so many channels: f, panel, channels, channel, whether it exists, target."""


def _gather_rows(
    writer: Writer, node: Node, gather: Gather, filters: ContractFilters, products: Products, copy: Copy
) -> list[Job]:
    generator, (rows, depth) = writer.generator, writer.shape(node.inputs[0])
    quads, singles = divmod(depth // products.channels, QUAD)
    steps, order = filters.stored.reshape(rows, -1, products.channels), np.arange(depth // products.channels)
    groups = panel_groups(products, rows)
    packed = pack(generator, products, groups, steps, [(order, quads)], filters.bias, filters.scales)
    indices = Placed(writer.memory(node.inputs[1]), writer.shape(node.inputs[1]))
    check = refusal_check(writer, node, gather, indices, [Axis(rows, 1)])
    out = writer.memory(node.outputs[0])
    row_bytes = depth * out.layout.element

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(indices.memory) + number * indices.nbytes
        row, is_inside = look_up(f, indices.dtype, at, [Axis(rows, 1)])
        panel, channels, lane, first, before = f.index(0), f.index(0), f.index(0), 0, 0
        for group in groups:
            width, size = group.vectors * generator.lanes, products.panel_bytes(group.vectors, quads, singles)
            is_here = f.compare("uge", row, first)
            panel = f.select(is_here, (row - first) // width * size + before, panel)
            lane = f.select(is_here, (row - first) % width, lane)
            channels = f.select(is_here, f.index(width), channels)
            first, before = first + group.count * width, before + group.count * size
        target = kernel.pointer(out) + number * row_bytes
        copy(f, kernel.constants(packed) + panel, channels, lane, is_inside, target)

    return [job_of_rows(generator, "gather", prod(indices.shape), depth, one, check)]


@dataclass(frozen=True)
class _Lane:
    """One output channel of a panel of `channels` channels with weights of type `dtype`; zeros unless `is_inside`."""

    f: Function
    dtype: str
    panel: Value
    channels: Value
    lane: Value
    is_inside: Value

    def copy(self, target: Value, blocks: int, quads: int, singles: int) -> None:
        """Writes the weights as float32."""
        f, nbytes, line = self.f, channel_bytes(self.dtype, 1), self.channels * FLOAT_BYTES
        part = self.channels * (quads // max(blocks, 1) * channel_bytes(self.dtype, QUAD))

        def block(i: Value, panel: Value, to: Value) -> list[Value]:
            """A part of the weights from `panel` on, with its scales behind it, a single one before it."""
            scale: Value | float = 1.0
            if blocks:
                scale = f.load(FLOAT, (panel + part if blocks > 1 else panel) + self.lane * FLOAT_BYTES)
            at = (panel + line if blocks == 1 else panel) + self.lane * nbytes
            for steps, count in ((QUAD, quads // max(blocks, 1)), (1, singles)):
                if count:
                    at, to = self._elements(count, steps, scale, at, to)
            return [panel + part + line, to]

        f.loop(max(blocks, 1), block, self.panel + line, target)

    def _elements(self, count: int, steps: int, scale: Value | float, at: Value, to: Value) -> list[Value]:
        f = self.f

        def group(_: Value, at: Value, to: Value) -> list[Value]:
            for k, (weight,) in enumerate(read_lines(f, self.dtype, at, 1, 1, steps, self.channels)):
                f.store(f.select(self.is_inside, weight * scale, 0.0), to + k * FLOAT_BYTES)
            return [at + self.channels * channel_bytes(self.dtype, steps), to + steps * FLOAT_BYTES]

        return f.loop(count, group, at, to)
