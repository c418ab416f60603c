"""Gather of rows of a table that is also the matrix of a Contract, as of tokens and their scores.

It reads the rows from the Contract's panels, so that the program stores the table once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.indirect_gemm import QUAD
from jitdelegate.targets.cpu.kernel import Job, Kernel
from jitdelegate.targets.cpu.panels import PanelFormat, line_bytes, narrow_filters, pack, read_lines
from jitdelegate.targets.cpu.reduce import Axis
from jitdelegate.targets.cpu.rows import Placed, job_of_rows, look_up
from jitdelegate.targets.cpu.vector_ir import FLOAT, FLOAT_BYTES, Function, Value
from jitdelegate.targets.cpu.writer import Writer

FEWEST_PRODUCTS = 1000
"""Multiplications of the Contract per element that is gathered, above which slower reads do not count."""


def reader_of_table(writer: Writer, node: Node, form: Gather) -> Node | None:
    """The Contract whose matrix f32[O, K] is the table from which the node gathers rows; None if there is none, or if
    it takes too little time for the reads of single elements not to matter."""
    table, places = node.inputs[:2]
    if form.axis or form.batch or writer.shape(places)[-1] != 1 or len(writer.shape(table)) != 2:
        return None
    for index in writer.graph.readers[table]:
        reader = writer.graph.nodes[index]
        is_matrix = isinstance(reader.form, Contract) and reader.form.is_pointwise and reader.inputs[1] == table
        products = prod(writer.shape(reader.outputs[0])) * writer.shape(table)[1]
        if is_matrix and products >= FEWEST_PRODUCTS * prod(writer.shape(node.outputs[0])):
            return reader
    return None


def gather_from_panels(writer: Writer, node: Node, reader: Node) -> list[Job]:
    """The jobs of a Gather node: one row per slice."""
    generator, (rows, depth) = writer.generator, writer.shape(node.inputs[0])
    matrix = narrow_filters(generator.machine, writer.graph, reader)
    matrix = replace(matrix, stored=matrix.stored.reshape(rows, depth))
    form = PanelFormat(matrix.dtype, depth // QUAD, depth % QUAD, matrix.blocks)
    packed, widths = pack(generator, matrix, form, np.arange(depth))
    places = Placed(writer.memory(node.inputs[1]), writer.shape(node.inputs[1]))
    out = writer.memory(node.outputs[0])

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(places.memory) + number * places.nbytes
        row, is_inside = look_up(f, places.dtype, at, [Axis(rows, 1)])
        panel, channels, lane, first, before = f.index(0), f.index(0), f.index(0), 0, 0
        for vectors, count in widths:
            width = vectors * generator.lanes
            size = form.size(width, generator.vector_bytes)
            is_here = f.compare("uge", row, first)
            panel = f.select(is_here, (row - first) // width * size + before, panel)
            lane = f.select(is_here, (row - first) % width, lane)
            channels = f.select(is_here, f.index(width), channels)
            first, before = first + count * width, before + count * size
        source = kernel.constants(packed) + panel
        target = kernel.pointer(out) + number * (depth * FLOAT_BYTES)
        _Row(f, form, source, channels, lane, is_inside).copy(target)

    return [job_of_rows(generator, "gather", prod(places.shape), depth, one)]


@dataclass(frozen=True)
class _Row:
    """One lane of a panel of `channels` channels; zeros unless `is_inside`."""

    f: Function
    form: PanelFormat
    panel: Value
    channels: Value
    lane: Value
    is_inside: Value

    def copy(self, target: Value) -> None:
        """Writes the row's elements as float32."""
        form, f = self.form, self.f
        nbytes = 1 if form.dtype == "int4" else ELEMENT_TYPES[form.dtype].nbytes
        at = self.panel + self.channels * form.header(1) + self.lane * nbytes
        blocks = max(form.blocks, 1)

        def block(i: Value, at: Value, to: Value) -> list[Value]:
            scale = (
                f.load(FLOAT, self.panel + ((i + 1) * self.channels + self.lane) * FLOAT_BYTES) if form.blocks else 1.0
            )
            for steps, count in ((QUAD, form.quads // blocks), (1, form.singles)):
                if count:
                    at, to = self._elements(count, steps, scale, at, to)
            return [at, to]

        f.loop(blocks, block, at, target)

    def _elements(self, count: int, steps: int, scale: Value | float, at: Value, to: Value) -> list[Value]:
        f, form = self.f, self.form

        def group(_: Value, at: Value, to: Value) -> list[Value]:
            for k, (weight,) in enumerate(read_lines(f, form.dtype, at, 1, 1, steps, self.channels)):
                value = weight * scale
                f.store(f.select(self.is_inside, value, 0.0), to + k * FLOAT_BYTES)
            return [at + self.channels * line_bytes(form.dtype, steps), to + steps * FLOAT_BYTES]

        return f.loop(count, group, at, to)
