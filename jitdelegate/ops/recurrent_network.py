"""Plain recurrent layers and SVDF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Concat, Contract, IndexMap, Reduce
from jitdelegate.ops.activation import ACTIVATIONS, OPTION, activated
from jitdelegate.ops.call import Call, Shape, constant_problems, given
from jitdelegate.ops.case import Case, Weights
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.recurrent import Bidirectional, Recurrence, outcome
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, Cell, Read, Run, apply
from jitdelegate.ops.recurrent_reference import activation, times
from jitdelegate.ops.registry import Lowering, op, view


def rnn_case(data: Shape, batch: int, units: int, **attrs: Any) -> Case:
    """A plain recurrent layer."""
    weights = Weights((units, data[-1])), Weights((units, units)), Weights((units,))
    return Case((data, *weights, (batch, units)), attrs, low=-1, high=1)


class Rnn(Recurrence):
    """hidden = activation(weights @ data + recurrent weights @ hidden + bias); operands in this order."""

    ranks: ClassVar[tuple[int, ...]] = (3,)
    layers: ClassVar[tuple[int, ...]] = (1,)
    """The first operand of each direction; from there on: weights, recurrent weights, bias, hidden."""

    def problems(self, call: Call) -> Iterator[str]:
        if len(call.shape(0)) not in self.ranks:
            yield f"{self.name}: the input's rank is {len(call.shape(0))}, expected {self.ranks[0]}."
        for first in self.layers:
            yield from self._layer_problems(call, first)

    def _layer_problems(self, call: Call, first: int) -> Iterator[str]:
        if len(call.shape(first)) != 2:
            yield f"{self.name}: the rank of the weights is {len(call.shape(first))}, expected 2."
        units, depth = call.shape(first)[0], call.shape(0)[-1]
        expected = ((units, depth), (units, units), (units,), (self.steps(call).batch, units))
        for operand, size in enumerate(expected, start=first):
            found = call.shape(operand)
            if found != size:
                yield f"{self.name}: the shape of input {operand} is {list(found)}, expected {list(size)}."
        yield from constant_problems(call, *range(first, first + 3))

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (*call.shape(0)[:-1], call.shape(1)[0]), call.shape(4)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        run = self.run(call, 1)
        return outcome([run.outputs], [run.hidden])

    def run(self, call: Call, first: int, *, reverse: bool = False) -> Run:
        """One direction."""
        weights, recurrent, bias = map(call.array, range(first, first + 3))
        update = CELL_ACTIVATIONS[call.option(OPTION, "NONE")](Arg(0))
        cell = Cell(len(weights), weights, recurrent, bias, update, output=Arg(1))
        return cell.run(self.steps(call, reverse=reverse), call.index(first + 3), call.index(first + 3))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return layer_reference(given(arrays), attrs)


def layer_reference(
    arrays: Sequence[np.ndarray], attrs: Mapping[str, Any], *, reverse: bool = False
) -> list[np.ndarray]:
    """The hidden values of every step, which lie as the data, and the last hidden value."""
    data, weights, recurrent, bias, hidden = arrays
    rows = times(data.astype(np.float64), attrs)
    found = np.empty((*rows.shape[:2], len(weights)))
    for time in range(len(rows))[:: -1 if reverse else 1]:
        hidden = activation(attrs, rows[time] @ weights.T + hidden @ recurrent.T.astype(np.float64) + bias)
        found[time] = hidden
    outputs = found[0] if data.ndim == 2 else times(found, attrs)
    return [outputs.astype(np.float32), hidden.astype(np.float32)]


@op("RNN")
class RnnStep(Rnn):
    """One step of f32[batch, depth]: hidden = activation(weights @ data + recurrent weights @ hidden + bias)."""

    least = most = 5
    states = (4,)
    ranks = (2,)
    cases = (rnn_case((2, 5), 2, 11, **{OPTION: "TANH"}), rnn_case((1, 5), 1, 16, **{OPTION: "RELU"}))


@op("UNIDIRECTIONAL_SEQUENCE_RNN")
class UnidirectionalSequenceRnn(Rnn):
    """As RNN, for every step of f32[batch, time, depth], or f32[time, batch, depth] if `time_major`."""

    least = most = 5
    states = (4,)
    cases = (
        rnn_case((3, 6, 5), 3, 11, **{OPTION: "TANH", "time_major": False}),
        rnn_case((6, 3, 5), 3, 16, **{OPTION: "RELU6", "time_major": True}),
    )


def both_ways(case: Case, **attrs: Any) -> Case:
    """The case's layer in both directions."""
    data, *layer = case.inputs
    return replace(case, inputs=(data, *layer, *layer, None, None, None), attrs={**case.attrs, **attrs})


