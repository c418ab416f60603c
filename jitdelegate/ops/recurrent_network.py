"""Plain recurrent layers and SVDF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr
from jitdelegate.ir.forms import Concat, Contract, IndexMap, Reduce
from jitdelegate.ir.graph import ABSENT, Quant, Tensor
from jitdelegate.ops.call import ACTIVATIONS, OPTION, Call, Shape, activated, constant_problems, given, scale, zero
from jitdelegate.ops.case import Case, Entry, Weights
from jitdelegate.ops.pointwise import X, Y, mapped
from jitdelegate.ops.quantization import factor_problems, multiple, per_tensor_problems
from jitdelegate.ops.recurrent import Bidirectional, Recurrence, outcome
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, Cell, Read, Run, Steps, apply
from jitdelegate.ops.recurrent_reference import activation, times
from jitdelegate.ops.registry import Lowering, op, view
from jitdelegate.ops.rounding import AWAY


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
            own = call.shape(operand)
            if own != size:
                yield f"{self.name}: the shape of input {operand} is {list(own)}, expected {list(size)}."
        yield from constant_problems(call, *range(first, first + 3))

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (*call.shape(0)[:-1], call.shape(1)[0]), call.shape(4)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        run = self.run(call, 1, self.steps(call))
        return outcome([run.outputs], [run.hidden])

    def run(self, call: Call, first: int, steps: Steps, auxiliary: int = ABSENT) -> Run:
        """One direction, with the weights of an auxiliary input behind the data."""
        weights, recurrent, bias = map(call.array, range(first, first + 3))
        if auxiliary != ABSENT and call.given(auxiliary):
            weights = np.concatenate([weights, call.array(auxiliary)], axis=1)
        update = CELL_ACTIVATIONS[call.option(OPTION, "NONE")](Arg(0))
        cell = Cell(len(weights), weights, recurrent, bias, update, output=Arg(1))
        return cell.run(steps, call.index(first + 3), call.index(first + 3))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        return layer_reference(given(arrays), attrs)


def layer_reference(
    arrays: Sequence[np.ndarray], attrs: Mapping[str, Any], *, reverse: bool = False
) -> list[np.ndarray]:
    """The hidden values of every step, which lie as the data, and the last hidden value."""
    data, weights, recurrent, bias, hidden = arrays
    rows = times(data.astype(np.float64), attrs)
    values = np.empty((*rows.shape[:2], len(weights)))
    for time in range(len(rows))[:: -1 if reverse else 1]:
        hidden = activation(attrs, rows[time] @ weights.T + hidden @ recurrent.T.astype(np.float64) + bias)
        values[time] = hidden
    outputs = values[0] if data.ndim == 2 else times(values, attrs)
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


def both_ways(case: Case, *auxiliary: Entry, **attrs: Any) -> Case:
    """The case's layer in both directions, perhaps with an auxiliary input and its weights."""
    data, *layer = case.inputs
    more = (*auxiliary, *[None] * (3 - len(auxiliary)))
    return replace(case, inputs=(data, *layer, *layer, *more), attrs={**case.attrs, **attrs})


