"""Recurrent: a cell over the steps of a sequence, one chunk per sequence of the batch.

Every step multiplies the recurrent weights by the last hidden values, a panel of units at a time: all gates of a vector
of units are summed together, each hidden value being spread over the lanes. The panel's cells follow while the sums are
in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.layout import FLOAT_BYTES
from jitdelegate.targets.cpu.expression import emit
from jitdelegate.targets.cpu.kernel import Generator, Job, Kernel, Memory, channel_vector
from jitdelegate.targets.cpu.vector_ir import Function, Value

CHAINS = 8
"""Sums under way together: each waits some cycles for the one before it."""


@dataclass(frozen=True)
class Sequences:
    """One node.

    Attributes:
        steps, batch, units: sizes.
        projected, hidden, state, out: row-major memory.
        weights, constants: offsets of packed weights and of vectors of units in the program's weights.
    """

    form: Recurrent
    steps: int
    batch: int
    units: int
    projected: Memory
    hidden: Memory
    state: Memory
    out: Memory
    weights: int
    constants: tuple[int, ...]

    @property
    def row(self) -> int:
        """Bytes of the hidden values of one sequence at one time."""
        return self.units * FLOAT_BYTES

    @property
    def ahead(self) -> int:
        """Bytes between the times of `out`."""
        return self.batch * self.row

    @property
    def step(self) -> int:
        """Bytes between the times of `projected`."""
        return self.form.gates * (self.ahead if self.form.time_major else self.row)

    @property
    def sequence(self) -> int:
        """Bytes between the sequences of `projected`."""
        return self.form.gates * self.row * (1 if self.form.time_major else self.steps)


class RecurrentWriter:
    """Writes the jobs of Recurrent nodes."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def jobs(
        self,
        form: Recurrent,
        shape: tuple[int, ...],
        operands: Sequence[Memory],
        out: Memory,
        weights: np.ndarray,
        constants: Sequence[np.ndarray],
    ) -> list[Job]:
        """The job of a whole node.

        Args:
            shape: of `out`.
            operands: projected data, hidden and state.
            weights: f32[gates * units, units].
            constants: f32[units] each.
        """
        rows, batch, units = shape
        projected, hidden, state = operands
        node = Sequences(
            form,
            rows - 1,
            batch,
            units,
            projected=projected,
            hidden=hidden,
            state=state,
            out=out,
            weights=self.generator.weights.add(self._packed(form.gates, weights)),
            constants=tuple(channel_vector(self.generator.weights, one, self.generator.lanes) for one in constants),
        )
        return [self.generator.job("recurrent", batch, lambda kernel: _Sequence(kernel, node).write())]

    def _packed(self, gates: int, weights: np.ndarray) -> np.ndarray:
        """f32[panel of units, hidden value, gate, lane], the last panel filled up with zeros."""
        units, lanes = weights.shape[1], self.generator.lanes
        panels = -(-units // lanes)
        packed = np.zeros((gates, panels * lanes, units), np.float32)
        packed[:, :units] = weights.reshape(gates, units, units)
        return np.ascontiguousarray(packed.reshape(gates, panels, lanes, units).transpose(1, 3, 0, 2))


class _Sequence:
    """One chunk: all steps of one sequence. Its state lies where the last row of `out` keeps it."""

    def __init__(self, kernel: Kernel, node: Sequences) -> None:
        self.kernel, self.node = kernel, node
        self.f: Function = kernel.f
        self.lanes = kernel.generator.lanes
        self.vector, self.vector_bytes = kernel.generator.vector, kernel.generator.vector_bytes
        self.state = self._place(node.out, node.row) + node.steps * node.ahead

    def _place(self, memory: Memory, distance: int) -> Value:
        """Where this chunk's part begins."""
        return self.kernel.pointer(memory) + self.kernel.chunk * distance

    def write(self) -> None:
        """The whole chunk."""
        node, f = self.node, self.f
        first = self._place(node.state, node.row)
        self._panels(lambda at, mask: self._store(self._load(first + at, mask), self.state + at, mask))
        backwards = node.form.reverse
        start = node.steps - 1 if backwards else 0
        ahead, step = (-node.ahead, -node.step) if backwards else (node.ahead, node.step)

        def one(_: Value, data: Value, hidden: Value, out: Value) -> list[Value]:
            self._panels(lambda at, mask: self._panel(data, hidden, out, at, mask))
            return [data + step, out, out + ahead]

        data = self._place(node.projected, node.sequence) + start * node.step
        out = self._place(node.out, node.row) + start * node.ahead
        f.loop(node.steps, one, data, self._place(node.hidden, node.row), out)

    def _panels(self, body: Callable[[Value, Value | None], None]) -> None:
        """body(bytes before the panel, mask) for every vector of units; the mask is None where all lanes are units."""
        full, left = divmod(self.node.units, self.lanes)
        if full:
            self.f.loop(full, lambda i: body(i * self.vector_bytes, None))
        if left:
            body(self.f.index(full * self.vector_bytes), self.f.first_lanes(self.f.index(left), self.lanes))

    def _panel(self, data: Value, hidden: Value, out: Value, at: Value, mask: Value | None) -> None:
        """One step of a vector of units."""
        node, gates = self.node, self.node.form.gates
        first = [self._load(data + gate * node.row + at, mask) for gate in range(gates)]
        values = self._products(hidden, at, first)
        constants = [self.kernel.f.parameters[1] + offset for offset in node.constants]
        further = [self.f.load(self.vector, each + at) for each in constants]
        state = self._emit(node.form.cell, [*values, self._load(self.state + at, mask), *further])
        self._store(state, self.state + at, mask)
        self._store(self._emit(node.form.output, [*values, state, *further]), out + at, mask)

    def _products(self, hidden: Value, at: Value, first: Sequence[Value]) -> list[Value]:
        """`first` plus the panel's weights times the hidden values."""
        f, units, gates = self.f, self.node.units, self.node.form.gates
        weights = self.kernel.f.parameters[1] + self.node.weights + at * (units * gates)
        together = min(units, max(1, CHAINS // gates))
        nothing = [f.literal(self.vector, 0.0)] * (gates * (together - 1))

        def some(i: Value, *sums: Value) -> list[Value]:
            return self._added(hidden, weights, i * together, sums, together)

        sums = f.loop(units // together, some, *first, *nothing)
        left = units % together
        if left:
            done = f.index(units - left)
            sums = [*self._added(hidden, weights, done, sums[: gates * left], left), *sums[gates * left :]]
        return [self._total(sums[gate::gates]) for gate in range(gates)]

    def _added(self, hidden: Value, weights: Value, start: Value, sums: Sequence[Value], count: int) -> list[Value]:
        """The sums after `count` hidden values from `start` on, each with sums of its own."""
        f, gates = self.f, self.node.form.gates
        row = weights + start * (gates * self.vector_bytes)
        values = [f.broadcast(hidden + start * FLOAT_BYTES + k * FLOAT_BYTES, self.lanes) for k in range(count)]
        return [
            f.fma(values[k // gates], f.load(self.vector, row + k * self.vector_bytes), total)
            for k, total in enumerate(sums)
        ]

    @staticmethod
    def _total(sums: Sequence[Value]) -> Value:
        first, *others = sums
        for other in others:
            first = first + other
        return first

    def _emit(self, expr: Expr, values: Sequence[Value]) -> Value:
        return emit(self.f, expr, values, ["float32"] * len(values), self.lanes)

    def _load(self, place: Value, mask: Value | None) -> Value:
        return self.f.load(self.vector, place) if mask is None else self.f.load_masked(self.vector, place, mask)

    def _store(self, value: Value, place: Value, mask: Value | None) -> None:
        if mask is None:
            self.f.store(value, place)
        else:
            self.f.store_masked(value, place, mask)
