"""Recurrent on CUDA: cells of every kind and size, run over sequences in both directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import Graph, Tensor
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import compare, stored_between
from tests.targets.recurrent_graphs import CLIPPED, COUPLED, LSTM, PEEPHOLES, PLAIN, kept, recurrent

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
PROJECTED = {
    "to less": recurrent(CLIPPED, 3, 2, 20, outputs=5),
    "to more": recurrent(PLAIN, 2, 1, 9, outputs=40),
    "to as many": recurrent(replace(CLIPPED, reverse=True), 2, 1, 33, outputs=33),
}


@pytest.mark.parametrize("graph", CASES.values(), ids=CASES.keys())
def test_cells_of_every_size_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(graph, tolerance=3e-6)


@pytest.mark.parametrize("graph", PROJECTED.values(), ids=PROJECTED.keys())
def test_projected_cells_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(kept(graph), tolerance=3e-6)
    compare(kept(graph), tolerance=3e-6, schedule="random", seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_threads_makes_no_difference(seed: int) -> None:
    graph = CASES["a warp and a tail"]
    compare(graph, tolerance=3e-6, schedule="random", seed=seed)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sequences_stored_as_16_bits_are_computed_in_float32(precision: str) -> None:
    compare(stored_between(CASES["backwards"]), precision)


def large(form: Recurrent, units: int) -> Graph:
    """One step of many units, whose weights are zeros that take no memory."""
    graph = recurrent(form, 1, 1, 1)
    weights = np.broadcast_to(np.float32(0), (form.gates * units, units))
    shapes = [(1, 1, form.gates * units), (1, units), (1, units), weights.shape, (2, 1, units)]
    tensors = tuple(Tensor(f"t{k}", shape, "float32") for k, shape in enumerate(shapes))
    return replace(graph, tensors=(*tensors[:3], replace(tensors[3], data=weights), tensors[4]))


def test_a_cell_that_does_not_fit_in_a_block_is_refused() -> None:
    with pytest.raises(CompileError, match="bytes of shared memory"):
        templates_of(large(PLAIN, 20_000))


def test_weights_that_padding_makes_too_many_are_refused() -> None:
    with pytest.raises(CompileError, match=r"A constant of \[11584, 4, 11776\]"):
        templates_of(large(LSTM, 11_584))


def test_recurrent_compiles_everywhere_without_local_memory() -> None:
    assert_compiles_everywhere(
        [template for graph in (*CASES.values(), *PROJECTED.values()) for template in templates_of(graph)]
    )


def test_a_step_reads_what_the_last_one_wrote() -> None:
    graph = recurrent(Recurrent(gates=1, cell=Arg(0) + Arg(1), output=Arg(1)), 3, 1, 1)
    graph.tensors[3].data[...] = 1.0
    (out,) = run(graph, [np.ones((3, 1, 1), np.float32), np.full((1, 1), 5, np.float32), np.zeros((1, 1), np.float32)])
    assert out.ravel().tolist() == [6, 13, 27, 27]
