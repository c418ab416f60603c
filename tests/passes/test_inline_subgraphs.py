"""Loops and branches whose way is known become what they do."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.passes import inline_subgraphs as module
from jitdelegate.passes.inline_subgraphs import inline_subgraphs
from jitdelegate.targets.reference.evaluate import run_graph

MAIN, CONDITION, BODY = range(3)
LOOP = {"cond_subgraph_index": CONDITION, "body_subgraph_index": BODY}


def constant(name: str, value: Any, dtype: str = "int32") -> Tensor:
    data = np.array(value, dtype)
    return Tensor(name, data.shape, dtype, data)


def counted(rounds: int, body: Graph) -> Graph:
    """WHILE with a counter from 0, as long as the condition's subgraph says."""
    tensors = (
        Tensor("x", (4,), "float32"),
        constant("zero", 0),
        Tensor("counter", (), "int32"),
        Tensor("y", (4,), "float32"),
    )
    node = Node("WHILE", (1, 0), (2, 3), LOOP, origin=(0,))
    return inline_subgraphs(Graph(tensors, (node,), (0,), (3,)), (Graph((), (), (), ()), below(rounds), body))


def below(limit: int) -> Graph:
    tensors = (
        Tensor("i", (), "int32"),
        Tensor("x", (4,), "float32"),
        constant("limit", limit),
        Tensor("again", (), "bool"),
    )
    return Graph(tensors, (Node("LESS", (0, 2), (3,), origin=(0,)),), (0, 1), (3,))


def step(*nodes: Node) -> Graph:
    """i + 1, and x through `nodes`, which read %1 and write %4."""
    tensors = (
        Tensor("i", (), "int32"),
        Tensor("x", (4,), "float32"),
        constant("one", 1),
        Tensor("next", (), "int32"),
        Tensor("y", (4,), "float32"),
    )
    return Graph(tensors, (Node("ADD", (0, 2), (3,), origin=(0,)), *nodes), (0, 1), (3, 4))


SQUARED = step(Node("SQUARE", (1,), (4,), origin=(1,)))


def test_a_loop_becomes_as_many_rounds() -> None:
    graph = counted(3, SQUARED)
    assert [node.op for node in graph.nodes] == ["SQUARE"] * 3
    assert graph.nodes[0].inputs == graph.inputs
    assert graph.nodes[1].inputs == graph.nodes[0].outputs
    assert graph.outputs == graph.nodes[2].outputs
    assert {node.origin for node in graph.nodes} == {(0,)}


def test_a_loop_without_a_round_hands_on_what_it_is_given() -> None:
    graph = counted(0, SQUARED)
    assert [(node.op, node.inputs, node.outputs) for node in graph.nodes] == [("RESHAPE", graph.inputs, graph.outputs)]


def test_every_round_shares_the_body_s_constants() -> None:
    weights = Tensor("w", (4,), "float32", np.ones(4, np.float32))
    body = step(Node("MUL", (1, 5), (4,), origin=(1,)))
    graph = counted(5, Graph((*body.tensors, weights), body.nodes, body.inputs, body.outputs))
    assert len({node.inputs[1] for node in graph.nodes}) == 1


def test_a_loop_that_depends_on_the_input_stays() -> None:
    tensors = (
        Tensor("n", (), "int32"),
        Tensor("x", (4,), "float32"),
        Tensor("m", (), "int32"),
        Tensor("y", (4,), "float32"),
    )
    graph = Graph(tensors, (Node("WHILE", (0, 1), (2, 3), LOOP, origin=(0,)),), (0, 1), (3,))
    inlined = inline_subgraphs(graph, (graph, below(3), SQUARED))
    assert [node.op for node in inlined.nodes] == ["WHILE"]
    assert len(inlined.tensors) == len(graph.tensors)


def test_a_loop_that_never_ends_stays() -> None:
    still = step(Node("SQUARE", (1,), (4,), origin=(1,)))
    endless = Graph(still.tensors, still.nodes[1:], still.inputs, (0, 4))
    assert [node.op for node in counted(1, endless).nodes] == ["WHILE"]


def test_a_loop_of_too_many_nodes_stays(monkeypatch: Any) -> None:
    monkeypatch.setattr(module._Budget, "__init__", lambda self: self.__dict__.update(nodes=50, levels=9))
    assert [node.op for node in counted(100, SQUARED).nodes] == ["WHILE"]


def test_a_loop_makes_no_more_constants_than_there_is_room_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules["jitdelegate.passes.infer_shapes"], "MAX_FOLDED", 1000)
    doubled = step(Node("CONCATENATION", (1, 1), (4,), {"axis": 0}, origin=(1,)))
    tensors = (constant("x", [1.0] * 4, "float32"), constant("zero", 0), *doubled.tensors[3:])
    node = Node("WHILE", (1, 0), (2, 3), LOOP, origin=(0,))
    graph = Graph(tensors, (node,), (), (3,))
    inlined = inline_subgraphs(graph, (graph, below(20), doubled))
    assert sum(tensor.size for tensor in inlined.tensors if tensor.is_constant) < 2000


