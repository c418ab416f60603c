"""Graphs of one Recurrent, with random weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import Arg, clamp, unary
from jitdelegate.ir.forms import IndexMap, Map, Recurrent
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops.lstm_operands import lstm_output, lstm_update

LSTM = Recurrent(gates=4, cell=lstm_update(4, "TANH", 0.0), output=lstm_output(4, "TANH"))
COUPLED = Recurrent(gates=3, cell=lstm_update(3, "RELU", 0.5), output=lstm_output(3, "RELU"), reverse=True)
PLAIN = Recurrent(gates=1, cell=unary("tanh", Arg(0)), output=Arg(1), time_major=False)
PEEPHOLES = Recurrent(
    gates=4,
    cell=unary("logistic", Arg(1) + Arg(4) * Arg(5)) * Arg(4) + Arg(0) * Arg(2),
    output=unary("logistic", Arg(3) + Arg(4) * Arg(6)) * Arg(4),
    time_major=False,
)

CLIPPED = replace(LSTM, limit=clamp(Arg(0), -0.2, 0.2))


def kept(graph: Graph) -> Graph:
    """The graph with what its Recurrent keeps of each row: two outputs, the hidden values and the state."""
    (node,), (rows,) = graph.nodes, graph.outputs
    steps, batch, _ = graph.tensors[rows].shape
    tensors, nodes = list(graph.tensors), [node]
    for count, first, operand in ((steps - 1, 0, 1), (1, steps - 1, 2)):
        shape = (count, batch, graph.tensors[operand].shape[1])
        nodes.append(Node("SLICE", (rows,), (len(tensors),), form=Map(operands=(first_columns(first),))))
        tensors.append(Tensor("kept", shape, "float32"))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes), outputs=(rows + 1, rows + 2))


def first_columns(row: int) -> IndexMap:
    """From a row on, as many columns as the output has."""
    return IndexMap((0, 1, 2), (row, 0, 0), (1, 1, 1))


def recurrent(form: Recurrent, steps: int, batch: int, units: int, constants: int = 0, outputs: int = 0) -> Graph:
    """The form with random weights, projected where it has `outputs`; data, hidden and state are fed."""
    random, width = np.random.default_rng(units), outputs or units
    leading = (steps, batch) if form.time_major else (batch, steps)
    fed = ((*leading, form.gates * units), (batch, width), (batch, units))
    tensors = [Tensor(f"input{k}", shape, "float32") for k, shape in enumerate(fed)]

    def weights(*shape: int) -> int:
        if not shape[0]:
            return ABSENT
        values = (random.uniform(-1, 1, shape) / np.sqrt(units)).astype(np.float32)
        tensors.append(Tensor("weights", shape, "float32", values))
        return len(tensors) - 1

    inputs = (0, 1, 2, weights(form.gates * units, width), weights(constants, units))
    inputs += (weights(outputs, units), weights(outputs))
    tensors.append(Tensor("out", (steps + 1, batch, max(units, width)), "float32"))
    last = len(tensors) - 1
    return Graph(tuple(tensors), (Node("LSTM", inputs, (last,), form=form),), (0, 1, 2), (last,))
