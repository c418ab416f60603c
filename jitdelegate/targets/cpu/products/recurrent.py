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
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel, Memory, channel_vector
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.cpu.sources.data_rows import Lines
from jitdelegate.targets.cpu.sources.panels import PackedLines, pack
from jitdelegate.targets.cpu.walks.register_tile import RegisterTile, loops_over, sets_of
from jitdelegate.targets.maths.expression import emit


@dataclass(frozen=True)
class Weights:
    """The constants of a node.

    Attributes:
        recurrent: f32[gates * units, outputs].
        more: further vectors, f32[units] each.
        projection: f32[outputs, units] and its bias, f32[outputs]; None if there is none.
    """

    recurrent: np.ndarray
    more: tuple[np.ndarray, ...]
    projection: tuple[np.ndarray, np.ndarray] | None

    @classmethod
    def of(
        cls, recurrent: np.ndarray, more: np.ndarray | None, projection: np.ndarray | None, bias: np.ndarray | None
    ) -> Weights:
        """The constants in the form of the node's inputs."""
        pair = None if projection is None or bias is None else (projection, bias)
        return cls(recurrent, () if more is None else tuple(more), pair)


@dataclass(frozen=True)
class Packed:
    """Packed weights: `rows` rows of `gates` sums each, over `depth` values, at `offset` in the program's weights."""

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
        projection: weights from units to hidden values, with the offset of the bias; None if there is none.
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
    projection: tuple[Packed, int] | None

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
    """The jobs of a Recurrent node."""
    operands = [writer.memory(index) for index in node.inputs[:3]]
    weights = Weights.of(writer.constant(node.inputs[3]), *map(writer.optional, node.inputs[4:]))
    output = node.outputs[0]
    return RecurrentWriter(writer.generator).jobs(form, writer.shape(output), operands, writer.memory(output), weights)


class RecurrentWriter(JobWriter):
    """Writes the jobs of Recurrent nodes."""

    def jobs(
        self, form: Recurrent, shape: tuple[int, ...], operands: Sequence[Memory], out: Memory, weights: Weights
    ) -> list[Job]:
        """The job of a node.

        Args:
            shape: shape of `out`.
            operands: data, hidden and state.
        """
        rows, batch, width = shape
        data, hidden, state = operands
        node = Sequences(
            form,
            rows - 1,
            batch,
            width,
            data=data,
            hidden=hidden,
            state=state,
            out=out,
            cells=self._packed(weights.recurrent, form.gates),
            more=tuple(map(self._vector, weights.more)),
            projection=weights.projection
            and (self._packed(weights.projection[0], 1), self._vector(weights.projection[1])),
        )
        if node.projection:
            self.generator.reserve_scratch(node.cells.rows * out.layout.element)
        return [self.generator.job("recurrent", batch, lambda kernel: _Sequence(kernel, node).write())]

    def _vector(self, values: np.ndarray) -> int:
        return channel_vector(self.generator.weights, values, self.generator.lanes)

    def _packed(self, weights: np.ndarray, gates: int) -> Packed:
        """The weights as panels of all gates of a vector of rows, the last one padded with zeros."""
        rows, depth, lanes = len(weights) // gates, weights.shape[1], self.generator.lanes
        panels, products = -(-rows // lanes), Products(self.generator.machine)
        padded = np.zeros((gates, panels * lanes, depth), np.float32)
        padded[:, :rows] = weights.reshape(gates, rows, depth)
        steps = padded.reshape(gates, panels, lanes, depth).swapaxes(0, 1).reshape(-1, depth, 1)
        offset = pack(self.generator, products, steps, np.arange(depth), depth // QUAD, widths=[(gates, panels)])
        return Packed(offset, rows, gates, depth)


class _Sequence:
    """One chunk: all steps of one sequence. Its state lies in the last row of `out`."""

    def __init__(self, kernel: Kernel, node: Sequences) -> None:
        self.kernel, self.node = kernel, node
        self.f: Function = kernel.f
        self.lanes = kernel.generator.lanes
        self.vector, self.vector_bytes = kernel.generator.vector, kernel.generator.vector_bytes
        self.state = self._place(node.out, node.row) + node.steps * node.ahead

    def _place(self, memory: Memory, distance: int) -> Value:
        """Address of this chunk's part of `memory`."""
        return self.kernel.pointer(memory) + self.kernel.chunk * distance

    def _constants(self, offset: int) -> Value:
        return self.kernel.constants(offset)

    def write(self) -> None:
        """Writes the whole chunk."""
        node, f, units = self.node, self.f, self.node.cells.rows
        first = self._place(node.state, units * node.state.layout.element)
        self._panels(units, lambda at, mask: self._store(self._load(first + at, mask), self.state + at, mask))
        backwards = node.form.reverse
        start = node.steps - 1 if backwards else 0
        ahead, step = (-node.ahead, -node.step) if backwards else (node.ahead, node.step)

        def one(_: Value, data: Value, hidden: Value, out: Value) -> list[Value]:
            self._step(data, hidden, out)
            return [data + step, out, out + ahead]

        data = self._place(node.data, node.sequence) + start * node.step
        out = self._place(node.out, node.row) + start * node.ahead
        f.loop(node.steps, one, data, self._place(node.hidden, node.cells.depth * node.hidden.layout.element), out)

    def _step(self, data: Value, hidden: Value, out: Value) -> None:
        """One step: reads the last hidden values, and writes the next to `out`."""
        units, projection = self.node.cells.rows, self.node.projection
        if projection is None:
            self._panels(units, lambda at, mask: self._cells(data, hidden, out, at, mask))
            return
        weights, bias = projection
        between = self.kernel.scratch
        self._panels(units, lambda at, mask: self._cells(data, hidden, between, at, mask))
        self._panels(weights.rows, lambda at, mask: self._projected(weights, bias, out, at, mask))

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
        gates = self._products(node.cells, hidden, at, first)
        more = [self.f.load(self.vector, self._constants(offset) + at) for offset in node.more]
        state = self._emit(node.form.cell, [*gates, self._load(self.state + at, mask), *more])
        self._store(state, self.state + at, mask)
        self._store(self._emit(node.form.output, [*gates, state, *more]), out + at, mask)

    def _projected(self, weights: Packed, bias: int, out: Value, at: Value, mask: Value | None) -> None:
        """A vector of hidden values, from the cells' results in scratch memory."""
        first = [self.f.load(self.vector, self._constants(bias) + at)]
        totals = self._products(weights, self.kernel.scratch, at, first)
        self._store(self._emit(self.node.form.limit, totals), out + at, mask)

    def _products(self, weights: Packed, values: Value, at: Value, first: Sequence[Value]) -> list[Value]:
        """`first` plus the products of the values and the weights of the panel at `at`."""
        products, gates = Products(self.kernel.generator.machine), weights.gates
        panel = PackedLines(products, gates, self._constants(weights.offset) + at * (gates * (1 + weights.depth)))
        tile = RegisterTile(products, Lines(1, 0, FLOAT_BYTES), panel, gates, sets=sets_of(gates))
        return tile.walk_in_sets([panel.start(1), values, *first], loops_over(weights.depth))[2:]

    def _emit(self, expr: Expr, values: Sequence[Value]) -> Value:
        return emit(self.f, expr, values, ["float32"] * len(values), lanes=self.lanes)

    def _load(self, place: Value, mask: Value | None) -> Value:
        return self.f.load_masked(self.vector, place, mask)

    def _store(self, value: Value, place: Value, mask: Value | None) -> None:
        self.f.store_masked(value, place, mask)
