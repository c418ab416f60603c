"""Recurrent: one block per sequence of the batch computes all steps, with hidden values and states in shared memory.

The recurrent weights stay in shared memory too, where they fit. Where they fit in that of several blocks, a cluster
computes a sequence: each block has some of the units, and stores their hidden values in all blocks. Otherwise every
step reads the weights through the caches. Threads form columns and slices: a column computes with one row of the
weights, for all gates, and the slices split the values that the row is multiplied by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.targets.cuda.code.cost import CLUSTERS, COPIED
from jitdelegate.targets.cuda.code.device_code import I32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.element import Element, load, store
from jitdelegate.targets.cuda.code.lanes import WARP, power_of_two
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import NoPointer, Pointer, Template
from jitdelegate.targets.cuda.code.writer import STORED, Writer
from jitdelegate.targets.cuda.multiply.tensor_core import Operand
from jitdelegate.targets.cuda.sources.conv_problem import blank, whole
from jitdelegate.targets.maths.expression import emit

THREADS = 512
MOST_COLUMNS = 256
TURN = 4
"""Values whose weights a thread loads together."""
FEWEST = 8
"""Fewest values that are worth a slice."""
FLOAT = 4
POINTERS = 8
CHUNK = 16
"""Bytes of an access that brings weights to shared memory."""
WORDS = 32
"""Weights that a multiprocessor reads from shared memory per cycle."""
STEP_CYCLES = 1500
"""Cycles of a step if weights took no time: two barriers, sums of slices, the cell. Estimated from instruction
latencies."""


class RecurrentSizes(NamedTuple):
    """Sizes of a launch; there is one block or cluster per sequence.

    Attributes:
        units, outputs: the numbers of units and outputs, those of a block (`own`) and outputs padded to whole columns.
        kept: chunks of weights of a block that stay in shared memory.
        hidden_share, unit_share: outputs and units per slice.
        ahead, apart: distance between steps and between sequences in the data, in elements.
        width: elements of a row of the output.
    """

    steps: Number
    units: Number
    own: Number
    padded_units: Number
    kept: Number
    outputs: Number
    padded_outputs: Number
    hidden_share: Number
    unit_share: Number
    ahead: Number
    apart: Number
    width: Number


@dataclass(frozen=True, eq=False)
class RecurrentTemplate(Template):
    """Computes all steps of a sequence.

    Attributes:
        target, data, hidden, state: element types of these tensors; constants are float32.
        weights: element type of all weights.
        is_kept: whether the recurrent weights stay in shared memory.
        cluster: blocks that share out the units of a sequence.
        columns, slices: how threads divide the rows of weights, and the values that the rows are multiplied by.
        more: number of rows of units that the expressions read.
        limit: limit of the projected values; None where nothing is projected.
    """

    family: ClassVar[str] = "recurrent"
    parameters: ClassVar[tuple[Kind, ...]] = ("pointer",) * POINTERS, RecurrentSizes
    target: Element
    data: Element
    hidden: Element
    state: Element
    weights: Element
    columns: int
    slices: int
    gates: int
    cell: Expr
    output: Expr
    more: int
    limit: Expr | None
    reverse: bool
    is_kept: bool = False
    cluster: int = 1

    @property
    def threads(self) -> int:
        return self.columns * self.slices

    def write(self, code: Code, pointers: Sequence[Value], sizes: RecurrentSizes) -> None:
        RecurrentKernel(self, code, pointers, sizes).write()


@dataclass(frozen=True)
class _Product:
    """A product of weights [value, gate, row] and values in shared memory.

    Attributes:
        rows: number of rows, which is the number of sums per gate.
        padded: number of rows, padded to whole columns.
        share: values per slice; the values are padded to whole slices.
    """

    weights: Value
    gates: int
    rows: Value
    padded: Value
    share: Value


class RecurrentKernel:
    """Writes the kernel of one template."""

    def __init__(
        self, template: RecurrentTemplate, code: Code, pointers: Sequence[Value], sizes: RecurrentSizes
    ) -> None:
        self.template, self.code = template, code
        self.out, self.data, self.hidden, self.state, weights, self.more, projection, self.bias = pointers
        self.sizes = sizes
        self.weights, shared = weights, code.dynamic_shared()
        address = shared if template.is_kept else weights
        self.cells = _Product(address, template.gates, sizes.own, sizes.padded_units, sizes.hidden_share)
        self.projection = _Product(projection, 1, sizes.outputs, sizes.padded_outputs, sizes.unit_share)
        self.thread, self.sequence = code.special("tid.x"), code.special("ctaid.x")
        self.rank = code.special("ctaid.z")
        self.first = self.rank * sizes.own
        self.column, self.slice = self.thread % template.columns, self.thread // template.columns
        self.values = sizes.hidden_share * template.slices
        self.sums = shared + sizes.kept * CHUNK
        self.latest = self.sums + FLOAT * template.gates * template.threads
        self.between = self.latest + self.values * (2 * FLOAT)
        self.states = self.between + sizes.unit_share * (template.slices * FLOAT)

    def write(self) -> None:
        """Writes the whole kernel; there are two rows of hidden values: each step reads one and writes the other."""
        code, template = self.code, self.template
        self._begin()
        self._wait()
        with code.loop(self.sizes.steps) as step:
            time = self.sizes.steps - 1 - step if template.reverse else step
            old = self.latest + (step & 1) * self.values * FLOAT
            new = self.latest + ((step & 1) ^ 1) * self.values * FLOAT
            if template.limit is None:
                self._multiply(
                    self.cells, old, lambda unit: self._store_hidden(time, unit, self._cell(time, unit), new)
                )
            else:
                self._multiply(
                    self.cells, old, lambda unit: code.store([self._cell(time, unit)], self.between, unit * FLOAT)
                )
                self._multiply(
                    self.projection, self.between, lambda row: self._store_hidden(time, row, self._projected(row), new)
                )
            if template.cluster > 1:
                code.cluster_barrier()
        with code.loop(self.sizes.own, self.thread, template.threads) as unit:
            self._store(self.sizes.steps, self.first + unit, code.load(self.states, unit * FLOAT)[0])

    def _wait(self) -> None:
        if self.template.cluster > 1:
            self.code.cluster_barrier()
        else:
            self.code.barrier()

    def _begin(self) -> None:
        """Loads the first hidden values and states; pads the values to be multiplied with zeros."""
        code, template = self.code, self.template
        zero = code.real(0.0)
        with code.loop(self.values, self.thread, template.threads) as number:
            inside = number < self.sizes.outputs
            index = self.sequence * self.sizes.outputs + code.select(inside, number, 0)
            first = code.select(inside, load(code, template.hidden, self.hidden, index)[0], 0.0)
            code.store([first], self.latest, number * FLOAT)
            code.store([zero], self.latest, (number + self.values) * FLOAT)
        if template.limit is not None:
            with code.loop(self.projection.share * template.slices, self.thread, template.threads) as number:
                code.store([zero], self.between, number * FLOAT)
        with code.loop(self.sizes.own, self.thread, template.threads) as unit:
            index = self.sequence * self.sizes.units + self.first + unit
            code.store([load(code, template.state, self.state, index)[0]], self.states, unit * FLOAT)
        if template.is_kept:
            own = code.advanced(self.weights, self.rank * self.sizes.kept, CHUNK)
            with code.loop(self.sizes.kept, self.thread, template.threads) as chunk:
                words = code.load(code.advanced(own, chunk, CHUNK), 0, I32, CHUNK // FLOAT)
                code.store(words, self.cells.weights, chunk * CHUNK)

    def _multiply(self, product: _Product, values: Value, finish: Callable[[Value], None]) -> None:
        """Multiplies; after all slices have stored their sums, one thread per row of weights runs `finish(row)`."""
        code = self.code
        with code.loop(product.padded, 0, self.template.columns) as base:
            row = base + self.column
            self._sum(product, row, values)
            code.barrier()
            with code.when(self.slice.equals(0) & (row < product.rows)):
                finish(row)
            code.barrier()

    def _sum(self, product: _Product, row: Value, values: Value) -> None:
        """Stores this slice's part of a row's sums, for all gates, to shared memory."""
        code, first = self.code, self.slice * product.share
        nothing = [code.real(0.0)] * product.gates
        with code.carried(first + product.share, nothing, start=first, step=TURN) as (value, now, following):
            following[:] = self._added(product, now, value, row, values)
        for gate, total in enumerate(following):
            code.store([total], self.sums, self._sum_offset(self.slice, gate))

    def _added(self, product: _Product, sums: Sequence[Value], value: Value, row: Value, values: Value) -> list[Value]:
        code, gates, totals = self.code, product.gates, list(sums)
        weights = [
            load(code, self.template.weights, product.weights, ((value + turn) * gates + gate) * product.padded + row)[
                0
            ]
            for turn in range(TURN)
            for gate in range(gates)
        ]
        for turn in range(TURN):
            factor = code.load(values, (value + turn) * FLOAT)[0]
            for gate in range(gates):
                totals[gate] = code.fma(weights[turn * gates + gate], factor, totals[gate])
        return totals

    def _sum_offset(self, slice_: Value | int, gate: int) -> Value:
        """Offset of a slice's sum for this thread's column in the shared memory for sums, in bytes."""
        return ((slice_ * self.template.gates + gate) * self.template.columns + self.column) * FLOAT

    def _total(self, gate: int) -> Value:
        code = self.code
        slices = range(self.template.slices)
        parts = [code.load(self.sums, self._sum_offset(code.integer(slice_), gate))[0] for slice_ in slices]
        return reduce_tree(parts, lambda a, b: a + b)

    def _cell(self, time: Value, unit: Value) -> Value:
        """The hidden value of a unit; stores the unit's new state."""
        code, template = self.code, self.template
        index = self.sequence * self.sizes.apart + time * self.sizes.ahead + self.first + unit
        gates = [
            load(code, template.data, self.data, index + self.sizes.units * gate)[0] + self._total(gate)
            for gate in range(template.gates)
        ]
        rows = range(template.more)
        indices = [self.sizes.units * row + self.first + unit for row in rows]
        more = [load(code, Element.FLOAT32, self.more, one)[0] for one in indices]
        state = self._emit(template.cell, [*gates, code.load(self.states, unit * FLOAT)[0], *more])
        code.store([state], self.states, unit * FLOAT)
        return self._emit(template.output, [*gates, state, *more])

    def _projected(self, row: Value) -> Value:
        assert self.template.limit is not None
        total = self._total(0) + load(self.code, Element.FLOAT32, self.bias, row)[0]
        return self._emit(self.template.limit, [total])

    def _store_hidden(self, time: Value, row: Value, value: Value, hidden: Value) -> None:
        address = hidden + (self.first + row) * FLOAT
        if self.template.cluster == 1:
            self.code.store([value], address, 0)
        else:
            for rank in range(self.template.cluster):
                self.code.store_remote(value, self.code.of_block(address, rank))
        self._store(time, self.first + row, value)

    def _store(self, time: Value, number: Value, value: Value) -> None:
        index = (time * self.code.special("nctaid.x") + self.sequence) * self.sizes.width + number
        store(self.code, self.template.target, [value], self.out, index)

    def _emit(self, expr: Expr, values: Sequence[Value]) -> Value:
        return emit(self.code, expr, values, ["float32"] * len(values))


