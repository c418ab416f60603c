"""Long short-term memory: cells and sequences of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Expr
from jitdelegate.ir.forms import Concat, Contract, IndexMap
from jitdelegate.ir.graph import Node
from jitdelegate.ops import lstm_basic
from jitdelegate.ops.call import OPTION, Call, Shape, constant_problems, given
from jitdelegate.ops.case import Case, Entry, Weights
from jitdelegate.ops.lstm_integers import IntegerLstm, integer_problems
from jitdelegate.ops.lstm_operands import MOST_OPERANDS, Operands, lstm_output, lstm_update
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, Run, Steps, apply
from jitdelegate.ops.recurrent_reference import LstmReference, logistic
from jitdelegate.ops.registry import HYBRID, Lowering, Op, op, view

MOST_KERNELS = 1024
"""Most kernels of a sequence whose steps have their own kernels; a hundred kernels take about a second to compile."""
BASIC_INPUTS, BASIC_OUTPUTS = 5, 4


def lstm_case(
    data: Shape,
    batch: int,
    units: int,
    *,
    outputs: int = 0,
    coupled: bool = False,
    peepholes: bool = False,
    norm: bool = False,
    diagonal: bool = False,
    **attrs: Any,
) -> Case:
    """An LSTM of one direction, with a projection if `outputs` is given."""
    gates, width = range(1 if coupled else 0, 4), outputs or units

    def four(*shape: int) -> list[Entry]:
        return [Weights(shape) if gate in gates else None for gate in range(4)]

    entries = [data, *four(units, data[-1]), *(four(units) if diagonal else four(units, width))]
    entries += [Weights((units,)) if peepholes and gate in gates else None for gate in (0, 1, 3)]
    entries += four(units)
    entries += [Weights((width, units)), Weights((width,))] if outputs else [None, None]
    entries += [(batch, width), (batch, units), *(four(units) if norm else [None] * 4)]
    return Case(tuple(entries), {OPTION: "TANH", **attrs}, low=-2, high=2)


class Recurrence(Op):
    """One or more cells that run over the steps of a sequence; the states are variables that the node updates.

    A subclass names the states and says what it computes.
    """

    states: ClassVar[tuple[int, ...]]
    weights: ClassVar[tuple[int, ...]] = tuple(range(1, MOST_OPERANDS))
    hybrid: ClassVar[tuple[str, ...]] = HYBRID

    def updates(self, node: Node) -> tuple[int, ...]:
        return self.states

    def outputs(self, call: Call) -> int:
        return 1 + len(self.updates(call.node))

    def _activation(self, call: Call) -> Iterator[str]:
        name = call.option(OPTION, "NONE")
        if name not in CELL_ACTIVATIONS:
            yield f"{self.name} with the activation {name} is not supported."

    def foldable(self, call: Call) -> bool:
        return False

    def work(self, call: Call) -> int:
        """Every constant is a matrix or smaller, and each step reads it once."""
        weights = sum(tensor.size for tensor in call.operands if tensor.is_constant)
        return weights * prod(call.shape(0)[:-1])

    @staticmethod
    def steps(call: Call, *, reverse: bool = False) -> Steps:
        """The steps of the data: a sequence, or one step if the rank is 2."""
        shape = call.shape(0)
        if len(shape) == 2:
            one = view(call.index(0), (1, *shape), call.tensor(0).dtype)
            return Steps(one, 1, shape[0], reverse=reverse)
        time_major = bool(call.option("time_major", False))
        batch, count = (shape[1], shape[0]) if time_major else shape[:2]
        return Steps(call.index(0), count, batch, time_major, reverse)


def outcome(outputs: Sequence[Lowering], states: Sequence[Lowering]) -> tuple[Lowering, ...]:
    """The outputs of a node, then its states, which other kernels may have computed already."""
    return (*outputs, *(view(state, state.shape or (), state.dtype or "float32") for state in states))


class Bidirectional(Recurrence):
    """Runs in both directions; `merge_outputs` joins the two outputs, forward first. States: forward, then backward."""

    auxiliary: ClassVar[int]
    """The auxiliary input; for each direction, forward first, `gates` weights of it follow. The products with them are
    added to the gates, as if data and auxiliary input were one; without weights it is the data of the way back."""
    gates: ClassVar[int]

    def outputs(self, call: Call) -> int:
        return (1 if call.option("merge_outputs", False) else 2) + len(self.states)

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        data, auxiliary = call.shape(0), call.shape(self.auxiliary) if call.given(self.auxiliary) else ()
        is_linked = any(call.given(k) for number in range(2) for k in self.linked(number))
        if auxiliary and (auxiliary[:-1] != data[:-1] or not (is_linked or auxiliary == data)):
            yield f"{self.name}: the auxiliary input's shape is {list(auxiliary)}, the data's {list(data)}."
        for number in range(2) if is_linked else ():
            for own, operand in enumerate(self.linked(number), start=self.first(number)):
                if call.given(operand) != call.given(own):
                    yield f"{self.name} has only one of its inputs {own} and {operand}, which belong together."
                if call.given(own) and call.shape(operand) != (*call.shape(own)[:1], *auxiliary[-1:]):
                    yield f"{self.name}: the shape of input {operand} is {list(call.shape(operand))}."
                yield from constant_problems(call, *filter(call.given, (operand,)))

    def first(self, number: int) -> int:
        """The first weights of a direction."""
        raise NotImplementedError

    def linked(self, number: int) -> range:
        """The weights of the auxiliary input of a direction."""
        start = self.auxiliary + 1 + number * self.gates
        return range(start, start + self.gates)

    def both(self, call: Call) -> tuple[Steps, Steps]:
        """The steps forward and backward."""
        ways = self.steps(call), self.steps(call, reverse=True)
        if not call.given(self.auxiliary):
            return ways
        auxiliary, shape = call.index(self.auxiliary), call.shape(0)
        if not any(map(call.given, self.linked(0))):
            return ways[0], replace(ways[1], source=auxiliary)
        joined = (*shape[:2], shape[2] + call.shape(self.auxiliary)[2])
        source = Lowering(Concat(axis=2), (call.index(0), auxiliary), joined, "float32")
        return replace(ways[0], source=source), replace(ways[1], source=source)

    def joined(self, arrays: Sequence[np.ndarray | None], number: int) -> list[np.ndarray | None]:
        """The operands of a reference as if the auxiliary input were part of the data of a direction."""
        joined = [*arrays, *[None] * (self.most - len(arrays))]
        auxiliary, start = joined[self.auxiliary], self.linked(number)[0]
        weights = [k for k in self.linked(number) if joined[k] is not None]
        if auxiliary is not None and not weights:
            joined[0] = auxiliary if number else joined[0]
        pairs = [(0, self.auxiliary), *((k - start + self.first(number), k) for k in weights)]
        for own, added in pairs if weights else []:
            joined[own] = np.concatenate(given([joined[own], joined[added]]), axis=-1)
        return joined

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        states = tuple(map(call.shape, self.states))
        leading, widths = call.shape(0)[:-1], (states[0][1], states[len(states) // 2][1])
        merged = call.option("merge_outputs", False)
        return (*((*leading, width) for width in ([sum(widths)] if merged else widths)), *states)

    def runs(self, call: Call) -> Sequence[Run]:
        """Forward and backward."""
        raise NotImplementedError

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        runs = self.runs(call)
        outputs = [run.outputs for run in runs]
        if call.option("merge_outputs", False):
            outputs = [Lowering(Concat(axis=2), tuple(outputs), self.shapes(call)[0], "float32")]
        return outcome(outputs, [value for run in runs for value in (run.hidden, run.state)[: len(self.states) // 2]])

    def answers(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> Sequence[Sequence[np.ndarray]]:
        """The reference of each direction: outputs, then states."""
        raise NotImplementedError

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        runs = self.answers(arrays, attrs)
        outputs = [outputs for outputs, *_ in runs]
        states = [state for _, *states in runs for state in states]
        return [*([np.concatenate(outputs, axis=2)] if attrs.get("merge_outputs") else outputs), *states]


def cell_problems(call: Call, operands: Operands, steps: Steps) -> Iterator[str]:
    """Reasons why one direction is not supported."""
    yield from operands.problems(call, steps.batch, call.shape(0)[-1])
    kernels = operands.kernels(call) * steps.count
    if kernels > MOST_KERNELS:
        yield f"{call.node.op}: {steps.count} steps of this cell take {kernels} kernels, over {MOST_KERNELS}."


class Lstm(Recurrence):
    """One direction: gates i, f, o = logistic and g = the activation, state = f * state + i * g, hidden = o *
    activation(state), perhaps projected; peepholes, layer normalization and input gates are optional."""

    least = 1
    most = 24
    states = (18, 19)
    quantized = ("int8",)
    quantized_kinds: ClassVar = {
        **dict.fromkeys((9, 10, 11, 19, 20, 21, 22, 23), ("int16",)),
        **dict.fromkeys((12, 13, 14, 15, 17), ("int32",)),
    }
    quantized_results: ClassVar = {2: ("int16",)}
    operands: ClassVar[Operands] = Operands(first=1, hidden=18, state=19, norm=20)
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def problems(self, call: Call) -> Iterator[str]:
        shape = call.shape(0)
        if len(shape) not in self.ranks:
            yield f"{self.name}: the input's rank is {len(shape)}, expected {self.ranks[0]}."
        yield from cell_problems(call, self.operands, self.steps(call))

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (*call.shape(0)[:-1], call.shape(18)[1]), call.shape(18), call.shape(19)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, hidden, state = given([arrays[0], *arrays[18:20]])
        return [*LstmReference(arrays, attrs, 1, 20).run(data, hidden, state)]

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        run = self.operands.cell(call).run(self.steps(call), call.index(18), call.index(19))
        return outcome([run.outputs], [run.hidden, run.state])

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from integer_problems(call, self.operands, self.steps(call), MOST_KERNELS)

    def quantized_lowering(self, call: Call) -> tuple[Lowering, ...]:
        run = IntegerLstm(call, self.operands, self.steps(call)).run()
        return outcome([run.outputs], [run.hidden, run.state])


@op("UNIDIRECTIONAL_SEQUENCE_LSTM")
class UnidirectionalSequenceLstm(Lstm):
    """As LSTM's FULL kernel, for every step of f32[batch, time, depth], or f32[time, batch, depth] if `time_major`."""

    ranks = (3,)
    operands = Operands(first=1, hidden=18, state=19, norm=20, takes_diagonals=True)
    cases = (
        lstm_case((2, 5, 3), 2, 7, time_major=False),
        lstm_case((4, 1, 20), 1, 33, time_major=True, cell_clip=0.5),
        lstm_case((3, 4, 5), 3, 16, time_major=False, coupled=True, peepholes=True),
        lstm_case((3, 2, 5), 2, 9, time_major=True, outputs=4, proj_clip=0.3),
        lstm_case((2, 3, 5), 2, 9, time_major=False, outputs=4, norm=True, peepholes=True),
        lstm_case((4, 2, 5), 2, 7, time_major=True, diagonal=True, coupled=True, diagonal_recurrent_tensors=True),
    )


