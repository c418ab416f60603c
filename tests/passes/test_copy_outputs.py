"""Outputs that are inputs, constants or empty, through both targets."""

from __future__ import annotations

import numpy as np

from jitdelegate import passes
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.host import level
from tests.targets.execute import execute

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
COUNT = np.arange(5, dtype=np.int64)


def graph() -> Graph:
    """An input twice, a constant, a result that is read again, and one without elements."""
    tensors = (
        Tensor("x", (2, 3), "float32"),
        Tensor("count", (5,), "int64", COUNT),
        Tensor("empty", (0, 3), "float32", np.zeros((0, 3), np.float32)),
        Tensor("abs", (2, 3), "float32"),
        Tensor("exp", (2, 3), "float32"),
    )
    nodes = (Node("ABS", (0,), (3,), origin=(0,)), Node("RELU", (3,), (4,), origin=(1,)))
    return Graph(tensors, nodes, (0,), (0, 1, 2, 3, 0, 4))


EXPECTED = [X, COUNT, np.zeros((0, 3), np.float32), np.abs(X), X, np.abs(X)]


def test_every_output_with_elements_has_a_writer_of_its_own() -> None:
    rewritten = passes.run(graph())
    written = [index for index in rewritten.outputs if rewritten.tensors[index].size]
    assert all(rewritten.writer[index] is not None for index in written)
    assert [rewritten.tensors[index].name for index in rewritten.outputs] == ["x", "count", "empty", "abs", "x", "exp"]


def test_a_graph_whose_outputs_are_made_stays_as_it_is() -> None:
    lowered = passes.run(Graph(graph().tensors, graph().nodes, (0,), (3, 4)))
    assert [node.op for node in lowered.nodes] == ["ABS", "RELU"]


def test_outputs_are_the_caller_s_on_the_cpu() -> None:
    found = execute(passes.run(graph()), [X], level())
    for one, expected in zip(found, EXPECTED, strict=True):
        assert one.dtype == expected.dtype
        np.testing.assert_array_equal(one, expected)


def test_outputs_are_the_caller_s_on_cuda() -> None:
    from tests.targets.cuda_execute import run

    found = run(passes.run(graph()), [X])
    for one, expected in zip(found, EXPECTED, strict=True):
        assert one.dtype == expected.dtype
        np.testing.assert_array_equal(one, expected)
