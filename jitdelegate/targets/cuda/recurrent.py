"""Recurrent: a block per sequence of the batch goes through all steps, with hidden values and states in shared memory.

The recurrent weights come through the caches in every step. Threads are columns and slices: a column has a unit, for
all of its gates, and the slices share out the hidden values that these sum over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.targets.cuda.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import Element, load, store
from jitdelegate.targets.cuda.expression import emit
from jitdelegate.targets.cuda.gather import blank
from jitdelegate.targets.cuda.lanes import WARP, power_of_two
from jitdelegate.targets.cuda.template import Definition, NoPointer, Template
from jitdelegate.targets.cuda.writer import Writer

THREADS = 512
MOST_COLUMNS = 256
TURN = 4
"""Hidden values whose weights a thread asks for together."""
FEWEST = 8
"""Hidden values that are worth a slice."""
FLOAT = 4
SIZES = 7


@dataclass(frozen=True)
class RecurrentTemplate(Template):
    """All steps of a sequence.

    Attributes:
        target, projected, hidden, state: how these are stored; weights and constants are float32.
        columns, slices: how threads share out units and hidden values.
        constants: how many rows of units the expressions read.
    """

    family: ClassVar[str] = "recurrent"
    target: Element
    projected: Element
    hidden: Element
    state: Element
    columns: int
    slices: int
    gates: int
    cell: Expr
    output: Expr
    constants: int
    reverse: bool

    @property
    def threads(self) -> int:
        return self.columns * self.slices

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def run(code, out, projected, hidden, state, weights, constants, sizes):  # type: ignore[no-untyped-def]
            _Sequence(self, code, out, projected, hidden, state, weights, constants, sizes).write()

        def kernel(out, projected, hidden, state, weights, constants, sizes):  # type: ignore[no-untyped-def]
            run(out, projected, hidden, state, weights, constants, sizes)

        return Definition(kernel, (*("pointer",) * 6, ("int32", SIZES)))


class _Sequence:
    """Writes the kernel of one template.

    Args:
        weights: [hidden value, gate, unit], hidden values padded to whole slices and units to whole columns.
        sizes: steps; units, also padded; hidden values of a slice; elements of `projected` between steps and between
            sequences, elements of `out` between steps.
    """

    def __init__(
        self,
        template: RecurrentTemplate,
        code: Code,
        out: Value,
        projected: Value,
        hidden: Value,
        state: Value,
        weights: Value,
        constants: Value,
        sizes: Sequence[Value],
    ) -> None:
        self.template, self.code = template, code
        self.out, self.projected, self.hidden, self.state = out, projected, hidden, state
        self.weights, self.constants = weights, constants
        self.steps, self.units, self.padded, self.share, self.ahead, apart, self.row = sizes
        self.thread, sequence = code.special("tid.x"), code.special("ctaid.x")
        self.column, self.slice = self.thread % template.columns, self.thread // template.columns
        self.first, self.data = sequence * self.units, sequence * apart
        self.values = self.share * template.slices
        shared = code.dynamic_shared()
        self.sums = shared
        self.states = shared + FLOAT * template.gates * template.threads
        self.latest = self.states + self.values * FLOAT

    def write(self) -> None:
        """The whole kernel; of two rows of hidden values, steps read one and write the other."""
        code, template = self.code, self.template
        with code.loop(self.values, self.thread, template.threads) as unit:
            self._begin(unit)
        code.barrier()
        with code.loop(self.steps) as step:
            time = self.steps - 1 - step if template.reverse else step
            old = self.latest + (step & 1) * self.values * FLOAT
            new = self.latest + ((step & 1) ^ 1) * self.values * FLOAT
            with code.loop(self.padded, 0, template.columns) as base:
                self._sum(base + self.column, old)
                code.barrier()
                unit = base + self.column
                with code.when(self.slice.equals(0) & (unit < self.units)):
                    self._finish(time, unit, new)
                code.barrier()
        with code.loop(self.units, self.thread, template.threads) as unit:
            self._store(self.steps, unit, code.load(self.states, unit * FLOAT)[0])

    def _begin(self, unit: Value) -> None:
        """The first hidden value and state of a unit; zeros behind the last one, in both rows."""
        code, inside = self.code, unit < self.units
        place = self.first + code.select(inside, unit, 0)
        hidden = code.select(inside, load(code, self.template.hidden, self.hidden, place)[0], 0.0)
        code.store([hidden], self.latest, unit * FLOAT)
        code.store([code.real(0.0)], self.latest, (unit + self.values) * FLOAT)
        code.store([load(code, self.template.state, self.state, place)[0]], self.states, unit * FLOAT)

    def _sum(self, unit: Value, hidden: Value) -> None:
        """This slice's part of the products for all gates of a unit, to shared memory."""
        code, gates, first = self.code, self.template.gates, self.slice * self.share
        nothing = [code.real(0.0)] * gates
        with code.carried(first + self.share, nothing, start=first, step=TURN) as (value, now, following):
            following[:] = self._added(now, value, unit, hidden)
        for gate, total in enumerate(following):
            code.store([total], self.sums, self._place(self.slice, gate))

    def _added(self, sums: Sequence[Value], value: Value, unit: Value, hidden: Value) -> list[Value]:
        code, gates, totals = self.code, self.template.gates, list(sums)
        weights = [
            load(code, Element.FLOAT32, self.weights, ((value + turn) * gates + gate) * self.padded + unit)[0]
            for turn in range(TURN)
            for gate in range(gates)
        ]
        for turn in range(TURN):
            factor = code.load(hidden, (value + turn) * FLOAT)[0]
            for gate in range(gates):
                totals[gate] = code.fma(weights[turn * gates + gate], factor, totals[gate])
        return totals

    def _place(self, slice_: Value | int, gate: int) -> Value:
        """Where shared memory has a slice's sum for the column."""
        return ((slice_ * self.template.gates + gate) * self.template.columns + self.column) * FLOAT

    def _finish(self, time: Value, unit: Value, hidden: Value) -> None:
        """The cell of a unit, once all slices have summed."""
        code, template = self.code, self.template
        gates = [self._gate(time, unit, gate) for gate in range(template.gates)]
        rows = range(template.constants)
        further = [load(code, Element.FLOAT32, self.constants, self.units * row + unit)[0] for row in rows]
        state = self._emit(template.cell, [*gates, code.load(self.states, unit * FLOAT)[0], *further])
        code.store([state], self.states, unit * FLOAT)
        latest = self._emit(template.output, [*gates, state, *further])
        code.store([latest], hidden, unit * FLOAT)
        self._store(time, unit, latest)

    def _gate(self, time: Value, unit: Value, gate: int) -> Value:
        code, template = self.code, self.template
        place = self.data + time * self.ahead + self.units * gate + unit
        parts = [code.load(self.sums, self._place(code.integer(k), gate))[0] for k in range(template.slices)]
        return load(code, template.projected, self.projected, place)[0] + reduce_tree(parts, lambda a, b: a + b)

    def _emit(self, expr: Expr, values: Sequence[Value]) -> Value:
        return emit(self.code, expr, values, ["float32"] * len(values))

    def _store(self, time: Value, unit: Value, value: Value) -> None:
        store(self.code, self.template.target, [value], self.out, time * self.row + self.first + unit)