@op("LSTM")
class LstmStep(Lstm):
    """One step. Kernel FULL: states are variables. Kernel BASIC: operands (data, hidden, weights, bias, state), gates
    (input, cell, forget, output) = weights @ [data, hidden] + bias; outputs (hidden, state, [data, hidden], gates);
    its quantized data is uint8."""

    cases = (
        Case(((1, 12), (1, 20), Weights((80, 32)), Weights((80,)), (1, 20)), {OPTION: "TANH", "kernel_type": "BASIC"}),
        Case(((3, 5), (3, 7), Weights((28, 12)), Weights((28,)), (3, 7)), {OPTION: "TANH", "kernel_type": "BASIC"}),
        lstm_case((3, 5), 3, 7, kernel_type="FULL"),
        lstm_case((1, 5), 1, 16, kernel_type="FULL", outputs=3, coupled=True, norm=True, cell_clip=0.7),
    )

    basic_states = (1, 4)

    @staticmethod
    def is_basic(node: Node) -> bool:
        return bool(node.attrs.get("kernel_type", "FULL") == "BASIC")

    def updates(self, node: Node) -> tuple[int, ...]:
        return self.basic_states if self.is_basic(node) else self.states

    def outputs(self, call: Call) -> int:
        """Kernel BASIC already has its states as outputs; states whose operands are variables are also updated."""
        if not self.is_basic(call.node):
            return super().outputs(call)
        return BASIC_OUTPUTS + (2 if len(call.node.outputs) > BASIC_OUTPUTS else 0)

    def problems(self, call: Call) -> Iterator[str]:
        yield from self._basic_problems(call) if self.is_basic(call.node) else super().problems(call)

    def _types(self, call: Call) -> Iterator[str]:
        is_own = self.is_basic(call.node) and call.quantization == "integer"
        yield from lstm_basic.type_problems(call) if is_own else super()._types(call)

    def quantized_problems(self, call: Call) -> Iterator[str]:
        is_basic = self.is_basic(call.node)
        yield from lstm_basic.basic_problems(call) if is_basic else super().quantized_problems(call)

    def _basic_problems(self, call: Call) -> Iterator[str]:
        missing = [k for k in range(BASIC_INPUTS) if not call.given(k)]
        if missing or call.count != BASIC_INPUTS:
            yield f"LSTM of kernel BASIC: inputs {missing or call.count} found, expected all of {BASIC_INPUTS}."
        if call.option(OPTION, "NONE") != "TANH":
            yield f"LSTM of kernel BASIC with the activation {call.option(OPTION, 'NONE')} is not supported."
        if call.option("cell_clip", 0.0) or call.option("proj_clip", 0.0):
            yield "LSTM of kernel BASIC takes neither cell_clip nor proj_clip."
        data, hidden, weights, bias, state = map(call.shape, range(BASIC_INPUTS))
        if len(data) != 2 or len(hidden) != 2 or data[0] != hidden[0] or state != hidden:
            yield f"LSTM: data {list(data)}, hidden {list(hidden)} and state {list(state)} do not belong together."
        gates, depth = 4 * hidden[1], data[1] + hidden[1]
        if weights != (gates, depth) or bias != (gates,):
            yield f"LSTM: weights {list(weights)} and bias {list(bias)}, expected {[gates, depth]} and {[gates]}."
        if call.constant(2) is None or call.constant(3) is None:
            yield "LSTM: weights and bias are no constants."
        shared = [k for k in self.basic_states if call.graph.only_reader(call.index(k)) is None]
        if shared:
            yield f"LSTM of kernel BASIC: others read input {shared[0]} too, which LiteRT's kernel overwrites."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if not self.is_basic(call.node):
            return super().shapes(call)
        batch, depth = call.shape(0)
        units = call.shape(1)[1]
        outputs = (batch, units), (batch, units), (batch, depth + units), (batch, 4 * units)
        return (*outputs, outputs[0], outputs[1])[: len(call.outputs)]

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        if not self.is_basic(call.node):
            return super().lowering(call)
        row = self._row(call)
        gates = Lowering(Contract(), (row, call.index(2), call.index(3)), self.shapes(call)[3], "float32")
        return self._outputs(call, row, gates, lstm_update(4, "TANH", 0.0), lstm_output(4, "TANH"))

    def quantized_lowering(self, call: Call) -> tuple[Lowering, ...]:
        if not self.is_basic(call.node):
            return super().quantized_lowering(call)
        row = self._row(call)
        gates = lstm_basic.gate_sums(call, row, self.shapes(call)[3])
        return self._outputs(call, row, gates, lstm_basic.new_state(), lstm_basic.new_hidden())

    def _row(self, call: Call) -> Lowering:
        """Data and hidden value of kernel BASIC."""
        return Lowering(Concat(axis=1), (call.index(0), call.index(1)), self.shapes(call)[2], call.tensor(0).dtype)

    def _outputs(self, call: Call, row: Lowering, gates: Lowering, update: Expr, output: Expr) -> tuple[Lowering, ...]:
        """The outputs of kernel BASIC; `update` and `output` read the gates input, forget, cell and output, then the
        state."""
        whole, hidden_type, state_type = self.shapes(call)[0], call.output.dtype, call.tensor(4).dtype
        reads = [(gates, IndexMap.along(0, 1, starts=(0, number * whole[1]))) for number in (0, 2, 1, 3)]
        own = IndexMap.broadcast(whole, whole)
        state = apply(update, [*reads, (call.index(4), own)], whole, state_type)
        hidden = apply(output, [*reads, (state, own)], whole, hidden_type)
        made = hidden, state, row, gates, hidden, state
        return (hidden, *(view(each, each.shape or (), each.dtype or "") for each in made[1 : len(call.outputs)]))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        if attrs.get("kernel_type", "FULL") != "BASIC":
            return super().reference(arrays, attrs)
        data, hidden, weights, bias, state = given(arrays)
        row = np.concatenate([data, hidden], axis=1)
        gates = row.astype(np.float64) @ weights.T + bias
        i, g, f, o = np.split(gates, 4, axis=1)
        state = logistic(f) * state + logistic(i) * np.tanh(g)
        outputs = (logistic(o) * np.tanh(state), state, row, gates)
        return [output.astype(np.float32) for output in outputs]