def test_nodes_that_lack_inputs_stay() -> None:
    tensors = (Tensor("x", (4,), "float32"), Tensor("y", (4,), "float32"))
    subgraph = Graph(tensors, (Node("EXP", (0,), (1,)),), (0,), (1,))
    attrs = dict.fromkeys(("then_subgraph_index", "else_subgraph_index", "decomposition_subgraph_index"), 1)
    for op, inputs in (("IF", ()), ("IF", (ABSENT, 0)), ("STABLEHLO_COMPOSITE", (ABSENT,)), ("WHILE", (0,))):
        graph = Graph(tensors, (Node(op, inputs, (1,), attrs),), (0,), (1,))
        assert [node.op for node in inline_subgraphs(graph, (graph, subgraph)).nodes] == [op]


def test_only_the_branch_that_is_taken_is_left() -> None:
    def branch(op: str) -> Graph:
        return Graph((Tensor("a", (4,), "float32"), Tensor("b", (4,), "float32")), (Node(op, (0,), (1,)),), (0,), (1,))

    attrs = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    for taken, op in ((True, "EXP"), (False, "ABS")):
        condition = Tensor("c", (), "bool", np.array(taken))
        tensors = (Tensor("x", (4,), "float32"), condition, Tensor("y", (4,), "float32"))
        graph = Graph(tensors, (Node("IF", (1, 0), (2,), attrs),), (0,), (2,))
        assert [node.op for node in inline_subgraphs(graph, (graph, branch("EXP"), branch("ABS"))).nodes] == [op]


def test_of_a_case_the_last_branch_is_left_for_numbers_that_none_has() -> None:
    branches = [
        Graph((Tensor("a", (4,), "float32"), Tensor("b", (4,), "float32")), (Node(op, (0,), (1,)),), (0,), (1,))
        for op in ("EXP", "ABS", "SQRT")
    ]
    for number, op in ((0, "EXP"), (1, "ABS"), (2, "SQRT"), (3, "SQRT"), (-1, "SQRT")):
        tensors = (Tensor("x", (4,), "float32"), constant("n", number), Tensor("y", (4,), "float32"))
        node = Node("STABLEHLO_CASE", (1, 0), (2,), {"branch_subgraph_indices": (1, 2, 3)})
        graph = Graph(tensors, (node,), (0,), (2,))
        assert [node.op for node in inline_subgraphs(graph, (graph, *branches)).nodes] == [op]


def test_a_composite_is_its_decomposition() -> None:
    tensors = (Tensor("x", (4,), "float32"), Tensor("y", (4,), "float32"))
    composite = Node("STABLEHLO_COMPOSITE", (0,), (1,), {"name": "odml.square", "decomposition_subgraph_index": 1})
    graph = Graph(tensors, (composite,), (0,), (1,))
    decomposition = Graph(tensors, (Node("SQUARE", (0,), (1,)),), (0,), (1,))
    assert [node.op for node in inline_subgraphs(graph, (graph, decomposition)).nodes] == ["SQUARE"]


def test_what_followed_operators_wrote_keeps_its_number() -> None:
    """Signatures and callers name tensors by the file's numbers."""
    for graph, answer in ((counted(3, SQUARED), 3), (counted(0, SQUARED), 3)):
        assert graph.outputs == (answer,)
        assert graph.writer[answer] is not None


def composite(decomposition: Graph, inputs: int = 1, outputs: int = 1, name: str = "odml.any", **attrs: Any) -> Graph:
    """A graph of one composite, all of whose tensors are f32[4]."""
    tensors = tuple(Tensor(f"t{k}", (4,), "float32") for k in range(inputs + outputs))
    attrs = {"name": name, "decomposition_subgraph_index": 1, **attrs}
    read, written = tuple(range(inputs)), tuple(range(inputs, inputs + outputs))
    graph = Graph(tensors, (Node("STABLEHLO_COMPOSITE", read, written, attrs, origin=(0,)),), read, written)
    return inline_subgraphs(graph, (graph, decomposition))


def test_one_value_that_a_subgraph_answers_twice_is_written_under_both_numbers() -> None:
    tensors = tuple(Tensor(name, (4,), "float32") for name in "ab")
    graph = composite(Graph(tensors, (Node("SQUARE", (0,), (1,)),), (0,), (1, 1)), outputs=2)
    assert [(node.op, node.inputs, node.outputs) for node in graph.nodes] == [
        ("SQUARE", (0,), (1,)),
        ("RESHAPE", (1,), (2,)),
    ]


def test_a_constant_that_a_subgraph_answers_is_the_output() -> None:
    graph = composite(Graph((Tensor("a", (4,), "float32"), constant("c", [1, 2, 3, 4], "float32")), (), (0,), (1,)))
    assert not graph.nodes
    assert graph.outputs == (1,)
    assert graph.tensors[1].data is not None


