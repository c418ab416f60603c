"""The pipeline as a whole: traced, and refused where a pass leaves a malformed graph."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.passes import PIPELINE, run
from tests.passes.graphs import Builder, assert_same


def network() -> Graph:
    """A small network with something for every pass to do."""
    build = Builder()
    x = build.input(1, 6, 6, 4)
    borders = build.constant([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")
    pad = build.op("PAD", [x, borders], (1, 8, 8, 4))
    conv = build.convolution(pad, padding="VALID")
    scaled = build.op("MUL", [conv, build.weights(4)], (1, 6, 6, 4))
    relu = build.op("RELU", [scaled], (1, 6, 6, 4))
    total = build.op("ADD", [relu, x], (1, 6, 6, 4))
    pool = build.op("MEAN", [total, build.constant([1, 2], "int32")], (1, 4), keep_dims=False)
    flat = build.op("RESHAPE", [pool, build.constant([1, 4], "int32")], (1, 4))
    dense = build.op("FULLY_CONNECTED", [flat, build.weights(3, 4), build.weights(3)], (1, 3))
    return build.finish(build.op("SOFTMAX", [dense], (1, 3), beta=1.0))


def test_the_passes_leave_four_kernels_that_compute_the_same() -> None:
    graph = network()
    final = run(graph)
    assert [type(node.form).__name__ for node in final.nodes] == ["Contract", "Reduce", "Contract", "Softmax"]
    assert [node.origin for node in final.nodes] == [(0, 1, 2, 3, 4), (5,), (7,), (8,)]
    assert_same(graph, final)


def test_a_pass_that_exchanges_outputs_is_a_bug() -> None:
    build = Builder()
    x = build.input(1, 4)
    a, b = (build.op(name, [x], (1, 4)) for name in ("ABS", "NEG"))
    graph = build.finish(a, b)

    def exchange(given: Graph) -> Graph:
        return replace(given, outputs=given.outputs[::-1])

    def lose(given: Graph) -> Graph:
        return replace(given, outputs=given.outputs[:1])

    def renumber(given: Graph) -> Graph:
        return replace(given, inputs=(a,), nodes=given.nodes[1:])

    for wrong in (exchange, lose, renumber):
        with pytest.raises(AssertionError, match=wrong.__name__):
            run(graph, passes=(wrong,))


def test_every_pass_is_traced_in_order() -> None:
    stages: list[str] = []
    run(network(), lambda stage, graph: stages.append(stage))
    assert stages == [each.__name__ for each in PIPELINE]


def test_a_pass_that_leaves_a_malformed_graph_is_named() -> None:
    def forget(graph: Graph) -> Graph:
        return replace(graph, nodes=graph.nodes[1:])

    with pytest.raises(AssertionError, match="after forget: node 0 CONV_2D reads"):
        run(network(), passes=[forget])