@dataclass(frozen=True)
class _Choice:
    """How a block computes its share of a sequence.

    Attributes:
        own: units of a block.
        columns, slices, cluster: as in the template.
        kept_bytes: bytes of recurrent weights in shared memory.
        shared_bytes: shared memory in all.
        cycles: estimated, of a step.
    """

    own: int
    columns: int
    slices: int
    cluster: int
    kept_bytes: int
    shared_bytes: int
    cycles: float


def _choices(writer: Writer, form: Recurrent, units: int, outputs: int, *, is_projected: bool) -> Iterator[_Choice]:
    """All ways to compute a cell; the first one reads weights through the caches and may not fit."""
    element, gates = STORED[writer.precision], form.gates
    for cluster in (1, *(CLUSTERS if writer.gpu.has_clusters and not is_projected else ())):
        own = units // cluster
        width = own if cluster > 1 else max(units, outputs)
        columns = min(MOST_COLUMNS, max(WARP, power_of_two(width)))
        slices = min(THREADS // columns, -(-max(units, outputs) // FEWEST))
        depth = _share(outputs, slices) * slices
        between = _share(units, slices) * slices if is_projected else 0
        needed = FLOAT * (gates * columns * slices + 2 * depth + between + own)
        kept = depth * gates * whole(own, columns) * element.nbytes
        projection = units * outputs * element.nbytes / COPIED if is_projected else 0
        step = STEP_CYCLES + projection
        if cluster == 1:
            yield _Choice(own, columns, slices, 1, 0, needed, step + kept / COPIED)
        if units % cluster == 0 and kept + needed <= writer.gpu.shared_bytes:
            exchange = writer.gpu.costs.exchange if cluster > 1 else 0
            cycles = step + exchange + kept / element.nbytes / WORDS
            yield _Choice(own, columns, slices, cluster, kept, kept + needed, cycles)


def write_recurrent(writer: Writer, node: Node, form: Recurrent) -> None:
    """Writes the launch of a Recurrent node.

    Raises:
        CompileError: hidden values and states do not fit in a block's shared memory, or there are too many weights.
    """
    output = node.outputs[0]
    data, hidden, state, weights, more, projection, bias = node.inputs
    (rows, batch, width), (_, outputs), (_, units) = map(writer.shape, (output, hidden, state))
    is_projected, steps, gates = projection != ABSENT, rows - 1, form.gates * units
    choices = list(_choices(writer, form, units, outputs, is_projected=is_projected))
    if choices[0].shared_bytes > writer.gpu.shared_bytes:
        raise CompileError(
            f"{node.op} of {units} units takes {choices[0].shared_bytes} bytes of shared memory, "
            f"expected at most {writer.gpu.shared_bytes}."
        )
    choice = min(choices, key=lambda one: -(-batch * one.cluster // writer.gpu.multiprocessors) * one.cycles)
    columns, slices, cluster = choice.columns, choice.slices, choice.cluster
    hidden_share, unit_share = _share(outputs, slices), _share(units, slices) if is_projected else 0
    template = RecurrentTemplate(
        target=writer.element(output),
        data=writer.element(data),
        hidden=writer.element(hidden),
        state=writer.element(state),
        weights=STORED[writer.precision],
        columns=columns,
        slices=slices,
        gates=form.gates,
        cell=form.cell,
        output=form.output,
        more=0 if more == ABSENT else writer.shape(more)[0],
        limit=form.limit if is_projected else None,
        reverse=form.reverse,
        is_kept=choice.kept_bytes > 0,
        cluster=cluster,
    )
    ahead, apart = (batch * gates, gates) if form.time_major else (gates, steps * gates)
    writer.launch(
        template,
        (batch, 1, cluster),
        (
            *map(writer.pointer, (output, data, hidden, state)),
            _packed(writer, weights, form.gates, hidden_share * slices, columns, cluster),
            _given(writer, more),
            _packed(writer, projection, 1, unit_share * slices, columns),
            _given(writer, bias),
            RecurrentSizes(
                steps=steps,
                units=units,
                own=choice.own,
                padded_units=whole(choice.own, columns),
                kept=choice.kept_bytes // CHUNK,
                outputs=outputs,
                padded_outputs=whole(outputs, columns),
                hidden_share=hidden_share,
                unit_share=unit_share,
                ahead=ahead,
                apart=apart,
                width=width,
            ),
        ),
        choice.shared_bytes,
        cycles=-(-batch * cluster // writer.gpu.multiprocessors) * steps * choice.cycles,
    )


def _share(values: int, slices: int) -> int:
    return whole(-(-values // slices), TURN)


def _given(writer: Writer, index: int) -> Pointer:
    return NoPointer() if index == ABSENT else writer.pointer(index)


def _packed(writer: Writer, index: int, gates: int, depth: int, columns: int, cluster: int = 1) -> Pointer:
    """Weights as [block, value, gate, row], padded with zeros to `depth` values and to whole columns of rows."""
    if index == ABSENT:
        return NoPointer()
    weights = writer.array(index)
    rows, values = len(weights) // gates // cluster, weights.shape[1]
    packed = blank(cluster * depth, gates, whole(rows, columns)).reshape(cluster, depth, gates, -1)
    packed[:, :values, :, :rows] = weights.reshape(gates, cluster, rows, values).transpose(1, 3, 0, 2)
    element = STORED[writer.precision]
    return writer.constant(Operand(element.value).rounded(packed) if element.is_narrow_float else packed)