def test_an_argument_that_a_subgraph_hands_on_is_copied() -> None:
    graph = composite(Graph((Tensor("a", (4,), "float32"),), (), (0,), (0,)))
    assert [(node.op, node.inputs, node.outputs) for node in graph.nodes] == [("RESHAPE", (0,), (1,))]


def test_composites_within_composites_end_in_the_outermost_number() -> None:
    tensors = tuple(Tensor(name, (4,), "float32") for name in "abc")
    inner = Graph(tensors[:2], (Node("SQUARE", (0,), (1,)),), (0,), (1,))

    def call(number: int) -> Node:
        attrs = {"name": "odml.any", "decomposition_subgraph_index": number}
        return Node("STABLEHLO_COMPOSITE", (0,), (1,), attrs)

    outer = Graph(tensors, (call(2), Node("ABS", (1,), (2,))), (0,), (2,))
    graph = Graph(tensors[:2], (call(1),), (0,), (1,))
    inlined = inline_subgraphs(graph, (graph, outer, inner))
    assert [node.op for node in inlined.nodes] == ["SQUARE", "ABS"]
    assert inlined.nodes[1].inputs == inlined.nodes[0].outputs
    assert inlined.outputs == inlined.nodes[1].outputs == (1,)


def test_a_variable_of_a_body_is_the_same_one_in_every_round() -> None:
    body = step(Node("ADD", (1, 5), (4,), origin=(1,)))
    variable = Tensor("v", (4,), "float32", is_variable=True)
    graph = counted(3, Graph((*body.tensors, variable), body.nodes, body.inputs, body.outputs))
    assert len({node.inputs[1] for node in graph.nodes}) == 1


def test_shapes_are_followed_from_one_composite_into_the_next() -> None:
    """What the first one answers has another shape than the file says, and the second one asks for it."""
    pair = (Tensor("x", (1, 4), "float32"), Tensor("y", (1, 4), "float32"))
    first = Graph(pair, (Node("ABS", (0,), (1,)),), (0,), (1,))
    second = Graph(
        (Tensor("x", (1, 4), "float32"), Tensor("shape", (2,), "int32")), (Node("SHAPE", (0,), (1,)),), (0,), (1,)
    )
    tensors = (Tensor("x", (3, 4), "float32"), pair[1], Tensor("shape", (2,), "int32"))
    nodes = tuple(
        Node("STABLEHLO_COMPOSITE", (k,), (k + 1,), {"name": "odml.any", "decomposition_subgraph_index": k + 1})
        for k in range(2)
    )
    graph = Graph(tensors, nodes, (0,), (1, 2))
    inlined = inline_subgraphs(graph, (graph, first, second))
    assert inlined.tensors[1].shape == (3, 4)
    np.testing.assert_array_equal(inlined.tensors[2].data, [3, 4])


def test_hosted_graphs_keep_loops_and_lose_composites() -> None:
    tensors = (Tensor("x", (4,), "float32"), Tensor("y", (4,), "float32"))
    attrs = {"name": "odml.square", "decomposition_subgraph_index": 1}
    square = Graph(tensors, (Node("SQUARE", (0,), (1,)),), (0,), (1,))
    keeps = Graph((*tensors, Tensor("v", (4,), "float32", is_variable=True)), square.nodes, (0,), (1,))
    for decomposition, op in ((square, "SQUARE"), (keeps, "STABLEHLO_COMPOSITE")):
        graph = Graph(tensors, (Node("STABLEHLO_COMPOSITE", (0,), (1,), attrs),), (0,), (1,))
        assert [node.op for node in inline_subgraphs(graph, (graph, decomposition), hosted=True).nodes] == [op]
    loop = Graph(tensors, (Node("WHILE", (0,), (1,), LOOP),), (0,), (1,))
    assert inline_subgraphs(loop, (loop, square, square), hosted=True) is loop


def test_arguments_of_other_types_are_refused() -> None:
    body = step(Node("SQUARE", (1,), (4,)))
    tensors = list(body.tensors)
    tensors[0] = Tensor("i", (), "int64")
    assert [node.op for node in counted(2, Graph(tuple(tensors), body.nodes, body.inputs, body.outputs)).nodes] == [
        "WHILE"
    ]


def test_slices_that_shrink_to_nothing_are_left_out_of_concatenations() -> None:
    """How Keras writes one row of a list of rows: before, row, after."""
    tensors = (
        Tensor("x", (3, 4), "float32"),
        Tensor("row", (1, 4), "float32"),
        constant("begin", [0, 0]),
        constant("size", [0, 4]),
        Tensor("before", (1, 4), "float32"),
        Tensor("y", (1, 4), "float32"),
    )
    nodes = (Node("SLICE", (0, 2, 3), (4,)), Node("CONCATENATION", (4, 1), (5,), {"axis": 0}))
    lowered = passes.run(Graph(tensors, nodes, (0, 1), (5,)))
    row = np.arange(4, dtype=np.float32).reshape(1, 4)
    (found,) = run_graph(lowered, [np.zeros((3, 4), np.float32), row])
    np.testing.assert_array_equal(found, row)
