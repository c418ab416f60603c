"""Calls that use states come after requests that came before them, on every kind of session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.event import Event
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.partitioned_session import PartitionedSession
from tests.api import partial_models as partial
from tests.gpu.stub.programs import library
from tests.runtime.gate import place
from tests.runtime.test_partitioned_session import program_of
from tests.runtime.test_states import X, running_sums, scaled_sums
from tests.targets.test_reference_session import running_sum, session_of

Make = Callable[[], tuple[IOBinding, Sequence[np.ndarray]]]


@pytest.fixture
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """New sessions of one kind, each with its inputs."""
    partial.choose_loader(monkeypatch, "partitions")
    if request.param == "cpu":
        program = running_sums()
        return lambda: (Session(program), [X])
    if request.param == "reference":
        return lambda: (session_of(running_sum()), [X])
    if request.param == "cuda":
        driver = library()
        return lambda: (scaled_sums(driver), [])
    content = partial.remembering()
    parts, inputs = program_of(content), partial.rounds_for(content, 1)[0]
    return lambda: (PartitionedSession(parts, lambda each: Session(each, 1)), inputs)


def bound(session: IOBinding, inputs: Sequence[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
    outputs = [np.zeros(port.shape, port.dtype) for port in session.program.outputs]
    return session.bind([place(each) for each in (*inputs, *outputs)]), outputs


def run(session: IOBinding, inputs: Sequence[np.ndarray]) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in session.run(inputs)]


def run_bound(session: IOBinding, inputs: Sequence[np.ndarray]) -> list[bytes]:
    binding, outputs = bound(session, inputs)
    session.run_bound(binding)
    return [each.tobytes() for each in outputs]


def invoke(session: IOBinding, inputs: Sequence[np.ndarray]) -> list[bytes]:
    for position, value in enumerate(inputs):
        session.set_input(position, value)
    session.invoke()
    return [np.asarray(session.output_memory(at)).tobytes() for at in range(len(session.program.outputs))]


def read(session: IOBinding, _: Sequence[np.ndarray]) -> list[bytes]:
    return [session.read_state(0)]


def read_all(session: IOBinding, _: Sequence[np.ndarray]) -> list[bytes | None]:
    return session.states_so_far()


def write(session: IOBinding, inputs: Sequence[np.ndarray]) -> list[bytes]:
    state = session.program.states[0]
    session.write_state(0, np.full(state.nbytes // 4, 7, np.float32).tobytes())
    return [*run(session, inputs), session.read_state(0)]


def reset(session: IOBinding, inputs: Sequence[np.ndarray]) -> list[bytes]:
    session.reset_states(resources=True)
    return run(session, inputs)


@pytest.mark.parametrize("call", [run, run_bound, invoke, read, read_all, write, reset])
@pytest.mark.parametrize("make", ["cpu", "partitioned", "reference", "cuda"], indirect=True)
def test_a_call_that_uses_states_follows_requests_that_wait(make: Make, call: Callable[..., Any]) -> None:
    session, inputs = make()
    run(session, inputs)
    expected, left = call(session, inputs), session.read_state(0)
    session.close()
    session, inputs = make()
    (binding, _), first = bound(session, inputs), Event.create_managed()
    request = session.run_async(binding, [first])
    threading.Timer(0.05, first.signal).start()
    assert call(session, inputs) == expected
    request.wait()
    assert session.read_state(0) == left
    session.close()
