"""Recurrent: a cell over the steps of a sequence, one chunk per sequence of the batch.

Every step multiplies the recurrent weights by the last hidden values, one panel of units at a time: all gates of a
vector of units are summed together, with each hidden value broadcast to all lanes. The panel's cells are computed while
the sums are in registers. A projection is another such product; it reads the cells' results from scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, channel_vector
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.cpu.sources.panels import PackedLines, PanelGroup, pack
from jitdelegate.targets.cpu.walks.register_tile import Lines, RegisterTile, loops_over, sets_of
from jitdelegate.targets.maths.expression import emit


@dataclass(frozen=True)
class Packed:
    """Panels, from `offset` in the program's weights on: one for each vector of `rows` rows of `gates` sums each, over
    `depth` values."""

    offset: int
    rows: int
    gates: int
    depth: int


@dataclass(frozen=True)
class Sequences:
    """One Recurrent node with its operands.

    Attributes:
        steps, batch, width: sizes of `out`, without the row of the state.
        data, hidden, state, out: row-major memory.
        cells: weights from hidden values to gates.
        more: offsets of vectors of units in the program's weights.
        projection: weights from units to hidden values, with their bias; None if there is none.
    """

    form: Recurrent
    steps: int
    batch: int
    width: int
    data: Memory
    hidden: Memory
    state: Memory
    out: Memory
    cells: Packed
    more: tuple[int, ...]
    projection: Packed | None

    @property
    def row(self) -> int:
        """Bytes of one sequence's row in `out`."""
        return self.width * self.out.layout.element

    @property
    def ahead(self) -> int:
        """Bytes between time steps of `out`."""
        return self.batch * self.row

    @property
    def gates_row(self) -> int:
        """Bytes of one gate in `data`."""
        return self.cells.rows * self.data.layout.element

    @property
    def step(self) -> int:
        """Bytes between time steps of `data`."""
        return self.form.gates * self.gates_row * (self.batch if self.form.time_major else 1)

    @property
    def sequence(self) -> int:
        """Bytes between sequences of `data`."""
        return self.form.gates * self.gates_row * (1 if self.form.time_major else self.steps)


def write_recurrent(writer: Writer, node: Node, form: Recurrent) -> list[Job]:
    """The job of a Recurrent node."""
    generator, output = writer.generator, node.outputs[0]
    (rows, batch, width), out = writer.shape(output), writer.memory(output)
    data, hidden, state = (writer.memory(index) for index in node.inputs[:3])
    cells = _packed(generator, writer.constant(node.inputs[3]), form.gates)
    vectors, weights, bias = map(writer.optional, node.inputs[4:])
    more = () if vectors is None else vectors
    offsets = tuple(channel_vector(generator.weights, values, generator.lanes) for values in more)
    projection = None if weights is None else _packed(generator, weights, 1, bias)
    sequences = Sequences(form, rows - 1, batch, width, data, hidden, state, out, cells, offsets, projection)
    if projection:
        generator.reserve_scratch(cells.rows * out.layout.element)
    return [generator.job("recurrent", batch, lambda kernel: _Sequence(kernel, sequences).write())]


