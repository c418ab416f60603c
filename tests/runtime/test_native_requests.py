"""Requests on native threads: several at a time, reported in order, whatever happens to their session meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, EventTimeoutError, ProgramError
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.cpu import requests as native
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.event import Event
from jitdelegate.runtime.memory import machine
from jitdelegate.runtime.requests import Requests
from tests.child import in_child
from tests.runtime import requests_in_flight
from tests.runtime.gate import gate_program, open_gate, place
from tests.runtime.test_requests import failure, until
from tests.runtime.test_session import native_threads
from tests.runtime.tiny import opened_from, tiny_program

pytestmark = pytest.mark.skipif(not machine(), reason="no machine code for this processor and system")


class Request:
    """One request of the gate program, closed at first."""

    def __init__(
        self,
        session: Session,
        needs: tuple[Event, ...] = (),
        after: tuple[Event, ...] = (),
        x: np.ndarray | None = None,
    ) -> None:
        self.x = np.zeros(2, np.int64) if x is None else x
        self.y = np.zeros(2, np.int64)
        self.event = session.run_async(session.bind([place(self.x), place(self.y)]), needs, after)

    def open(self, value: int = 1) -> None:
        open_gate(self.x, value)


def has_run(request: Request) -> bool:
    """Whether it has run soon."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end and not request.y[1]:
        time.sleep(0.001)
    return bool(request.y[1])


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_as_many_requests_run_at_a_time_as_asked_for(in_flight: int) -> None:
    session = Session(gate_program(), requests_in_flight=in_flight)
    requests = [Request(session) for _ in range(6)]
    for request in requests[1:]:
        request.open()
    assert [has_run(request) for request in requests] == [False, *([in_flight > 1] * 5)]
    assert not any(request.event.done for request in requests)  # the first has not ended
    requests[0].open()
    requests[-1].event.wait()
    assert all(request.event.done and request.y[0] == 3 for request in requests)
    session.close()


def test_a_thousand_requests_are_right_and_told_in_order() -> None:
    session = Session(gate_program(), requests_in_flight=4)
    requests = []
    for number in range(1, 1001):
        requests.append(Request(session, x=np.full(2, number)))
        done = [each.event.done for each in requests[-20:][::-1]]  # a later one that is done comes after all before
        assert done == sorted(done)
    for number, request in enumerate(requests, 1):
        request.event.wait()
        assert request.y[0] == 3 * number
    session.close()