@op("BIDIRECTIONAL_SEQUENCE_RNN")
class BidirectionalSequenceRnn(Bidirectional, Rnn):
    """UNIDIRECTIONAL_SEQUENCE_RNN in both directions; with `merge_outputs` the two outputs are one, forward first."""

    least, most = 9, 12
    states = (4, 8)
    layers = (1, 5)
    auxiliary, gates = 9, 1
    cases = (
        both_ways(rnn_case((3, 6, 5), 3, 11, **{OPTION: "TANH", "time_major": False}), merge_outputs=True),
        both_ways(rnn_case((6, 3, 5), 3, 16, **{OPTION: "TANH", "time_major": True}), merge_outputs=True),
        both_ways(rnn_case((2, 4, 5), 2, 7, **{OPTION: "RELU6", "time_major": False}), merge_outputs=False),
        both_ways(rnn_case((4, 2, 5), 2, 7, **{OPTION: "TANH", "time_major": True}), (4, 2, 5), merge_outputs=True),
        both_ways(
            rnn_case((2, 4, 5), 2, 7, **{OPTION: "TANH", "time_major": False}),
            *((2, 4, 3), Weights((7, 3)), Weights((7, 3))),
            merge_outputs=False,
        ),
    )

    def problems(self, call: Call) -> Iterator[str]:
        yield from super().problems(call)
        if not call.given(self.auxiliary):
            return
        is_linked, time_major = call.given(self.auxiliary + 1), bool(call.option("time_major", False))
        if is_linked == time_major and not (is_linked and call.shape(self.auxiliary) == call.shape(0)):
            yield f"{self.name}: LiteRT's kernel does not read this auxiliary input as it is meant."

    def first(self, number: int) -> int:
        return self.layers[number]

    def runs(self, call: Call) -> Sequence[Run]:
        ways = zip(self.layers, (10, 11), self.both(call), strict=True)
        return [self.run(call, first, steps, auxiliary) for first, auxiliary, steps in ways]

    def answers(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> Sequence[Sequence[np.ndarray]]:
        found = []
        for number, first in enumerate(self.layers):
            own = self.joined(arrays, number)
            found.append(layer_reference(given([own[0], *own[first : first + 4]]), attrs, reverse=number > 0))
        return found


@op("SVDF")
class Svdf(Recurrence):
    """Each filter's product with the data enters the filter's memory, which holds the last products; the output sums
    the memory, weighted by time, over the `rank` filters of a unit; operands (data, weights by feature, weights by
    time, bias or none, memory)."""

    least = 3
    most = 5
    states = (4,)
    quantized = ("int8",)
    quantized_kinds: ClassVar = {2: ("int16",), 3: ("int32",), 4: ("int16",)}
    quantized_results: ClassVar = {1: ("int16",)}
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
        newest = Lowering(Contract(), (call.index(0), call.index(1), -1), self._rows(call), "float32")
        kept, reads = self._totals(call, newest, X * Y, "float32")
        expr = ACTIVATIONS[call.option(OPTION, "NONE")](sum((Arg(k) for k in range(1, len(reads))), Arg(0)))
        return outcome([apply(expr, reads, self.shapes(call)[0])], [view(kept, call.shape(4))])

    def quantized_problems(self, call: Call) -> Iterator[str]:
        tensors = [call.tensor(operand) for operand in (0, 1, 2, 4)]
        yield from per_tensor_problems(call, *tensors, call.output)
        if zero(tensors[1]) or zero(tensors[2]):
            yield "SVDF: its weights have zero points, expected 0."
        data, features, weights, memory = map(scale, tensors)
        yield from factor_problems(call, data * features / memory, memory * weights / scale(call.output))
        if call.option(OPTION, "NONE") != "RELU":
            yield f"SVDF of quantized data with the activation {call.option(OPTION, 'NONE')}, expected RELU."

    def quantized_lowering(self, call: Call) -> tuple[Lowering, ...]:
        """The memory is an int16 without zero point; sums wrap. No activation but the limits of the output's type."""
        data, features, weights, memory = (call.tensor(operand) for operand in (0, 1, 2, 4))
        stored = Tensor("memory", (), "int16", quant=Quant((float(scale(memory)),), (0,)))
        factor = np.asarray(scale(data) * scale(features) / scale(memory), np.float64)
        rounded, _ = multiple(RESULT, factor, AWAY, stored, "NONE", 0)
        form = Contract(rounded, input_zero=zero(data), halo_value=float(zero(data)), accumulator="int32")
        newest = Lowering(form, (call.index(0), call.index(1), -1), self._rows(call), "int16")
        kept, reads = self._totals(call, newest, Cast(X, "int32") * Cast(Y, "int32"), "int32")
        total = sum((Arg(k) for k in range(1, len(reads))), Arg(0))
        factor = np.asarray(scale(memory) * scale(weights) / scale(call.output), np.float64)
        rounded, _ = multiple(total, factor, AWAY, call.output, "NONE", 0)
        output = apply(rounded, reads, self.shapes(call)[0], "int8")
        return outcome([output], [view(kept, call.shape(4), "int16")])

    def _rows(self, call: Call) -> Shape:
        """A number for each filter."""
        return call.shape(0)[0], call.shape(2)[0]

    def _totals(self, call: Call, newest: Lowering, product: Expr, dtype: str) -> tuple[Lowering, list[Read]]:
        """The new memory; and what makes the sums, of type `dtype`, of its products with the weights over time."""
        shape, (output, _) = (*self._rows(call), call.shape(2)[1]), self.shapes(call)
        kept = self._memory(call, view(newest, (*shape[:2], 1), newest.dtype or dtype), *shape)
        weighted = mapped(product, (kept, shape), (call.index(2), shape[1:]), shape=shape, dtype=dtype)
        rows = view(weighted, (*output, shape[1] // output[1] * shape[2]), dtype)
        total = Lowering(Reduce(kind="sum", axes=(2,)), (rows,), output, dtype)
        reads: list[Read] = [(total, IndexMap.broadcast(output, output))]
        if call.given(3):
            reads.append((call.index(3), IndexMap.along(1)))
        return kept, reads

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
        dtype = newest.dtype or "float32"
        before = view(call.index(4), (batch, filters, memory), dtype)
        reads: list[Read] = [(before, IndexMap.along(0, 1, 2, starts=(0, 0, 1)))]
        later = apply(Arg(0), reads, (batch, filters, memory - 1), dtype)
        return Lowering(Concat(axis=2), (later, newest), (batch, filters, memory), dtype)