def _packed(generator: Generator, weights: np.ndarray, gates: int, bias: np.ndarray | None = None) -> Packed:
    """Weights [gates * rows, depth] and the bias of a single gate, padded with zeros."""
    rows, depth, lanes = len(weights) // gates, weights.shape[1], generator.lanes
    panels = -(-rows // lanes)
    padded = np.zeros((gates, panels * lanes, depth), np.float32)
    padded[:, :rows] = weights.reshape(gates, rows, depth)
    steps = padded.reshape(gates, panels, lanes, depth).swapaxes(0, 1).reshape(-1, depth, 1)
    groups, products = [PanelGroup(0, gates, panels, masked=False)], Products(generator.machine)
    orders = [(np.arange(depth), depth // QUAD)]
    return Packed(pack(generator, products, groups, steps, orders, bias), rows, gates, depth)


class _Sequence:
    """One chunk: all steps of one sequence. Its state lies in the last row of `out`."""

    def __init__(self, kernel: Kernel, node: Sequences) -> None:
        self.kernel, self.node = kernel, node
        self.f: Function = kernel.f
        self.lanes = kernel.generator.lanes
        self.vector, self.vector_bytes = kernel.generator.vector, kernel.generator.vector_bytes
        self.state = self._own(node.out, node.row) + node.steps * node.ahead

    def _own(self, memory: Memory, distance: int) -> Value:
        """Address of this chunk's part of `memory`."""
        return self.kernel.pointer(memory) + self.kernel.chunk * distance

    def write(self) -> None:
        """Writes the whole chunk."""
        node, f, units = self.node, self.f, self.node.cells.rows
        first = self._own(node.state, units * node.state.layout.element)
        self._panels(units, lambda at, mask: self._store(self._load(first + at, mask), self.state + at, mask))
        backwards = node.form.reverse
        start = node.steps - 1 if backwards else 0
        ahead, step = (-node.ahead, -node.step) if backwards else (node.ahead, node.step)

        def one(_: Value, data: Value, hidden: Value, out: Value) -> list[Value]:
            self._step(data, hidden, out)
            return [data + step, out, out + ahead]

        data = self._own(node.data, node.sequence) + start * node.step
        out = self._own(node.out, node.row) + start * node.ahead
        f.loop(node.steps, one, data, self._own(node.hidden, node.cells.depth * node.hidden.layout.element), out)

    def _step(self, data: Value, hidden: Value, out: Value) -> None:
        """One step: reads the last hidden values, and writes the next to `out`."""
        units, projection = self.node.cells.rows, self.node.projection
        target = self.kernel.scratch if projection else out
        self._panels(units, lambda at, mask: self._cells(data, hidden, target, at, mask))
        if projection:
            self._panels(projection.rows, lambda at, mask: self._projected(projection, out, at, mask))

    def _panels(self, rows: int, body: Callable[[Value, Value | None], None]) -> None:
        """Calls body(bytes before the panel, mask) for every vector of rows; the mask is None for a full vector."""
        full, left = divmod(rows, self.lanes)
        if full:
            self.f.loop(full, lambda i: body(i * self.vector_bytes, None))
        if left:
            body(self.f.index(full * self.vector_bytes), self.f.first_lanes(self.f.index(left), self.lanes))

    def _cells(self, data: Value, hidden: Value, out: Value, at: Value, mask: Value | None) -> None:
        """One step of a vector of units."""
        node = self.node
        first = [self._load(data + gate * node.gates_row + at, mask) for gate in range(node.form.gates)]
        gates = self._products(self._panel(node.cells, at), node.cells.depth, hidden, first)
        more = [self.f.load(self.vector, self.kernel.constants(offset) + at) for offset in node.more]
        state = self._emit(node.form.cell, [*gates, self._load(self.state + at, mask), *more])
        self._store(state, self.state + at, mask)
        self._store(self._emit(node.form.output, [*gates, state, *more]), out + at, mask)

    def _projected(self, weights: Packed, out: Value, at: Value, mask: Value | None) -> None:
        """A vector of hidden values, from the cells' results in scratch memory."""
        panel = self._panel(weights, at)
        totals = self._products(panel, weights.depth, self.kernel.scratch, panel.bias())
        self._store(self._emit(self.node.form.limit, totals), out + at, mask)

    def _panel(self, weights: Packed, at: Value) -> PackedLines:
        """The panel of the rows at `at` bytes into a vector of all of them."""
        start = self.kernel.constants(weights.offset) + at * (weights.gates * (1 + weights.depth))
        return PackedLines(Products(self.kernel.generator.machine), weights.gates, start)

    def _products(self, panel: PackedLines, depth: int, values: Value, first: Sequence[Value]) -> list[Value]:
        """`first` plus the products of the values and the weights of a panel."""
        lines, sets = Lines(1, 0, FLOAT_BYTES), sets_of(panel.vectors)
        tile = RegisterTile(panel.products, lines, panel, sets)
        return tile.walk_in_sets([panel.start(), values, *first], loops_over(depth))[2:]

    def _emit(self, expr: Expr, values: Sequence[Value]) -> Value:
        return emit(self.f, expr, values, ["float32"] * len(values), lanes=self.lanes)

    def _load(self, at: Value, mask: Value | None) -> Value:
        return self.f.load_masked(self.vector, at, mask)

    def _store(self, value: Value, at: Value, mask: Value | None) -> None:
        self.f.store_masked(value, at, mask)