@op("BIDIRECTIONAL_SEQUENCE_RNN")
class BidirectionalSequenceRnn(Bidirectional, Rnn):
    """UNIDIRECTIONAL_SEQUENCE_RNN in both directions; with `merge_outputs` the two outputs are one, forward first."""

    least, most = 9, 12
    states = (4, 8)
    layers = (1, 5)
    auxiliary = range(9, 12)
    cases = (
        both_ways(rnn_case((3, 6, 5), 3, 11, **{OPTION: "TANH", "time_major": False}), merge_outputs=True),
        both_ways(rnn_case((6, 3, 5), 3, 16, **{OPTION: "TANH", "time_major": True}), merge_outputs=True),
        both_ways(rnn_case((2, 4, 5), 2, 7, **{OPTION: "RELU6", "time_major": False}), merge_outputs=False),
    )

    def runs(self, call: Call) -> Sequence[Run]:
        return self.run(call, 1), self.run(call, 5, reverse=True)

    def answers(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> Sequence[Sequence[np.ndarray]]:
        data, *layers = given(arrays[:9])
        backward = layer_reference([data, *layers[4:]], attrs, reverse=True)
        return layer_reference([data, *layers[:4]], attrs), backward


@op("SVDF")
class Svdf(Recurrence):
    """Each filter's product with the data enters the filter's memory, which holds the last products; the output sums
    the memory, weighted by time, over the `rank` filters of a unit; operands (data, weights by feature, weights by
    time, bias or none, memory)."""

    least = 3
    most = 5
    states = (4,)
    cases = (
        Case(((2, 3), Weights((8, 3)), Weights((8, 5)), Weights((4,)), (2, 40)), {"rank": 2, OPTION: "RELU"}),
        Case(((1, 8), Weights((3, 8)), Weights((3, 10)), None, (1, 30)), {"rank": 1}),
        Case(((1, 8), Weights((3, 8)), Weights((3, 1)), Weights((3,)), (1, 3)), {"rank": 1}),
    )

    def _activation(self, call: Call) -> Iterator[str]:
        name = call.option(OPTION, "NONE")
        if name not in ACTIVATIONS:
            yield f"SVDF with the activation {name} is not supported."

    def problems(self, call: Call) -> Iterator[str]:
        ranks = [len(call.shape(operand)) for operand in range(3)]
        if ranks != [2, 2, 2] or not call.given(4):
            yield f"SVDF: operands of ranks {ranks}, expected [2, 2, 2] and a memory."
        (batch, depth), (filters, _), (_, memory) = map(call.shape, range(3))
        rank = call.option("rank", 0)
        if rank < 1 or filters % rank:
            yield f"SVDF: {filters} filters are not units of rank {rank}."
        expected = {1: (filters, depth), 2: (filters, memory), 3: (filters // rank,), 4: (batch, filters * memory)}
        for operand, size in expected.items():
            if call.given(operand) and call.shape(operand) != size:
                yield f"SVDF: the shape of input {operand} is {list(call.shape(operand))}, expected {list(size)}."
        yield from constant_problems(call, *filter(call.given, (1, 2, 3)))

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0)[0], call.shape(1)[0] // call.option("rank", 1)), call.shape(4)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        (batch, _), (filters, memory), (output, _) = call.shape(0), call.shape(2), self.shapes(call)
        newest = Lowering(Contract(), (call.index(0), call.index(1), -1), (batch, filters), "float32")
        kept = self._memory(call, view(newest, (batch, filters, 1)), batch, filters, memory)
        shape = (batch, filters, memory)
        weighted = mapped(X * Y, (kept, shape), (call.index(2), shape[1:]), shape=shape)
        rows = view(weighted, (*output, filters // output[1] * memory))
        total = Lowering(Reduce(kind="sum", axes=(2,)), (rows,), output, "float32")
        reads: list[Read] = [(total, IndexMap.broadcast(output, output))]
        if call.given(3):
            reads.append((call.index(3), IndexMap.along(1)))
        expr = ACTIVATIONS[call.option(OPTION, "NONE")](sum((Arg(k) for k in range(1, len(reads))), Arg(0)))
        return outcome([apply(expr, reads, output)], [view(kept, call.shape(4))])

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        data, features, weights, memory = given([*arrays[:3], arrays[4]])
        filters, length = weights.shape
        newest = data.astype(np.float64) @ features.T
        memory = memory.reshape(len(data), filters, length)
        memory = np.concatenate([memory[:, :, 1:], newest[:, :, None]], axis=2)
        total = (memory * weights).sum(axis=2).reshape(len(data), -1, attrs["rank"]).sum(axis=2)
        total = total if arrays[3] is None else total + arrays[3]
        state = memory.reshape(len(data), -1).astype(np.float32)
        return [activated(attrs.get(OPTION, "NONE"), total), state]

    @staticmethod
    def _memory(call: Call, newest: Lowering, batch: int, filters: int, memory: int) -> Lowering:
        """The memory of every filter, with the newest product and without the oldest."""
        if memory == 1:
            return newest
        before = view(call.index(4), (batch, filters, memory))
        later = apply(Arg(0), [(before, IndexMap.along(0, 1, 2, starts=(0, 0, 1)))], (batch, filters, memory - 1))
        return Lowering(Concat(axis=2), (later, newest), (batch, filters, memory), "float32")
