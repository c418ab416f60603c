"""Recurrent on the CPU target: cells of every kind and size, on every instruction set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.targets.host import level
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE
from tests.targets.recurrent_graphs import CLIPPED, COUPLED, LSTM, PEEPHOLES, PLAIN, kept, recurrent

CASES = {
    "one unit": recurrent(LSTM, 3, 1, 1),
    "one step": recurrent(LSTM, 1, 2, 7),
    "whole vectors": recurrent(LSTM, 3, 2, 32),
    "a vector and a tail": recurrent(LSTM, 2, 1, 33),
    "fewer units than chains": recurrent(PLAIN, 4, 2, 5),
    "units that chains do not divide": recurrent(PLAIN, 3, 1, 27),
    "backwards": recurrent(COUPLED, 4, 2, 17),
    "sequences apart": recurrent(PLAIN, 3, 3, 40),
    "peepholes": recurrent(PEEPHOLES, 3, 2, 12, constants=2),
    "projected to less": kept(recurrent(CLIPPED, 3, 2, 20, outputs=5)),
    "projected to more": kept(recurrent(PLAIN, 2, 1, 9, outputs=40)),
    "projected to as many, backwards": kept(recurrent(replace(CLIPPED, reverse=True), 2, 3, 33, outputs=33)),
}


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("graph", CASES.values(), ids=CASES.keys())
def test_cells_of_every_size_are_as_the_reference_has_them(graph: Graph, features: str) -> None:
    random = np.random.default_rng(1)
    feeds = [random.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    for found, expected in zip(execute(graph, feeds, features), run_graph(graph, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6)


def test_sequences_of_a_batch_may_run_on_several_threads() -> None:
    graph = recurrent(LSTM, 5, 9, 20)
    random = np.random.default_rng(1)
    feeds = [random.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    alone, together = (execute(graph, feeds, level(), threads=threads)[0] for threads in (1, 3))
    np.testing.assert_array_equal(alone, together)
