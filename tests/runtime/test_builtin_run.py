"""A program's run as a builtin function: threads take turns, and nothing runs in memory that was freed."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cpu import builtin_run
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import machine
from tests.child import in_child
from tests.runtime.gate import gate_program, open_gate, place
from tests.runtime.tiny import opened, tiny_program

pytestmark = pytest.mark.skipif(not machine(), reason="no machine code for this processor and system")

WAYS_TO_END = 5
SPINNING = 0.02
"""Seconds of a thread's processor time that nothing before the code takes."""


class Run:
    """One run of the gate program, closed at first, in a thread of `pool`."""

    def __init__(self, session: Session, pool: ThreadPoolExecutor) -> None:
        self.x, self.y = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self._session = session
        self._clock = 0
        self.ended: Future[None] = pool.submit(self._run)

    def _run(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._session.run_on([self.x.ctypes.data, self.y.ctypes.data])

    def wait(self) -> None:
        """Return once its code runs, which uses up processor time until the gate is open."""
        until(lambda: self._clock)
        until(lambda: time.clock_gettime(self._clock) > SPINNING)

    def open(self) -> None:
        open_gate(self.x)


@pytest.fixture
def session() -> Session:
    """Of the gate program, whose next run is a call of a builtin function and nothing else."""
    session = Session(gate_program())
    for _ in range(2):
        session.run([np.ones(2, np.int64)])
    assert session._ready is not None
    return session


def asleep(session: Session) -> bool:
    """Whether a thread sleeps until the run in progress has ended."""
    assert session._ready is not None
    return bool(session._ready._words[1] == 2)


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_threads_take_turns_while_others_go_on(session: Session) -> None:
    with ThreadPoolExecutor(3) as pool:
        first = Run(session, pool)
        first.wait()
        others = [Run(session, pool) for _ in range(2)]
        until(lambda: asleep(session))
        for other in others:
            other.open()
        assert not any(run.ended.done() for run in (first, *others))
        first.open()
    assert first.y[1] == 3 and sorted(other.y[1] for other in others) == [4, 5]


def test_without_memory_for_its_code_runs_go_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> None:
        raise DeviceError(f"no memory of {nbytes} bytes")

    session = Session(gate_program())
    with monkeypatch.context() as patch:
        patch.setattr(builtin_run, "_made", None)
        patch.setattr(builtin_run, "Memory", refuse)
        assert [session.run([np.ones(2, np.int64)])[0].tolist()[1] for _ in range(3)] == [1, 2, 3]
        assert session._ready is None
    assert session.run([np.ones(2, np.int64)])[0].tolist()[1] == 4
    assert session._ready is not None


def test_close_waits_for_a_run_and_later_ones_say_that_it_is_closed(session: Session) -> None:
    with ThreadPoolExecutor(2) as pool:
        run = Run(session, pool)
        run.wait()
        ready: Any = session._ready
        closing = pool.submit(session.close)
        until(lambda: ready._words[1] == 2)
        assert not closing.done()
        run.open()
        run.ended.result(10)
        closing.result(10)
    assert run.y[1] == 3
    session._ready = ready  # as a thread has it that read it before
    with pytest.raises(DeviceError, match="the session is closed"):
        session.run([np.ones(2, np.int64)])


def test_a_call_that_comes_after_a_pause_writes_to_no_io(session: Session) -> None:
    ready: Any = session._ready
    ready.pause()
    memory = session._memory
    assert memory is not None
    before = list(memory.io)
    assert ready.run(1, 2) == -1
    assert list(memory.io) == before
    ready.resume()
    session.close()


def test_states_are_exchanged_by_each_run_and_known_to_all_other_calls() -> None:
    session, runs = Session(gate_program(has_state=True)), 0
    for others in range(4):
        for _ in range(3 + others):
            runs += 1
            assert session.run([np.ones(2, np.int64)])[0].tolist() == [3, runs]
        assert session._ready is not None
        assert np.frombuffer(session.read_state(0), np.int64)[0] == runs and session._ready is None
    session.write_state(0, np.int64(40).tobytes())
    assert [session.run([np.ones(2, np.int64)])[0].tolist()[1] for _ in range(3)] == [41, 42, 43]
    session.reset_states(resources=True)
    assert [session.run([np.ones(2, np.int64)])[0].tolist()[1] for _ in range(3)] == [1, 2, 3]
    places = [place(np.ones(2, np.int64)), place(np.zeros(2, np.int64))]
    session.run_async(session.bind(places)).wait()
    assert [session.run([np.ones(2, np.int64)])[0].tolist()[1] for _ in range(3)] == [5, 6, 7]
    assert session._ready is None  # requests use the states too


@pytest.mark.parametrize("runs", [3, 4])
def test_a_forked_child_has_its_parents_states(runs: int) -> None:
    session = Session(gate_program(has_state=True))
    for _ in range(runs):
        session.run([np.ones(2, np.int64)])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if session.run([np.ones(2, np.int64)])[0].tolist()[1] == runs + 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.run([np.ones(2, np.int64)])[0].tolist()[1] == runs + 1


def test_a_fork_during_a_run_leaves_the_child_usable(session: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = Run(session, pool)
        run.wait()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if session.run([np.ones(2, np.int64)])[0].tolist()[0] == 3 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        run.open()


def end_during_runs(number: str) -> None:
    """Runs in a thread that Python does not wait for, and which finds the interpreter's lock gone."""
    session = Session(opened(tiny_program()))
    session.run([bytes(24)])
    begun = threading.Event()

    def call() -> None:
        while True:
            session.invoke()
            begun.set()

    _thread.start_new_thread(call, ())
    begun.wait()
    time.sleep(0.001 * int(number))


@pytest.mark.parametrize("number", range(WAYS_TO_END))
def test_a_process_ends_in_peace_during_runs(number: int) -> None:
    ended = in_child(end_during_runs, number)
    assert (ended.returncode, ended.stderr) == (0, "")
