"""Variables become inputs and outputs, or stay where they are with a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph, Model, Node, Tensor
from jitdelegate.ir.verify import verify
from jitdelegate.passes.functional_state import RESOURCE_OPS, functional_state, resource_problem
from jitdelegate.passes.support import unsupported
from jitdelegate.tflite.read import read
from tests.api.resource_models import streaming
from tests.ops.quantized_models import LstmModel
from tests.ops.recurrent_models import svdf

VALUE, HANDLE = Tensor("value", (2,), "float32"), Tensor("handle", (), "resource")
CONSTANT = replace(VALUE, data=np.array([1, 2], np.float32))
NAME = {"container": "", "shared_name": "v"}


def handle(index: int, name: str = "v") -> Node:
    return Node("VAR_HANDLE", (), (index,), {**NAME, "shared_name": name})


def read_variable(handle: int, value: int) -> Node:
    return Node("READ_VARIABLE", (handle,), (value,))


def assign(handle: int, value: int) -> Node:
    return Node("ASSIGN_VARIABLE", (handle, value), ())


CALL = Node("CALL_ONCE", (), (), {"init_subgraph_index": 1})
FIRST = Graph((HANDLE, CONSTANT), (handle(0), assign(0, 1)), (), ())
READ = (CALL, handle(1), read_variable(1, 2))


def model(*nodes: Node, outputs: tuple[int, ...] = (2,), further: tuple[Graph, ...] = ()) -> Model:
    """A main subgraph: tensor 0 is its input, 1 a handle, 2 and 3 are values; subgraph 1 assigns [1, 2] to `v`."""
    tensors = (VALUE, HANDLE, VALUE, VALUE, HANDLE, CONSTANT)
    return Model((Graph(tensors, nodes, (0,), outputs), FIRST, *further))


def rewritten(asked: Model) -> Graph:
    graph = functional_state(asked)
    verify(graph, "functional_state")
    return graph


def test_what_a_run_assigns_is_what_the_next_one_reads() -> None:
    graph = rewritten(model(*READ, Node("ADD", (0, 2), (3,)), assign(1, 3), outputs=(3,)))
    (state,) = graph.states
    assert [node.op for node in graph.nodes] == ["ADD"]
    assert graph.nodes[0].inputs == (0, state.before)
    assert (graph.inputs, graph.outputs, state.after) == ((0, state.before), (3, 3), 3)
    assert state.is_resource and state.initial is not None and state.initial.tolist() == [1, 2]
    assert (graph.given, graph.returned) == ((0,), (3,))


def test_a_variable_that_is_only_read_is_a_constant() -> None:
    graph = rewritten(model(*READ, Node("ADD", (0, 2), (3,)), outputs=(3,)))
    assert not graph.states
    data = graph.tensors[graph.nodes[0].inputs[1]].data
    assert data is not None and data.tolist() == [1, 2]


def test_a_value_that_is_read_after_it_was_assigned_is_the_new_one() -> None:
    graph = rewritten(model(CALL, handle(1), Node("NEG", (0,), (3,)), assign(1, 3), read_variable(1, 2), outputs=(2,)))
    assert [(node.op, node.inputs, node.outputs) for node in graph.nodes] == [
        ("NEG", (0,), (3,)),
        ("RESHAPE", (3,), (2,)),
    ]
    assert graph.returned == (2,)


def test_a_variable_that_every_run_assigns_first_is_no_state() -> None:
    asked = model(handle(1), Node("NEG", (0,), (3,)), assign(1, 3), read_variable(1, 2))
    graph = rewritten(replace(asked, graphs=asked.graphs[:1]))
    assert not graph.states
    assert (graph.returned, [node.op for node in graph.nodes]) == ((2,), ["NEG", "RESHAPE"])


def test_an_input_that_is_kept_as_it_is_gets_a_tensor_of_its_own() -> None:
    graph = rewritten(model(*READ, assign(1, 0), outputs=(2,)))
    (state,) = graph.states
    assert state.after not in graph.inputs
    assert graph.returned == (2,)
    assert [(node.op, node.outputs[0]) for node in graph.nodes] == [("RESHAPE", 2), ("RESHAPE", state.after)]


def test_variables_that_operators_update_become_one_more_output() -> None:
    graph = rewritten(read(svdf(1, 3, 2, rank=1, memory=4, bias=True)))
    (state,), (node,) = graph.states, graph.nodes
    assert (node.inputs[4], node.outputs[1]) == (state.before, state.after)
    assert state.initial is None and not state.is_resource
    assert not any(tensor.is_variable for tensor in graph.tensors)


def test_variables_of_int8_start_with_their_zero_point() -> None:
    graph = rewritten(read(LstmModel(zero=-7).content()))
    hidden, cell = graph.states
    assert hidden.initial is not None
    assert set(hidden.initial.flat) == {-7}
    assert hidden.initial.shape == graph.tensors[hidden.before].shape
    assert cell.initial is None


SHARED = Graph((HANDLE, VALUE), (handle(0), read_variable(0, 1)), (), (1,))
DYNAMIC = Graph((HANDLE, VALUE, VALUE), (handle(0), Node("NEG", (1,), (2,)), assign(0, 2)), (1,), ())
REFUSED = {
    "no CALL_ONCE gives the variable 'v' its first value": model(handle(1), read_variable(1, 2)),
    "comes from another operator than VAR_HANDLE": model(CALL, read_variable(1, 2)),
    "is used before CALL_ONCE sets it": model(*READ, CALL),
    "The variable 'v' is used before": model(handle(1), assign(1, 0), CALL, read_variable(1, 2)),
    "CALL_ONCE names subgraph 7": model(replace(CALL, attrs={"init_subgraph_index": 7})),
    "CALL_ONCE names subgraph 0": model(replace(CALL, attrs={"init_subgraph_index": 0})),
    "subgraph 2 does more than assign constants, it has NEG": model(
        replace(CALL, attrs={"init_subgraph_index": 2}), further=(DYNAMIC,)
    ),
    "goes to NEG": model(*READ, Node("NEG", (1,), (3,))),
    "goes to the model's output": model(*READ, outputs=(1,)),
    "The variable 'v' is shared with subgraph 2": model(*READ, assign(1, 0), further=(SHARED,)),
    "READ_VARIABLE has not 1 inputs and 1 outputs": model(*READ, Node("READ_VARIABLE", (), (3,))),
    "VAR_HANDLE has not 0 inputs and 1 outputs": model(*READ, Node("VAR_HANDLE", (), ())),
    "ASSIGN_VARIABLE has not 2 inputs and 0 outputs": model(*READ, Node("ASSIGN_VARIABLE", (1, -1), ())),
}


@pytest.mark.parametrize(("reason", "asked"), REFUSED.items(), ids=REFUSED.keys())
def test_variables_that_are_not_understood_stay_with_a_reason(reason: str, asked: Model) -> None:
    found = resource_problem(asked)
    assert found is not None and reason in found and found.endswith(".")
    graph = functional_state(asked)
    assert not graph.states
    assert [node.op for node in graph.nodes] == [node.op for node in asked.graphs[0].nodes]


def test_the_reason_goes_to_each_operator_on_resources() -> None:
    asked = read(streaming(initialized=False))
    reasons = dict(unsupported(asked, functional_state(asked)))
    ops = [node.op for node in asked.graphs[0].nodes]
    expected = "READ_VARIABLE: no CALL_ONCE gives the variable 'frames' its first value."
    assert {ops[position] for position, reason in reasons.items() if reason == expected} == {*RESOURCE_OPS} - {
        "CALL_ONCE"
    }


def test_a_graph_without_variables_stays_as_it_is() -> None:
    asked = model(Node("NEG", (0,), (2,)))
    assert functional_state(asked).nodes[0].inputs == (0,)
    assert resource_problem(asked) is None
