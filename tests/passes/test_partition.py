"""How nodes are grouped: held against what LiteRT's interpreter itself makes of the same models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, Facts
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.engine.litert_delegate.trust import refusal
from jitdelegate.ir.graph import ABSENT, Graph, Node, State, Tensor
from jitdelegate.passes.partition import Subset, borders, extract, partition
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

Group = tuple[tuple[int, ...], set[int], set[int]]


class Claiming(DelegateClient):
    """Claims some nodes of a model, and never runs."""

    num_subgraphs = 1

    def __init__(self, graph: Graph, claimed: Sequence[int]) -> None:
        self._graph = graph
        self._claimed = tuple(claimed)

    def facts(self, subgraph: int) -> Facts:
        return Facts(len(self._graph.tensors), len(self._graph.nodes), ())

    def partitions(self, subgraph: int) -> Sequence[tuple[int, ...]]:
        return [self._claimed]

    def warn(self, sentence: str) -> None:
        raise AssertionError(sentence)


def groups_of_litert(content: bytes, graph: Graph, claimed: Sequence[int]) -> list[Group]:
    """Nodes, inputs and outputs of the partitions that LiteRT makes of these nodes, in the order in which they run."""
    if refusal(None):
        pytest.skip(refusal(None))
    before = set(callbacks.kernels)
    interpreter = Interpreter(model_content=content, experimental_delegates=[NativeDelegate(Claiming(graph, claimed))])
    made = [callbacks.kernels[number] for number in sorted(set(callbacks.kernels) - before)]
    constants = {index for index, tensor in enumerate(graph.tensors) if tensor.is_constant}
    found = [(kernel.nodes, set(kernel.inputs) - constants, set(kernel.outputs)) for kernel in made]
    del interpreter
    return found


def groups_of_ours(graph: Graph, claimed: Sequence[int]) -> list[Group]:
    found = []
    for subset in partition(graph.nodes, claimed):
        if subset.delegated:
            inputs, outputs = borders(graph, subset.nodes)
            found.append((subset.nodes, set(inputs), set(outputs)))
    return found


def random_model(dice: random.Random, count: int) -> bytes:
    """A model of `count` operators with one to three operands and one or two results, constants among the operands."""
    model = ModelBuilder()
    values = [model.input((2, 2)) for _ in range(dice.randint(1, 3))]
    axis, addend = model.constant(np.array(0, np.int32)), model.constant(np.ones((2, 2), np.float32))
    for _ in range(count):
        near = values[-dice.randint(1, len(values)) :]
        kind = dice.choice(("ABS", "ADD", "ADD_N", "UNPACK", "CONSTANT"))
        if kind == "UNPACK":
            halves = [model.tensor((1, 2)), model.tensor((1, 2))]
            model.node("SPLIT", [axis, dice.choice(near)], halves, options={"num_splits": 2})
            values.append(model.tensor((2, 2)))
            model.node("CONCATENATION", dice.sample(halves, 2), [values[-1]], options={"axis": 0})
        elif kind == "CONSTANT":
            values.append(model.op("ADD", [dice.choice(near), addend], (2, 2)))
        else:
            operands = {"ABS": 1, "ADD": 2, "ADD_N": 3}[kind]
            values.append(model.op(kind, [dice.choice(near) for _ in range(operands)], (2, 2)))
    model.output(*dice.sample(values, dice.randint(1, min(4, len(values)))), values[-1])
    return model.finish()


@pytest.mark.parametrize("seed", range(60))
def test_litert_makes_the_same_groups_of_random_graphs(seed: int) -> None:
    dice = random.Random(seed)
    content = random_model(dice, dice.randint(1, 40))
    graph = read(content).graphs[0]
    share = dice.choice((0.2, 0.5, 0.8, 1.0))
    claimed = [position for position in range(len(graph.nodes)) if dice.random() < share] or [0]
    assert groups_of_litert(content, graph, claimed) == groups_of_ours(graph, claimed)


def test_litert_makes_the_same_groups_of_operators_that_no_data_connects() -> None:
    model = ModelBuilder()
    value = model.input((1, 2))
    handle = model.op("VAR_HANDLE", [], (), dtype="resource", options={"container": "", "shared_name": "kept"})
    model.node("ASSIGN_VARIABLE", [handle, value], [])
    doubled = model.op("ADD", [value, value], (1, 2))
    before = model.op("READ_VARIABLE", [handle], (1, 2))
    model.node("ASSIGN_VARIABLE", [handle, doubled], [])
    model.output(model.op("MUL", [before, doubled], (1, 2)), model.op("ABS", [value], (1, 2)))
    content = model.finish()
    graph = read(content).graphs[0]
    for claimed in ([2, 5], [2, 5, 6], [2, 6], [5], [6]):
        assert groups_of_litert(content, graph, claimed) == groups_of_ours(graph, claimed), claimed


def chain(*reads: tuple[int, ...]) -> list[Node]:
    """Nodes that each write the tensor after their own position, and read these; tensor 0 is the input."""
    return [Node("ANY", operands, (position + 1,)) for position, operands in enumerate(reads)]


def test_the_kind_of_a_subset_is_that_of_the_first_node_that_is_ready() -> None:
    nodes = chain((0,), (1,), (0,), (2, 3))
    assert partition(nodes, [1, 2]) == [Subset((0,), False), Subset((1, 2), True), Subset((3,), False)]
    assert partition(nodes, [0, 2, 3]) == [Subset((0, 2), True), Subset((1,), False), Subset((3,), True)]


def test_operands_that_are_absent_and_nodes_without_results_wait_for_nobody() -> None:
    nodes = [Node("ANY", (ABSENT, 0), (1,)), Node("ANY", (1,), ()), Node("ANY", (), (2,))]
    assert partition(nodes, range(3)) == [Subset((0, 1, 2), True)]
    assert partition(nodes, []) == [Subset((0, 1, 2), False)]
    assert partition([], []) == []


@pytest.mark.parametrize("step", [1, 2, 3])
def test_every_node_is_in_one_subset_after_all_that_it_reads(step: int) -> None:
    dice = random.Random(step)
    nodes = chain(*((dice.randint(0, position),) for position in range(5000)))
    delegated = range(0, 5000, step)
    ran: set[int] = set()
    kinds = []
    for subset in partition(nodes, delegated):
        assert ran.isdisjoint(subset.nodes)
        ran.update(subset.nodes)
        assert ran.issuperset(nodes[position].inputs[0] - 1 for position in subset.nodes if nodes[position].inputs[0])
        kinds.append(subset.delegated)
    assert ran == set(range(5000))
    assert all(one != other for one, other in pairwise(kinds))


def test_a_deep_chain_of_both_kinds_by_turns_has_a_subset_for_each_node() -> None:
    nodes = chain(*((position,) for position in range(5000)))
    subsets = partition(nodes, range(0, 5000, 2))
    assert subsets == [Subset((position,), position % 2 == 0) for position in range(5000)]


def graph_of(nodes: Sequence[Node], outputs: tuple[int, ...], constants: tuple[int, ...] = ()) -> Graph:
    count = 1 + max(index for node in nodes for index in (*node.inputs, *node.outputs))
    data = np.zeros((), np.float32)
    tensors = [Tensor(f"t{i}", (), "float32", data if i in constants else None) for i in range(count)]
    return Graph(tuple(tensors), tuple(nodes), (0,), outputs)


def test_borders_are_what_others_write_and_read_and_the_outputs_of_the_graph() -> None:
    nodes = [
        Node("A", (0, 1, ABSENT), (2,)),
        Node("B", (2, 2), (3, 4)),
        Node("C", (4, 1), (5,)),
        Node("D", (3, 5, 0), (6,)),
    ]
    graph = graph_of(nodes, outputs=(6, 2), constants=(1,))
    assert borders(graph, (0, 1)) == ((0,), (2, 3, 4))
    assert borders(graph, (1, 2)) == ((2,), (3, 5))
    assert borders(graph, (3,)) == ((0, 3, 5), (6,))
    assert borders(graph, (0, 1, 2, 3)) == ((0,), (2, 6))


def test_what_a_node_writes_for_nobody_is_no_border() -> None:
    graph = graph_of([Node("A", (0,), (1, 2)), Node("B", (1,), (3,))], outputs=(3,))
    assert borders(graph, (0,)) == ((0,), (1,))


def test_an_extract_has_its_own_nodes_in_order_and_the_states_that_it_updates() -> None:
    nodes = [Node("A", (0, 1), (2, 5)), Node("B", (2,), (3,)), Node("C", (3, 4), (6, 7))]
    states = (State(1, 5), State(4, 7))
    graph = graph_of(nodes, outputs=(6, 5, 7))
    graph = Graph(graph.tensors, graph.nodes, (0, 1, 4), graph.outputs, states=states)
    first = extract(graph, (1, 0), (0, 1), (3, 5))
    assert first.nodes == graph.nodes[:2]
    assert (first.inputs, first.outputs, first.states) == ((0, 1), (3, 5), states[:1])
    assert (first.given, first.returned) == ((0,), (3,))
    last = extract(graph, (2,), (3,), (6,))
    assert (last.inputs, last.outputs, last.states) == ((3, 4), (6, 7), states[1:])
    assert (last.given, last.returned) == ((3,), (6,))