def test_eight_threads_share_a_session() -> None:
    session = Session(gate_program(), requests_in_flight=2)
    wrong = []

    def call(first: int) -> None:
        requests = [Request(session, x=np.full(2, first + number)) for number in range(100)]
        for number, request in enumerate(requests):
            request.event.wait()
            if request.y[0] != 3 * (first + number):
                wrong.append((first, number))

    threads = [threading.Thread(target=call, args=(1000 * k + 1,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    session.close()


def test_a_request_waits_for_events_of_every_kind() -> None:
    session, other = Session(gate_program(), requests_in_flight=2), Session(gate_program())
    managed, own, foreign, gate = Event(), Request(session), Request(other), threading.Event()
    python = Requests().submit(lambda: bool(gate.wait(30)) and None)
    waiting = Request(session, (managed, own.event), (foreign.event, python), x=np.ones(2, np.int64))
    many = Request(session, tuple(Event() for _ in range(10)), x=np.ones(2, np.int64))
    for let in (managed.signal, own.open, foreign.open, gate.set):
        assert not has_run(waiting)
        let()
    waiting.event.wait()
    assert not has_run(many)
    other.close()
    session.close()
    assert "closed before the request ran" in failure(many.event)


def test_a_request_fails_where_an_event_fails_that_it_waits_for() -> None:
    session = Session(gate_program())

    def fail() -> None:
        raise DeviceError("on purpose")

    first = Request(session, (Requests().submit(fail),), x=np.ones(2, np.int64))
    second = Request(session, (first.event,), x=np.ones(2, np.int64))
    third = Request(Session(gate_program()), (first.event,), x=np.ones(2, np.int64))
    fine = Request(session, after=(first.event, third.event), x=np.ones(2, np.int64))
    fine.event.wait()
    assert failure(first.event).endswith("has failed: on purpose")
    assert all("on purpose" in failure(each.event) for each in (second, third))
    session.close()


def test_states_go_from_request_to_request_and_other_calls_wait() -> None:
    session = Session(gate_program(has_state=True), requests_in_flight=4)
    requests = [Request(session) for _ in range(5)]
    opener = threading.Timer(0.05, lambda: [request.open() for request in requests])
    opener.start()
    assert int.from_bytes(session.read_state(0), "little") == 5
    assert [int(request.y[1]) for request in requests] == [1, 2, 3, 4, 5]
    (y,) = session.run([np.ones(2, np.int64)])
    assert y.tolist()[1] == 6
    later = Request(session)
    threading.Timer(0.05, later.open).start()
    session.reset_states(resources=True)
    assert later.y[1] == 7
    fresh = Request(session, x=np.ones(2, np.int64))
    fresh.event.wait()
    assert fresh.y[1] == 1
    session.close()


class SlowPlace(Place):
    """Memory of a GPU, which a request of a CPU session reads on a Python thread, once the gate is open."""

    gate = threading.Event()

    def load(self, target: int, nbytes: int) -> None:
        self.gate.wait(30)
        super().load(target, nbytes)


def test_calls_wait_for_requests_on_a_gpu_s_memory_too() -> None:
    session = Session(gate_program(has_state=True))
    x, y = np.ones(2, np.int64), np.zeros(2, np.int64)
    threading.Timer(0.05, SlowPlace.gate.set).start()
    session.run_async(session.bind([SlowPlace(x.ctypes.data, x.nbytes, x, gpu=0), place(y)]))
    (later,) = session.run([x])
    assert (int(y[1]), later.tolist()[1]) == (1, 2)
    assert int.from_bytes(session.read_state(0), "little") == 2
    session.close()


def test_more_requests_than_fit_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "DEPTH", 4)
    session = Session(gate_program())
    requests = [Request(session) for _ in range(4)]
    threading.Timer(0.05, lambda: [request.open() for request in requests]).start()
    requests.append(Request(session, x=np.ones(2, np.int64)))
    assert requests[0].event.done
    requests[-1].event.wait()
    session.close()


def test_a_timeout_leaves_the_request_alone() -> None:
    session = Session(gate_program())
    request, others = Request(session), [Request(session, x=np.ones(2, np.int64)) for _ in range(3)]
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        request.event.wait(0.05)
    with pytest.raises(EventTimeoutError, match=r"0\.01 seconds"):
        others[-1].event.wait(0.01)
    assert time.monotonic() - start >= 0.06
    threading.Timer(0.02, request.open).start()
    request.event.wait(float("inf"))  # more than clocks count
    others[-1].event.wait(-1)
    with pytest.raises(DeviceError, match="only a managed event"):
        request.event.signal()
    session.close()


def test_awaiting_takes_one_thread_for_all_events() -> None:
    session = Session(gate_program(), requests_in_flight=2)
    requests = [Request(session) for _ in range(100)]

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until(requests[50].event), 0.02)
        before = native_threads()
        tasks = [asyncio.ensure_future(until(request.event)) for request in requests]
        await asyncio.sleep(0)
        assert native_threads() <= before + 1
        tasks[3].cancel()
        for request in requests:
            request.open()
        await asyncio.gather(*(task for task in tasks if task is not tasks[3]))
        await requests[3].event

    asyncio.run(main())
    session.close()


def test_close_waits_for_requests_and_fails_those_that_wait_for_others() -> None:
    session = Session(gate_program(), requests_in_flight=2)
    before = native_threads()
    running, stuck, late = Request(session), Request(session, (Event(),)), Request(session)
    threading.Timer(0.05, lambda: (running.open(), late.open())).start()
    session.close()
    assert (running.y[1], stuck.y[1], late.y[1]) == (1, 0, 1) or late.y[1] == 2
    running.event.wait(0)
    late.event.wait(0)
    assert "closed before the request ran" in failure(stuck.event)
    with pytest.raises(DeviceError, match="closed"):
        Request(session)
    end = time.monotonic() + 10
    while (
        native_threads() > before and time.monotonic() < end
    ):  # the system lists a thread a little longer than it runs
        time.sleep(0.001)
    assert native_threads() <= before


def test_what_a_request_reads_lives_until_it_has_run_and_no_longer() -> None:
    session = Session(gate_program())
    request = Request(session)
    x, y, session_lives = weakref.ref(request.x), weakref.ref(request.y), weakref.ref(session)
    address = request.x.ctypes.data
    event = request.event
    del request, session
    gc.collect()
    assert x() is not None and y() is not None and session_lives() is not None
    held = x()
    assert held is not None and held.ctypes.data == address
    open_gate(held)
    del held
    event.wait()
    assert x() is None and y() is None
    del event
    assert session_lives() is None


def test_a_session_that_is_dropped_with_all_events_finishes_its_requests() -> None:
    request = Request(Session(gate_program()))
    x, y = request.x, request.y
    threading.Timer(0.05, lambda: open_gate(x)).start()
    del request
    assert y[0] == 3


def test_requests_verify_weights_and_own_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)  # small weights are mapped
    path = tmp_path / "program"
    session = Session(opened_from(path, tiny_program()))
    x, y = np.ones(6, np.float32), np.zeros(6, np.float32)
    binding = session.bind([place(x), place(y)])
    assert session.shared is not None and session.shared.shared
    session.run_async(binding).wait()
    assert not session.shared.shared and y[0] == 3
    path.write_bytes(bytes(len(path.read_bytes())))
    session.run_async(binding).wait()
    assert y[0] == 4
    damaged = tiny_program()
    program = opened_from(tmp_path / "other", damaged)
    content = bytearray((tmp_path / "other").read_bytes())
    content[-1] ^= 1
    (tmp_path / "other").write_bytes(content)
    broken = Session(program)
    with pytest.raises(ProgramError):
        broken.run_async(broken.bind([place(x), place(y)]))
    session.close()
    broken.close()


