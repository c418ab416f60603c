"""The positions of an LSTM's operands, the checks of these operands, and the cell that they form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, unary
from jitdelegate.ops.call import OPTION, Call, Shape, constant_problems
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, Cell, Norm, clamped

RECURRENT, INPUT_PEEPHOLE, FORGET_PEEPHOLE, OUTPUT_PEEPHOLE, BIAS, PROJECTION, PROJECTION_BIAS = 4, 8, 9, 10, 11, 15, 16
"""Offsets of operands from the first weights: four weights, four recurrent weights, three peepholes, four biases and
two operands of the projection. Four in a row are for the gates input, forget, cell and output."""
COUNT = 17
MOST_OPERANDS = 48
"""Inputs of the operator that has most."""


def lstm_update(gates: int, activation: str, limit: float) -> Expr:
    """The new state from the gates (input, forget, cell, output) and the state; of three, input = 1 - forget."""
    forget = unary("logistic", Arg(gates - 3))
    entry = unary("logistic", Arg(0)) if gates == 4 else 1 - forget
    return clamped(forget * Arg(gates) + entry * CELL_ACTIVATIONS[activation](Arg(gates - 2)), limit)


def lstm_output(gates: int, activation: str) -> Expr:
    """The hidden value from the last gate and the new state."""
    return unary("logistic", Arg(gates - 1)) * CELL_ACTIVATIONS[activation](Arg(gates))


@dataclass(frozen=True, slots=True)
class Operands:
    """The positions of the operands of one direction's cell.

    Attributes:
        first: the first weights; RECURRENT and the constants beside it are offsets from there.
        hidden, state: variables.
        norm: layer normalization's scales, one per gate; the number of inputs where there are none.
        auxiliary: the first weights of an auxiliary input, one per gate; the number of inputs where there are none.
        takes_diagonals: whether recurrent weights may be the diagonals of matrices that are 0 elsewhere.
    """

    first: int
    hidden: int
    state: int
    norm: int
    auxiliary: int = MOST_OPERANDS
    takes_diagonals: bool = False

    def gates(self, call: Call) -> range:
        """The gates of the cell: all four, or all except the input gate."""
        return range(0 if call.given(self.first) else 1, 4)

    def is_diagonal(self, call: Call, operand: int) -> bool:
        """Whether an operand is the diagonal of recurrent weights."""
        is_recurrent = self.first + RECURRENT <= operand < self.first + INPUT_PEEPHOLE
        return self.takes_diagonals and is_recurrent and call.given(operand) and len(call.shape(operand)) == 1

    def is_projected(self, call: Call) -> bool:
        return call.given(self.first + PROJECTION)

    def is_normalized(self, call: Call) -> bool:
        return call.given(self.norm + 1)

    def kernels(self, call: Call) -> int:
        """As `Cell.kernels`, for operands without `problems`."""
        return self.cell(call).kernels

    def problems(self, call: Call, batch: int, depth: int) -> Iterator[str]:
        """Reasons why these operands do not form a cell."""
        name, checked = call.node.op, set()
        if call.option(OPTION, "NONE") == "NONE" and call.quantization != "integer":
            yield f"{name} without an activation: LiteRT takes the outputs from memory that holds something else."
        for operand in (self.first + 1, self.first + RECURRENT + 1, self.hidden, self.state):
            if not call.given(operand):
                yield f"{name} lacks its input {operand}."
            elif len(call.shape(operand)) != 2 and not self.is_diagonal(call, operand):
                yield f"{name}: input {operand} has rank {len(call.shape(operand))}, expected 2."
        for operand, shape, is_needed in self._expected(call, batch, depth):
            checked.add(operand)
            if call.given(operand):
                yield from self._operand_problems(call, operand, shape)
            elif is_needed:
                yield f"{name} lacks its input {operand}, while it has those that go with it."
        own = (*range(self.first, self.first + COUNT), *range(self.norm, self.norm + 4))
        surplus = [k for k in own if call.given(k) and k not in checked]
        if surplus:
            yield f"{name} has the input {surplus[0]} without those that go with it."
        if not self.is_projected(call) and call.shape(self.hidden) != call.shape(self.state):
            yield f"{name} has {call.shape(self.hidden)[1]} outputs for {call.shape(self.state)[1]} units, unprojected."

    def _operand_problems(self, call: Call, operand: int, shape: Shape) -> Iterator[str]:
        own = call.shape(operand)
        if own != shape:
            yield f"{call.node.op}: the shape of input {operand} is {list(own)}, expected {list(shape)}."
        if operand not in (self.hidden, self.state):
            yield from constant_problems(call, operand)

    def _expected(self, call: Call, batch: int, depth: int) -> Iterator[tuple[int, Shape, bool]]:
        """For each operand its number, its shape, and whether it must be given."""
        first, gates = self.first, self.gates(call)
        units, outputs = call.shape(first + 1)[0], call.shape(first + RECURRENT + 1)[-1]
        for gate in gates:
            yield first + gate, (units, depth), True
            recurrent = first + RECURRENT + gate
            yield recurrent, (units,) if self.is_diagonal(call, recurrent) else (units, outputs), True
            yield first + BIAS + gate, (units,), True
        if call.given(first + OUTPUT_PEEPHOLE):
            for operand in (INPUT_PEEPHOLE, FORGET_PEEPHOLE, OUTPUT_PEEPHOLE)[4 - len(gates) :]:
                yield first + operand, (units,), True
        if self.is_projected(call):
            yield first + PROJECTION, (outputs, units), True
            yield first + PROJECTION_BIAS, (outputs,), False
        if self.is_normalized(call):
            for gate in gates:
                yield self.norm + gate, (units,), True
        yield self.hidden, (batch, outputs), True
        yield self.state, (batch, units), True

    def cell(self, call: Call) -> Cell:
        """The cell of operands without `problems`."""
        gates, activation = self.gates(call), call.option(OPTION, "NONE")
        return Cell(
            units=call.shape(self.first + 1)[0],
            inputs=self._inputs(call),
            recurrent=self._stacked(call, RECURRENT),
            bias=None if self.is_normalized(call) else self._stacked(call, BIAS),
            update=lstm_update(len(gates), activation, float(call.option("cell_clip", 0.0))),
            output=lstm_output(len(gates), activation),
            peepholes=self._peepholes(call)[4 - len(gates) :],
            norms=self._norms(call),
            projection=self._projection(call),
        )

    def _array(self, call: Call, operand: int) -> np.ndarray:
        return call.array(self.first + operand)

    def _optional(self, call: Call, operand: int) -> np.ndarray | None:
        return self._array(call, operand) if call.given(self.first + operand) else None

    def _stacked(self, call: Call, operand: int) -> np.ndarray:
        parts = [self._array(call, operand + gate) for gate in self.gates(call)]
        return np.concatenate([np.diag(part) if operand == RECURRENT and part.ndim == 1 else part for part in parts])

    def _inputs(self, call: Call) -> np.ndarray:
        """The weights of the data and of an auxiliary input behind it."""
        if not call.given(self.auxiliary + 1):
            return self._stacked(call, 0)
        return np.concatenate([self._stacked(call, 0), self._stacked(call, self.auxiliary - self.first)], axis=1)

    def _peepholes(self, call: Call) -> tuple[np.ndarray | None, ...]:
        """The peepholes of the four gates; the cell gate has none."""
        entry, forget, output = (
            self._optional(call, operand) for operand in (INPUT_PEEPHOLE, FORGET_PEEPHOLE, OUTPUT_PEEPHOLE)
        )
        return entry, forget, None, output

    def _norms(self, call: Call) -> tuple[Norm, ...]:
        if not self.is_normalized(call):
            return ()
        scale = self.norm - self.first
        return tuple(Norm(self._array(call, scale + g), self._array(call, BIAS + g)) for g in self.gates(call))

    def _projection(self, call: Call) -> tuple[np.ndarray, np.ndarray | None, float] | None:
        if not self.is_projected(call):
            return None
        bias, limit = self._optional(call, PROJECTION_BIAS), float(call.option("proj_clip", 0.0))
        return self._array(call, PROJECTION), bias, limit