def write_recurrent(writer: Writer, node: Node) -> None:
    """The launch of a Recurrent.

    Raises:
        CompileError: hidden values and states do not fit in a block's shared memory, or there are too many weights.
    """
    form, output = node.form, node.outputs[0]
    assert isinstance(form, Recurrent)
    rows, batch, units = writer.shape(output)
    steps, width = rows - 1, form.gates * units
    columns = min(MOST_COLUMNS, max(WARP, power_of_two(units)))
    slices = min(THREADS // columns, -(-units // FEWEST))
    share = -(-units // (slices * TURN)) * TURN
    padded = -(-units // columns) * columns
    shared_bytes = FLOAT * (form.gates * columns * slices + 3 * share * slices)
    if shared_bytes > writer.gpu.shared_bytes:
        raise CompileError(
            f"{node.op} of {units} units takes {shared_bytes} bytes of shared memory, more than there is."
        )
    projected, hidden, state, weights, more = node.inputs
    template = RecurrentTemplate(
        target=writer.element(output),
        projected=writer.element(projected),
        hidden=writer.element(hidden),
        state=writer.element(state),
        columns=columns,
        slices=slices,
        gates=form.gates,
        cell=form.cell,
        output=form.output,
        constants=0 if more == ABSENT else writer.shape(more)[0],
        reverse=form.reverse,
    )
    packed = blank(share * slices, form.gates, padded)
    packed[:units, :, :units] = writer.array(weights).reshape(form.gates, units, units).transpose(2, 0, 1)
    ahead, apart = (batch * width, width) if form.time_major else (width, steps * width)
    writer.launch(
        template,
        (batch, 1, 1),
        (
            *map(writer.pointer, (output, projected, hidden, state)),
            writer.constant(packed),
            NoPointer() if more == ABSENT else writer.pointer(more),
            *(steps, units, padded, share, ahead, apart, batch * units),
        ),
        shared_bytes,
    )