def test_a_forked_child_fails_its_parents_requests_and_runs_its_own() -> None:
    session = Session(gate_program(has_state=True), requests_in_flight=2)
    done, running = Request(session, x=np.ones(2, np.int64)), Request(session)
    done.event.wait()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            done.event.wait(0)
            assert "forked this one" in failure(running.event)
            own = Request(session, x=np.ones(2, np.int64))
            own.event.wait(30)
            assert own.y[1] == 2  # after the only request that has run
            session.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    running.open()
    running.event.wait()
    session.close()


def test_an_interrupt_ends_the_waiting_only() -> None:
    def interrupt(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

    session = Session(gate_program())
    request = Request(session)
    before = signal.signal(signal.SIGALRM, interrupt)  # not SIGINT, which processes in the background ignore
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # more than once: the first one may come before the waiting
    with pytest.raises(KeyboardInterrupt):
        request.event.wait()
    signal.signal(signal.SIGALRM, before)
    request.open()
    request.event.wait()
    session.close()


@pytest.mark.parametrize("way", requests_in_flight.EXITS)
def test_python_exits_with_requests_in_flight(way: requests_in_flight.Way) -> None:
    done = in_child(requests_in_flight.end, way.__name__)
    assert (done.returncode, done.stderr) == (requests_in_flight.EXITS[way], "")
    assert done.stdout == "0"  # native threads have ended, before Python frees what they read


def test_a_chain_of_requests_of_two_sessions_keeps_no_event_alive() -> None:
    sessions = Session(gate_program()), Session(gate_program())
    last = Request(sessions[0])
    events = [weakref.ref(last.event)]
    for number in range(1, 1000):
        request = Request(sessions[number % 2], (last.event,))
        last.open()
        last = request
        events.append(weakref.ref(last.event))
    last.open()
    last.event.wait()
    assert sum(event() is not None for event in events) < 600  # those of two rings
    for session in sessions:
        session.close()


def test_a_long_chain_that_nobody_has_tidied_is_no_recursion() -> None:
    sessions = Session(gate_program()), Session(gate_program())
    chain = [Request(sessions[0])]
    while len(chain) < 2 * native.DEPTH - 2:
        chain.append(Request(sessions[len(chain) % 2], (chain[-1].event,)))
    last: Any = chain[-1].event
    first, second = (chain[place].event.requests for place in (0, 1))  # type: ignore[attr-defined]
    with first._lock, second._lock:  # as if other threads were about to
        for request in chain:
            request.open()
        last.requests.wait(last.goal, None)
        assert not last.may_fail()
    for session in sessions:
        session.close()


def test_close_waits_for_requests_that_need_earlier_ones() -> None:
    session = Session(gate_program(), requests_in_flight=2)
    first = Request(session)
    second = Request(session, (first.event,), x=np.ones(2, np.int64))
    assert not has_run(second)
    threading.Timer(0.1, first.open).start()
    session.close()
    second.event.wait(0)
    assert second.y[0] == 3
