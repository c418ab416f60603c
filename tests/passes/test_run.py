"""The pipeline as a whole: traced, and refused where a pass leaves a malformed graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from jitdelegate.ir import verify
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ir.print import graph_text
from jitdelegate.ops import OPS
from jitdelegate.passes import FOLD, REWRITE, run
from jitdelegate.passes.infer_shapes import infer_shapes
from jitdelegate.passes.lower import lower
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.support import node_reason
from jitdelegate.passes.works_on import applies, declared
from tests.passes.graphs import Builder, assert_same


def network() -> Graph:
    """A small network with something for many passes to do."""
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


def test_the_passes_that_have_something_to_work_on_are_traced_in_order() -> None:
    stages: list[str] = []
    run(network(), lambda stage, graph: stages.append(stage))
    assert [name for name in stages if name != "remove_dead"] == [
        *("infer_shapes", "fuse_pad", "fuse_scale", "fuse_activation", "lower", "push_transposes", "turn_products"),
        *(
            "remove_identity",
            "fuse_normalization",
            "join_reductions",
            "fuse_elementwise",
            "copy_images",
            "copy_outputs",
        ),
    ]


def one_op_graphs() -> Iterator[Graph]:
    """A network, and a graph of each operator's first cases that are compiled."""
    yield network()
    for op in OPS.values():
        for case in op.cases[:3]:
            yield case.graph(op)


def test_a_pass_that_is_not_entered_would_change_nothing() -> None:
    left_out: set[str] = set()
    for graph in one_op_graphs():
        after = run(graph, passes=FOLD)
        if any(node_reason(after, node) is not None for node in after.nodes):
            continue
        for each in REWRITE:
            if not applies(each, after):
                left_out.add(each.__name__)
                assert_equal(remove_dead(each(after)), remove_dead(after), each.__name__)
            after = run(after, passes=(each,))
    assert left_out == {each.__name__ for each in REWRITE if declared(each)}


def assert_equal(found: Graph, expected: Graph, name: str) -> None:
    """That a pass has left a graph as it was, with its very tensors."""
    assert (graph_text(found), [node.origin for node in found.nodes]) == (
        graph_text(expected),
        [node.origin for node in expected.nodes],
    ), name
    assert all(a is b for a, b in zip(found.tensors, expected.tensors, strict=True)), name


def test_only_what_a_pass_has_changed_is_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Node] = []
    monkeypatch.setattr(verify, "_verify_form", lambda graph, node, *_: seen.append(node))

    def same(graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(graph.nodes))

    def other_node(graph: Graph) -> Graph:
        return replace(graph, nodes=(replace(graph.nodes[0]), *graph.nodes[1:]))

    def other_tensor(graph: Graph) -> Graph:
        (last,) = graph.outputs
        return replace(graph, tensors=(*graph.tensors[:last], replace(graph.tensors[last]), *graph.tensors[last + 1 :]))

    lowered = run(network(), passes=(infer_shapes, lower))
    seen.clear()
    for further, count in ((same, 0), (other_node, 1), (other_tensor, 1)):
        run(lowered, passes=(same, further))
        assert seen[: len(lowered.nodes)] == list(lowered.nodes)
        assert len(seen) == len(lowered.nodes) + count
        seen.clear()


def test_a_pass_that_leaves_a_malformed_graph_is_named() -> None:
    def forget(graph: Graph) -> Graph:
        return replace(graph, nodes=graph.nodes[1:])

    with pytest.raises(AssertionError, match="after forget: node 0 CONV_2D reads"):
        run(network(), passes=[forget])
