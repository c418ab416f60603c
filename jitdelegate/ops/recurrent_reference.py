"""Recurrent cells in plain numpy, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.ir.expr import Arg, evaluate
from jitdelegate.ops.call import OPTION
from jitdelegate.ops.recurrent_cell import CELL_ACTIVATIONS, NORM_EPSILON

Arrays = Sequence[np.ndarray | None]
INPUT, FORGET, CELL, OUTPUT = range(4)
PEEPHOLES = {INPUT: 8, FORGET: 9, OUTPUT: 10}
"""For each gate, its peephole's offset from the first weights."""


def logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def activation(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """The cell's activation."""
    return evaluate(CELL_ACTIVATIONS[attrs.get(OPTION, "NONE")](Arg(0)), [x])


def times(data: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    """Converts a sequence to [time, batch, depth] or back; a single step gets a time axis."""
    if data.ndim == 2:
        return data[None]
    return data if attrs.get("time_major") else data.swapaxes(0, 1)


class LstmReference:
    """One direction of an LSTM, computed from the operands of a node.

    Args:
        first, norm: as in `lstm_operands.Operands`.
    """

    def __init__(self, arrays: Arrays, attrs: Mapping[str, Any], first: int, norm: int) -> None:
        self._arrays = arrays
        self._attrs = attrs
        self._first = first
        self._norm = norm

    def run(
        self, data: np.ndarray, hidden: np.ndarray, state: np.ndarray, *, reverse: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The hidden values of all steps, which lie as the data, the last hidden value and the last state."""
        rows = times(data, self._attrs)
        values = np.empty((*rows.shape[:2], hidden.shape[1]))
        for time in range(len(rows))[:: -1 if reverse else 1]:
            hidden, state = self._step(rows[time], hidden, state)
            values[time] = hidden
        outputs = values[0] if data.ndim == 2 else times(values, self._attrs)
        return outputs.astype(np.float32), hidden.astype(np.float32), state.astype(np.float32)

    def _step(self, row: np.ndarray, hidden: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        forget = logistic(self._gate(FORGET, row, hidden, state))
        coupled = self._own(INPUT) is None
        entry = 1 - forget if coupled else logistic(self._gate(INPUT, row, hidden, state))
        cell = activation(self._attrs, self._gate(CELL, row, hidden, state))
        state = _clipped(forget * state + entry * cell, self._attrs.get("cell_clip", 0.0))
        hidden = logistic(self._gate(OUTPUT, row, hidden, state)) * activation(self._attrs, state)
        weights, bias = self._own(15), self._own(16)
        if weights is None:
            return hidden, state
        projected = hidden @ weights.T + (0.0 if bias is None else bias)
        return _clipped(projected, self._attrs.get("proj_clip", 0.0)), state

    def _own(self, operand: int) -> np.ndarray | None:
        return _exact(self._arrays, self._first + operand)

    def _gate(self, gate: int, row: np.ndarray, hidden: np.ndarray, state: np.ndarray) -> np.ndarray:
        weights, recurrent, bias = (self._own(operand + gate) for operand in (0, 4, 11))
        assert weights is not None
        assert recurrent is not None
        total = row @ weights.T + (hidden * recurrent if recurrent.ndim == 1 else hidden @ recurrent.T)
        peephole = self._own(PEEPHOLES[gate]) if gate in PEEPHOLES else None
        if peephole is not None:
            total = total + peephole * state
        scale = _exact(self._arrays, self._norm + gate)
        if scale is not None:
            centred = total - total.mean(axis=1, keepdims=True)
            total = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + NORM_EPSILON) * scale
        return np.asarray(total + bias)


def _exact(arrays: Arrays, operand: int) -> np.ndarray | None:
    array = arrays[operand] if operand < len(arrays) else None
    return None if array is None else array.astype(np.float64)


def _clipped(values: np.ndarray, limit: float) -> np.ndarray:
    return np.clip(values, -limit, limit) if limit > 0 else values
