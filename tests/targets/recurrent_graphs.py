"""Graphs of one Recurrent, with random weights."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.expr import Arg, unary
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops.recurrent import lstm_output, lstm_update

LSTM = Recurrent(gates=4, cell=lstm_update(4, "TANH", 0.0), output=lstm_output(4, "TANH"))
COUPLED = Recurrent(gates=3, cell=lstm_update(3, "RELU", 0.5), output=lstm_output(3, "RELU"), reverse=True)
PLAIN = Recurrent(gates=1, cell=unary("tanh", Arg(0)), output=Arg(1), time_major=False)
PEEPHOLES = Recurrent(
    gates=4,
    cell=unary("logistic", Arg(1) + Arg(4) * Arg(5)) * Arg(4) + Arg(0) * Arg(2),
    output=unary("logistic", Arg(3) + Arg(4) * Arg(6)) * Arg(4),
    time_major=False,
)


def recurrent(form: Recurrent, steps: int, batch: int, units: int, constants: int = 0) -> Graph:
    """The form with random weights; projected data, hidden and state are fed."""
    random = np.random.default_rng(units)
    leading = (steps, batch) if form.time_major else (batch, steps)
    shapes = ((*leading, form.gates * units), (batch, units), (batch, units))
    tensors = [Tensor(f"input{k}", shape, "float32") for k, shape in enumerate(shapes)]
    for shape in ((form.gates * units, units), *([(constants, units)] if constants else [])):
        weights = (random.uniform(-1, 1, shape) / np.sqrt(units)).astype(np.float32)
        tensors.append(Tensor("weights", shape, "float32", weights))
    tensors.append(Tensor("out", (steps + 1, batch, units), "float32"))
    last = len(tensors) - 1
    more = () if constants else (ABSENT,)
    node = Node("LSTM", (*range(last), *more), (last,), form=form)
    return Graph(tuple(tensors), (node,), (0, 1, 2), (last,))
