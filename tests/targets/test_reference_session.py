"""The reference target's program and session: what is written, what is refused when read, and states."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import getitem

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.ir.graph import Graph, State
from jitdelegate.targets.reference.evaluate import evaluate
from jitdelegate.targets.reference.serialize import serialize
from jitdelegate.targets.reference.session import ReferenceSession
from tests.passes.graphs import Builder, lowered
from tests.targets.random_graphs import graph_of
from tests.targets.reference_execute import program_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def running_sum(*, is_resource: bool = False) -> Graph:
    """y = 3 * x + the sum of all before, beginning with 1."""
    model = Builder()
    x, before = model.input(2, 3), model.input(2, 3)
    scaled = model.op("MUL", [x, model.constant(np.full((2, 3), 3))], (2, 3))
    total = model.op("ADD", [scaled, before], (2, 3))
    copied = model.op("RELU", [total], (2, 3))
    state = State(before, total, np.ones((2, 3), np.float32), is_resource)
    return replace(lowered(model.finish(copied, total)), states=(state,))


def session_of(graph: Graph) -> ReferenceSession:
    return ReferenceSession(program_of(graph))


def test_one_run_gives_outputs_and_what_it_leaves_in_the_states() -> None:
    (output,), (state,) = evaluate(running_sum(), [X], [X])
    np.testing.assert_array_equal(output, 4 * X)
    np.testing.assert_array_equal(state, 4 * X)


def test_states_go_on_and_begin_again() -> None:
    session = session_of(running_sum())
    assert session.states_so_far() == [None]
    for sums in (1, 2):
        np.testing.assert_array_equal(session.run([X])[0], 3 * sums * X + 1)
    assert session.read_state(0) == (6 * X + 1).tobytes()
    session.reset_states(resources=False)
    assert session.read_state(0) == np.ones(6, np.float32).tobytes()
    session.write_state(0, X.tobytes())
    np.testing.assert_array_equal(session.run([X])[0], 4 * X)


def test_resources_are_reset_only_on_request() -> None:
    session = session_of(running_sum(is_resource=True))
    session.run([X])
    session.reset_states(resources=False)
    assert session.states_so_far() != [None]
    session.reset_states(resources=True)
    assert session.states_so_far() == [None]


def test_a_run_may_be_computed_again_until_it_is_advanced() -> None:
    session = session_of(running_sum())
    session.set_input(0, X)
    places = [session.input_memory(0), session.output_memory(0)]
    addresses = [np.asarray(place).ctypes.data for place in places]
    session.compute(addresses)
    session.compute(addresses)
    assert session.states_so_far() == [None]
    session.advance()
    assert session.states_so_far() == [(3 * X + 1).tobytes()]


def test_another_session_goes_on_with_memory_and_states() -> None:
    first, second = session_of(running_sum()), session_of(running_sum())
    first.set_input(0, X)
    first.invoke()
    second.take_over(first)
    first.close()
    second.invoke()
    np.testing.assert_array_equal(second.output_memory(0), 6 * X + 1)


def test_a_closed_session_runs_no_more() -> None:
    session = session_of(running_sum())
    session.close()
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.run([X])


def test_equal_graphs_give_equal_bytes() -> None:
    assert serialize(lowered(graph_of(3))) == serialize(lowered(graph_of(3)))


def test_constants_that_nobody_reads_are_left_out() -> None:
    graph = lowered(graph_of(3))
    unread = replace(graph.tensors[0], data=np.zeros(1000, np.float32), shape=(1000,))
    (_, constants), (_, others) = serialize(graph), serialize(replace(graph, tensors=(*graph.tensors, unread)))
    assert others == constants


def test_damaged_weights_are_refused() -> None:
    program = program_of(running_sum())
    program.weights = bytes(len(program.weights))
    with pytest.raises(ProgramError, match="weights"):
        ReferenceSession(program)


TENSORS, NODES, INPUTS, OUTPUTS = range(4)
SHAPE, DTYPE, OFFSET = 1, 2, 3  # of a tensor
READ, FORM = 1, 4  # of a node
DAMAGE = {
    "an index that is a text": ((NODES, 0, READ, 0), "x", "'x'"),
    "a size that is a truth value": ((TENSORS, 0, SHAPE, 0), True, "True"),
    "a shape that is a number": ((TENSORS, 0, SHAPE), 5, "expected a list"),
    "a node that reads what is not there": ((NODES, 0, READ, 0), 99, "does not exist"),
    "an output that is not there": ((OUTPUTS, 0), 99, "never written"),
    "an input that is another": ((INPUTS,), [1, 1], "before it is written"),
    "a form of no known class": ((NODES, 0, FORM, 0), "System", "System"),
    "a form that is an expression": ((NODES, 0, FORM), ["Arg", 0], "Arg"),
    "a form without fields": ((NODES, 0, FORM), ["Map"], "zip"),
    "a constant beyond the weights": ((TENSORS, 2, OFFSET), 1 << 40, "buffer"),
    "a constant of no known type": ((TENSORS, 2, DTYPE), "float33", "float33"),
    "an input of another size": ((TENSORS, 0, SHAPE), [9, 9], "bytes"),
}
"""Name -> the place in the JSON, what stands there instead, and what the message says of it."""


@pytest.mark.parametrize("name", DAMAGE)
def test_code_that_is_no_graph_of_the_program_is_refused(name: str) -> None:
    (*path, last), value, message = DAMAGE[name]
    program = program_of(running_sum())
    content = json.loads(program.code)
    reduce(getitem, path, content)[last] = value
    program.code = json.dumps(content).encode()
    with pytest.raises(ProgramError, match=message):
        ReferenceSession(program)


@pytest.mark.parametrize("code", [b"", b"\xff", b"[" * 100_000, b"{}"])
def test_code_that_is_no_json_is_refused(code: bytes) -> None:
    program = program_of(running_sum())
    program.code = code
    with pytest.raises(ProgramError, match="no graph"):
        ReferenceSession(program)
