"""Recurrent on CUDA: cells of every kind and size, run over sequences in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Arg, unary
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops.recurrent import lstm_output, lstm_update
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import compare, stored_between

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


CASES = {
    "one unit": recurrent(LSTM, 3, 1, 1),
    "one step": recurrent(LSTM, 1, 2, 7),
    "a warp": recurrent(LSTM, 3, 2, 32),
    "a warp and a tail": recurrent(LSTM, 2, 1, 33),
    "more slices than the sums need": recurrent(LSTM, 2, 1, 20),
    "backwards": recurrent(COUPLED, 4, 2, 17),
    "plain, sequences apart": recurrent(PLAIN, 3, 3, 40),
    "peepholes": recurrent(PEEPHOLES, 3, 2, 12, constants=2),
    "more units than columns": recurrent(PLAIN, 2, 1, 300),
}


@pytest.mark.parametrize("graph", CASES.values(), ids=CASES.keys())
def test_cells_of_every_size_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(graph, tolerance=3e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_threads_makes_no_difference(seed: int) -> None:
    graph = CASES["a warp and a tail"]
    compare(graph, tolerance=3e-6, schedule="random", seed=seed)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sequences_stored_as_16_bits_are_computed_in_float32(precision: str) -> None:
    compare(stored_between(CASES["backwards"]), precision)


def test_a_cell_that_does_not_fit_in_a_block_is_refused() -> None:
    graph = recurrent(PLAIN, 1, 1, 1)
    shapes = [(1, 1, 30_000), (1, 30_000), (1, 30_000), (30_000, 30_000), (2, 1, 30_000)]
    tensors = [Tensor(f"t{k}", shape, "float32") for k, shape in enumerate(shapes)]
    weights = np.broadcast_to(np.float32(0), shapes[3])
    tensors[3] = Tensor("weights", shapes[3], "float32", weights)
    graph = Graph(tuple(tensors), graph.nodes, graph.inputs, graph.outputs)
    with pytest.raises(CompileError, match="bytes"):
        templates_of(graph)


def test_recurrent_compiles_everywhere_without_local_memory() -> None:
    assert_compiles_everywhere([template for graph in CASES.values() for template in templates_of(graph)])


def test_a_step_reads_what_the_last_one_wrote() -> None:
    graph = recurrent(Recurrent(gates=1, cell=Arg(0) + Arg(1), output=Arg(1)), 3, 1, 1)
    graph.tensors[3].data[...] = 1.0
    (out,) = run(graph, [np.ones((3, 1, 1), np.float32), np.full((1, 1), 5, np.float32), np.zeros((1, 1), np.float32)])
    assert out.ravel().tolist() == [6, 13, 27, 27]
