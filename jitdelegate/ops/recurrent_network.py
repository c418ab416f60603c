"""Plain recurrent layers and SVDF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Access, Concat, Contract, Reduce
from jitdelegate.ops.activation import ACTIVATIONS, OPTION
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.recurrent import Recurrence, outcome
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, Cell, Read, apply
from jitdelegate.ops.registry import Lowering, op, view


class Rnn(Recurrence):
    """hidden = activation(weights @ data + recurrent weights @ hidden + bias); operands in this order."""

    least = most = 5
    states = (4,)
    ranks: ClassVar[tuple[int, ...]]

    def problems(self, call: Call) -> Iterator[str]:
        shape = call.shape(0)
        if len(shape) not in self.ranks:
            yield f"{self.name}: the input's rank is {len(shape)}, expected {self.ranks[0]}."
        if len(call.shape(1)) != 2:
            yield f"{self.name}: the rank of the weights is {len(call.shape(1))}, expected 2."
        units = call.shape(1)[0]
        expected = ((units, shape[-1]), (units, units), (units,), (self.steps(call).batch, units))
        for operand, size in enumerate(expected, start=1):
            found = call.shape(operand)
            if found != size:
                yield f"{self.name}: the shape of input {operand} is {list(found)}, expected {list(size)}."
        for operand in (1, 2, 3):
            if call.constant(operand) is None:
                yield f"{self.name}: input {operand} ('{call.tensor(operand).name}') is not a constant."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (*call.shape(0)[:-1], call.shape(1)[0]), call.shape(4)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        weights, recurrent, bias = map(call.constant, (1, 2, 3))
        assert weights is not None
        assert recurrent is not None
        update = CELL_ACTIVATIONS[call.option(OPTION, "NONE")](Arg(0))
        cell = Cell(len(weights), weights, recurrent, bias, update, output=Arg(1))
        run = cell.run(self.steps(call), call.index(4), call.index(4))
        return outcome([run.outputs], [run.hidden])


@op("RNN")
class RnnStep(Rnn):
    """One step of f32[batch, depth]: hidden = activation(weights @ data + recurrent weights @ hidden + bias)."""

    ranks = (2,)


@op("UNIDIRECTIONAL_SEQUENCE_RNN")
class UnidirectionalSequenceRnn(Rnn):
    """As RNN, for every step of f32[batch, time, depth], or f32[time, batch, depth] if `time_major`."""

    ranks = (3,)


@op("SVDF")
class Svdf(Recurrence):
    """Each filter's product with the data joins the last ones in its memory; their sum, weighted by time, over the
    `rank` filters of a unit; operands (data, weights by feature, weights by time, bias or none, memory)."""

    least = 3
    most = 5
    states = (4,)

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
        for operand in filter(call.given, (1, 2, 3)):
            if call.constant(operand) is None:
                yield f"SVDF: input {operand} ('{call.tensor(operand).name}') is not a constant."

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0)[0], call.shape(1)[0] // call.option("rank", 1)), call.shape(4)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        (batch, _), (filters, memory), (output, _) = call.shape(0), call.shape(2), self.shapes(call)
        newest = Lowering(Contract(), (call.index(0), call.index(1), -1), (batch, filters), "float32")
        kept = self._memory(call, view(newest, (batch, filters, 1)), batch, filters, memory)
        shape = (batch, filters, memory)
        weighted = apply(
            Arg(0) * Arg(1),
            [(kept, Access.broadcast(shape, shape)), (call.index(2), Access.broadcast(shape[1:], shape))],
            shape,
        )
        rows = view(weighted, (*output, filters // output[1] * memory))
        total = Lowering(Reduce(kind="sum", axes=(2,)), (rows,), output, "float32")
        reads: list[Read] = [(total, Access.broadcast(output, output))]
        if call.given(3):
            reads.append((call.index(3), Access((1,), (0,), (1,))))
        expr = ACTIVATIONS[call.option(OPTION, "NONE")](sum((Arg(k) for k in range(1, len(reads))), Arg(0)))
        return outcome([apply(expr, reads, output)], [view(kept, call.shape(4))])

    @staticmethod
    def _memory(call: Call, newest: Lowering, batch: int, filters: int, memory: int) -> Lowering:
        """What every filter remembers, the oldest forgotten."""
        if memory == 1:
            return newest
        before = view(call.index(4), (batch, filters, memory))
        later = apply(Arg(0), [(before, Access((0, 1, 2), (0, 0, 1), (1, 1, 1)))], (batch, filters, memory - 1))
        return Lowering(Concat(axis=2), (later, newest), (batch, filters, memory), "float32")
