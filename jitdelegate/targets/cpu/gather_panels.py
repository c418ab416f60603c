"""Gather of rows of a table that is also the matrix of a Contract, as of tokens and their scores.

It reads the rows from the Contract's panels, so that the program stores the table once.
"""

from __future__ import annotations

from math import prod

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cpu.contract import pack_in_order
from jitdelegate.targets.cpu.kernel import Job, Kernel
from jitdelegate.targets.cpu.reduce import Axis
from jitdelegate.targets.cpu.rows import Placed, job_of_rows, look_up
from jitdelegate.targets.cpu.vector_ir import FLOAT, FLOAT_BYTES, Value
from jitdelegate.targets.cpu.writer import Writer

FEWEST_PRODUCTS = 1000
"""Multiplications of the Contract per element that is gathered, above which slower reads do not count."""


def reader_of_table(writer: Writer, node: Node, form: Gather) -> Node | None:
    """The Contract whose matrix f32[O, K] is the table from which the node gathers rows; None if there is none, or if
    it takes too little time for the reads of single elements not to matter."""
    table, places = node.inputs[:2]
    is_row = not form.axis and not form.batch and writer.shape(places)[-1] == 1
    if not is_row or len(writer.shape(table)) != 2 or writer.graph.tensors[table].dtype != "float32":
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
    packed, widths = pack_in_order(generator, writer.constant(node.inputs[0]), writer.optional(reader.inputs[2]))
    places = Placed(writer.memory(node.inputs[1]), writer.shape(node.inputs[1]))
    out = writer.memory(node.outputs[0])
    vector = generator.vector_bytes

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(places.memory) + number * places.nbytes
        row, is_inside = look_up(f, places.dtype, at, [Axis(rows, 1)])
        start, step, first, before = f.index(0), f.index(0), 0, 0
        for vectors, count in widths:
            width = vectors * generator.lanes
            panel, lane = (row - first) // width, (row - first) % width
            is_here = f.compare("uge", row, first)
            own = panel * ((1 + depth) * vectors * vector) + lane * FLOAT_BYTES + (before + vectors * vector)
            start, step = f.select(is_here, own, start), f.select(is_here, f.index(vectors * vector), step)
            first, before = first + count * width, before + count * (1 + depth) * vectors * vector
        source = kernel.constants(packed) + start
        target = kernel.pointer(out) + number * (depth * FLOAT_BYTES)

        def element(k: Value) -> None:
            loaded = f.load(FLOAT, source + k * step)
            f.store(f.select(is_inside, loaded, 0.0), target + k * FLOAT_BYTES)

        f.loop(depth, element)

    return [job_of_rows(generator, "gather", prod(places.shape), depth, one)]
