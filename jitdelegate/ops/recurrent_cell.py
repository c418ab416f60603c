"""The computation of a recurrent cell in one step, and its run over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, clamp, substitute, unary
from jitdelegate.ir.forms import Concat, Contract, IndexMap, Map, Recurrent, Reduce
from jitdelegate.ir.graph import ABSENT
from jitdelegate.ops.call import ACTIVATIONS, Shape
from jitdelegate.ops.registry import Lowering, view

Source = int | Lowering | np.ndarray
Read = tuple[Source, IndexMap]
"""An operand and its index map."""
CELL_ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {**ACTIVATIONS, "TANH": lambda x: unary("tanh", x)}
"""The activations that LiteRT's recurrent kernels apply: unlike other kernels, they know TANH."""
NORM_EPSILON = 1e-8
"""The number that LiteRT adds to the variance in layer normalization."""
FLOAT = "float32"


@dataclass(frozen=True, slots=True)
class Steps:
    """The data of a run: `source` is f32[count, batch, depth], or f32[batch, count, depth] without `time_major`."""

    source: Source
    count: int
    batch: int
    time_major: bool = True
    reverse: bool = False

    def shape(self, depth: int) -> Shape:
        """The shape of a tensor with `depth` numbers for each step."""
        return (self.count, self.batch, depth) if self.time_major else (self.batch, self.count, depth)

    def order(self) -> range:
        """The times in the order in which the cell sees them."""
        return range(self.count - 1, -1, -1) if self.reverse else range(self.count)


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a cell: `outputs` lie as the data, `hidden` is f32[batch, outputs], `state` f32[batch, units]."""

    outputs: Lowering
    hidden: Lowering
    state: Lowering


@dataclass(frozen=True)
class Norm:
    """Normalizes a gate over its units, then multiplies it by `scale` and adds `shift`, each f32[units]."""

    scale: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of `units` units.

    In every step, gate g = inputs_g @ data + recurrent_g @ hidden + bias_g, plus peepholes[g] * state if that peephole
    is given, normalized if `norms` are given. `update` computes the new state and `output` the new hidden value, which
    is projected if `projection` is given. In both expressions Arg(g) is gate g and Arg(gates) the state; `output` reads
    the new state.

    Attributes:
        inputs: f32[gates * units, depth].
        recurrent: f32[gates * units, outputs].
        bias: f32[gates * units], None for none.
        projection: f32[outputs, units] and f32[outputs] or None, and the limit of the projected values, 0 for none.
    """

    units: int
    inputs: np.ndarray
    recurrent: np.ndarray
    bias: np.ndarray | None
    update: Expr
    output: Expr
    peepholes: tuple[np.ndarray | None, ...] = ()
    norms: tuple[Norm, ...] = ()
    projection: tuple[np.ndarray, np.ndarray | None, float] | None = None

    @property
    def gates(self) -> int:
        return len(self.inputs) // self.units

    @property
    def kernels(self) -> int:
        """The number of kernels for each step; 0 where one kernel computes all steps."""
        return 4 + 6 * len(self.norms) if self.norms else 0

    @cached_property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The peepholes that are given."""
        return tuple(peephole for peephole in self.peepholes if peephole is not None)

    def gate(self, number: int) -> Expr:
        """A gate with its peephole; Arg(gates + 1 + k) is constant k."""
        peepholes = self.peepholes or (None,) * self.gates
        if peepholes[number] is None:
            return Arg(number)
        before = sum(peephole is not None for peephole in peepholes[:number])
        return Arg(number) + Arg(self.gates) * Arg(self.gates + 1 + before)

    def whole(self, expr: Expr) -> Expr:
        """`update` or `output` with the peepholes in it."""
        return substitute(expr, [*map(self.gate, range(self.gates)), Arg(self.gates)])

    def run(self, steps: Steps, hidden: Source, state: Source) -> Run:
        """The kernels of a whole sequence that begins with `hidden` and `state`."""
        bias = ABSENT if self.bias is None else self.bias
        projected = Lowering(Contract(), (steps.source, self.inputs, bias), steps.shape(self.gates * self.units), FLOAT)
        if self.kernels:
            return _Unrolled(self, steps, projected).run(hidden, state)
        return self._in_one_kernel(steps, projected, hidden, state)

    def _in_one_kernel(self, steps: Steps, projected: Lowering, hidden: Source, state: Source) -> Run:
        form = Recurrent(
            gates=self.gates,
            cell=self.whole(self.update),
            output=self.whole(self.output),
            limit=clamped(Arg(0), self.projection[2]) if self.projection else Arg(0),
            time_major=steps.time_major,
            reverse=steps.reverse,
        )
        more = np.stack(self.constants) if self.constants else ABSENT
        operands = (projected, hidden, state, self.recurrent, more, *self._projection())
        width = self.recurrent.shape[1]
        rows = Lowering(form, operands, (steps.count + 1, steps.batch, max(self.units, width)), FLOAT)
        order = (0, 1, 2) if steps.time_major else (1, 0, 2)
        outputs = apply(Arg(0), [(rows, IndexMap.along(*order))], steps.shape(width))
        last = self._row(rows, steps.order()[-1], (steps.batch, width))
        return Run(outputs, last, self._row(rows, steps.count, (steps.batch, self.units)))

    def _projection(self) -> tuple[np.ndarray | int, np.ndarray | int]:
        """The projection and its bias."""
        if self.projection is None:
            return ABSENT, ABSENT
        weights, bias, _ = self.projection
        return weights, np.zeros(len(weights), np.float32) if bias is None else bias

    @staticmethod
    def _row(rows: Lowering, time: int, shape: Shape) -> Lowering:
        return apply(Arg(0), [(rows, IndexMap.along(-1, 0, 1, starts=(time, 0, 0)))], shape)


class _Unrolled:
    """Steps with kernels of their own."""

    def __init__(self, cell: Cell, steps: Steps, projected: Lowering) -> None:
        self._cell = cell
        self._steps = steps
        self._projected = projected
        self._shape = (steps.batch, cell.units)
        self._whole = IndexMap.broadcast(self._shape, self._shape)

    def run(self, hidden: Source, state: Source) -> Run:
        """All steps one after another."""
        made: dict[int, Lowering] = {}
        for time in self._steps.order():
            made[time], state = self._step(time, hidden, state)
            hidden = made[time]
        assert isinstance(hidden, Lowering)
        assert isinstance(state, Lowering)
        return Run(self._joined([made[time] for time in range(self._steps.count)]), hidden, state)

    def _joined(self, rows: list[Lowering]) -> Lowering:
        steps, outputs = self._steps, self._cell.recurrent.shape[1]
        shape = (1, steps.batch, outputs) if steps.time_major else (steps.batch, 1, outputs)
        parts = tuple(view(row, shape) for row in rows)
        return Lowering(Concat(axis=0 if steps.time_major else 1), parts, steps.shape(outputs), FLOAT)

    def _step(self, time: int, hidden: Source, state: Source) -> tuple[Lowering, Lowering]:
        """The new hidden value and the new state."""
        cell, gates = self._cell, self._cell.gates
        total = (self._steps.batch, gates * cell.units)
        product = Lowering(Contract(), (hidden, cell.recurrent, ABSENT), total, FLOAT)
        access = IndexMap((-1, 0, 1) if self._steps.time_major else (0, -1, 1), self._start(time), (1, 1, 1))
        added = apply(Arg(0) + Arg(1), [(product, IndexMap.broadcast(total, total)), (self._projected, access)], total)
        now = apply(
            cell.update, [*self._gates(added, state, range(gates - 1)), self._unread(), self._of(state)], self._shape
        )
        before = [self._unread() for _ in range(gates - 1)]
        after = apply(
            cell.output, [*before, *self._gates(added, now, range(gates - 1, gates)), self._of(now)], self._shape
        )
        return self._projection(after), now

    def _start(self, time: int) -> Shape:
        return (time, 0, 0) if self._steps.time_major else (0, time, 0)

    def _of(self, source: Source) -> Read:
        return source, self._whole

    def _unread(self) -> Read:
        """A placeholder for a gate that an expression does not use."""
        return ABSENT, self._whole

    def _gates(self, total: Lowering, state: Source, numbers: range) -> list[Read]:
        return [self._of(self._gate(total, state, number)) for number in numbers]

    def _gate(self, total: Lowering, state: Source, number: int) -> Lowering:
        """One gate with its peephole, normalized."""
        cell = self._cell
        reads: list[Read] = [self._unread()] * cell.gates
        reads[number] = total, IndexMap.along(0, 1, starts=(0, number * cell.units))
        constants = [(constant, IndexMap.broadcast(constant.shape, self._shape)) for constant in cell.constants]
        gate = apply(cell.gate(number), [*reads, self._of(state), *constants], self._shape)
        return self._normalized(gate, cell.norms[number]) if cell.norms else gate

    def _normalized(self, gate: Lowering, norm: Norm) -> Lowering:
        narrow = (self._steps.batch, 1)
        per_row, per_unit = IndexMap.broadcast(narrow, self._shape), IndexMap.along(1)
        mean = Lowering(Reduce(kind="mean", axes=(1,)), (gate,), narrow, FLOAT)
        centred = apply(Arg(0) - Arg(1), [self._of(gate), (mean, per_row)], self._shape)
        squares = apply(Arg(0) * Arg(0), [self._of(centred)], self._shape)
        variance = Lowering(Reduce(kind="mean", axes=(1,)), (squares,), narrow, FLOAT)
        scaled = Arg(0) * unary("rsqrt", Arg(1) + NORM_EPSILON) * Arg(2) + Arg(3)
        reads = [self._of(centred), (variance, per_row), (norm.scale, per_unit), (norm.shift, per_unit)]
        return apply(scaled, reads, self._shape)

    def _projection(self, hidden: Lowering) -> Lowering:
        if self._cell.projection is None:
            return hidden
        weights, bias, limit = self._cell.projection
        shape = (self._steps.batch, len(weights))
        form = Contract(clamped(Arg(0), limit))
        return Lowering(form, (hidden, weights, ABSENT if bias is None else bias), shape, FLOAT)


def clamped(x: Expr, limit: float) -> Expr:
    """`x` limited to [-limit, limit]; 0 means no limit."""
    return clamp(x, -limit, limit) if limit > 0 else x


def apply(expr: Expr, reads: Sequence[Read], shape: Shape, dtype: str = FLOAT) -> Lowering:
    """A Map to a value of `shape`, where Arg(k) is operand k; operands that it does not use are left out."""
    used = sorted(_arguments(expr))
    renumbered = {old: Arg(new) for new, old in enumerate(used)}
    renamed = substitute(expr, [renumbered.get(number, Arg(0)) for number in range(len(reads))])
    sources, accesses = zip(*(reads[number] for number in used), strict=True)
    return Lowering(Map(renamed, accesses), sources, shape, dtype)


def _arguments(expr: Expr) -> set[int]:
    """The numbers of the Args in an expression."""
    if isinstance(expr, Arg):
        return {expr.index}
    return {number for part in expr.parts for number in _arguments(part)}
