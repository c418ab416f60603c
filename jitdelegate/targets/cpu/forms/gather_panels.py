"""Gather of rows of a table that is also the matrix of a Contract, as of tokens and their scores.

It reads the rows from the Contract's panels, so that the program, or all programs of the model, store the table once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.axes import Axis
from jitdelegate.targets.cpu.code.kernel import Job, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, job_of_rows, look_up, refusal_check
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.narrow_products import channel_bytes, read_lines
from jitdelegate.targets.cpu.multiply.products import QUAD
from jitdelegate.targets.cpu.sources.filters import contract_filters
from jitdelegate.targets.cpu.sources.panels import pack, panel_groups

FEWEST_PRODUCTS = 1000
"""Multiplications per element that is gathered, above which slower reads do not count: of the Contract, or of all in
the program where another subgraph has the Contract."""


def reader_of_table(writer: Writer, node: Node, form: Gather) -> Node | None:
    """The Contract whose matrix f32[O, K] is the table from which the node gathers rows, of this graph or of another
    subgraph; None if there is none, or if it takes too little time for the reads of single elements not to matter."""
    table, places = node.inputs[:2]
    is_row = not form.axis and not form.batch and writer.shape(places)[-1] == 1
    if not is_row or len(writer.shape(table)) != 2 or writer.graph.tensors[table].dtype != "float32":
        return None
    least = FEWEST_PRODUCTS * prod(writer.shape(node.outputs[0]))
    for index in writer.graph.readers[table]:
        reader = writer.graph.nodes[index]
        is_matrix = isinstance(reader.form, Contract) and reader.form.is_pointwise and reader.inputs[1] == table
        if is_matrix and _products(writer, reader) >= least:
            return reader
    if writer.graph.tensors[table].is_matrix and sum(_products(writer, each) for each in writer.graph.nodes) >= least:
        return Node("FULLY_CONNECTED", (ABSENT, table, ABSENT), (), form=Contract())
    return None


def _products(writer: Writer, node: Node) -> int:
    """Multiplications of a node; 0 for other forms than a Contract."""
    if not isinstance(node.form, Contract):
        return 0
    return prod(writer.shape(node.outputs[0])) * prod(writer.shape(node.inputs[1])[1:])


def gather_from_panels(writer: Writer, node: Node, gather: Gather, reader: Node) -> list[Job]:
    """The jobs of a Gather node: one row per slice."""
    generator, (rows, depth) = writer.generator, writer.shape(node.inputs[0])
    filters, form = contract_filters(generator.machine, writer.graph, reader), reader.form
    assert isinstance(form, Contract)
    products = filters.products(generator.machine, form, "float32")
    quads, singles = divmod(depth, QUAD)
    steps, order = filters.stored.reshape(rows, depth, 1), np.arange(depth)
    groups = panel_groups(products, rows)
    packed = pack(generator, products, groups, steps, [(order, quads)], filters.bias, filters.scales)
    places = Placed(writer.memory(node.inputs[1]), writer.shape(node.inputs[1]))
    check = refusal_check(writer, node, gather, places, [Axis(rows, 1)])
    out = writer.memory(node.outputs[0])

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(places.memory) + number * places.nbytes
        row, is_inside = look_up(f, places.dtype, at, [Axis(rows, 1)])
        panel, channels, lane, first, before = f.index(0), f.index(0), f.index(0), 0, 0
        for group in groups:
            width, size = group.vectors * generator.lanes, products.panel_bytes(group.vectors, quads, singles)
            is_here = f.compare("uge", row, first)
            panel = f.select(is_here, (row - first) // width * size + before, panel)
            lane = f.select(is_here, (row - first) % width, lane)
            channels = f.select(is_here, f.index(width), channels)
            first, before = first + group.count * width, before + group.count * size
        lane_of = _Lane(f, filters.narrow or "float32", kernel.constants(packed) + panel, channels, lane, is_inside)
        lane_of.copy(kernel.pointer(out) + number * (depth * FLOAT_BYTES), products.scales, quads, singles)

    return [job_of_rows(generator, "gather", prod(places.shape), depth, one, check)]


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
        f, nbytes = self.f, ELEMENT_TYPES[self.dtype].nbytes
        start = self.panel + self.channels * ((1 + blocks) * FLOAT_BYTES) + self.lane * nbytes

        def block(i: Value, at: Value, to: Value) -> list[Value]:
            scale: Value | float = 1.0
            if blocks:
                scale = f.load(FLOAT, self.panel + ((i + 1) * self.channels + self.lane) * FLOAT_BYTES)
            for steps, count in ((QUAD, quads // max(blocks, 1)), (1, singles)):
                if count:
                    at, to = self._elements(count, steps, scale, at, to)
            return [at, to]

        f.loop(max(blocks, 1), block, start, target)

    def _elements(self, count: int, steps: int, scale: Value | float, at: Value, to: Value) -> list[Value]:
        f = self.f

        def group(_: Value, at: Value, to: Value) -> list[Value]:
            for k, (weight,) in enumerate(read_lines(f, self.dtype, at, 1, 1, steps, self.channels)):
                f.store(f.select(self.is_inside, weight * scale, 0.0), to + k * FLOAT_BYTES)
            return [at + self.channels * channel_bytes(self.dtype, steps), to + steps * FLOAT_BYTES]

        return f.loop(count, group, at, to)