def both_ways(case: Case, auxiliary: Shape | None = None, weights: int = 0, **attrs: Any) -> Case:
    """The case's cell in both directions, perhaps with an auxiliary input, and with weights for so many units of it."""
    data, *own = case.inputs[:18]
    depth = (auxiliary or (0,))[-1] if weights else 0
    linked: list[Entry] = [Weights((weights, depth)) if depth and gate is not None else None for gate in own[:4]]
    entries = (data, *own, *own, *case.inputs[18:20], *case.inputs[18:20], auxiliary, *linked, *linked)
    return replace(case, inputs=entries, attrs={**case.attrs, **attrs})


@op("BIDIRECTIONAL_SEQUENCE_LSTM")
class BidirectionalSequenceLstm(Bidirectional):
    """UNIDIRECTIONAL_SEQUENCE_LSTM in both directions; with `merge_outputs` the two outputs are one, forward first."""

    least = 1
    most = 48
    states = (35, 36, 37, 38)
    cases = (
        both_ways(lstm_case((1, 5, 3), 1, 7, time_major=False), merge_outputs=True),
        both_ways(lstm_case((4, 2, 3), 2, 9, time_major=True, outputs=4), merge_outputs=True),
        both_ways(lstm_case((5, 2, 3), 2, 7, time_major=True, coupled=True), merge_outputs=False),
        both_ways(lstm_case((2, 3, 5), 2, 9, time_major=False, outputs=4, peepholes=True), merge_outputs=False),
        both_ways(lstm_case((5, 2, 3), 2, 7, time_major=True), auxiliary=(5, 2, 3), merge_outputs=False),
        both_ways(lstm_case((5, 2, 3), 2, 7, time_major=True), auxiliary=(5, 2, 4), weights=7, merge_outputs=True),
        both_ways(
            lstm_case((2, 4, 3), 2, 7, time_major=False, coupled=True),
            auxiliary=(2, 4, 6),
            weights=7,
            merge_outputs=False,
        ),
    )
    directions: ClassVar = (
        Operands(1, 35, 36, norm=48, auxiliary=40),
        Operands(18, 37, 38, norm=48, auxiliary=44),
    )
    auxiliary, gates = 39, 4

    def problems(self, call: Call) -> Iterator[str]:
        if len(call.shape(0)) != 3:
            yield f"{self.name}: the input's rank is {len(call.shape(0))}, expected 3."
        yield from super().problems(call)
        steps = self.steps(call)
        if call.option("merge_outputs", False) and not steps.time_major and steps.batch > 1:
            # here LiteRT's kernel differs from the two directions computed one by one, and even from run to run
            yield f"{self.name} with merge_outputs of {steps.batch} sequences is supported with time_major only."
        for operands in self.directions:
            yield from cell_problems(call, operands, steps)

    def first(self, number: int) -> int:
        return self.directions[number].first

    def runs(self, call: Call) -> Sequence[Run]:
        return [
            operands.cell(call).run(steps, call.index(operands.hidden), call.index(operands.state))
            for operands, steps in zip(self.directions, self.both(call), strict=True)
        ]

    def answers(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> Sequence[Sequence[np.ndarray]]:
        runs = []
        for number, operands in enumerate(self.directions):
            own = self.joined(arrays, number)
            data, hidden, state = given([own[k] for k in (0, operands.hidden, operands.state)])
            cell = LstmReference(own, attrs, operands.first, operands.norm)
            runs.append(cell.run(data, hidden, state, reverse=number > 0))
        return runs
