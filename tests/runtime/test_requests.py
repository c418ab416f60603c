"""Requests on a Python thread: their order, errors, events, and how they end."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jitdelegate.errors import DeviceError, EventTimeoutError
from jitdelegate.runtime import worker
from jitdelegate.runtime.event import Event
from jitdelegate.runtime.requests import Requests
from tests.child import in_child


class Gate:
    """A run that begins and then waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered, self.left = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.left.wait(30)


def test_requests_run_in_order_and_their_events_happen_in_order() -> None:
    requests, ran, gate = Requests(), list[int](), Gate()
    first = requests.submit(gate)
    events = [requests.submit(lambda number=number: ran.append(number)) for number in range(1000)]  # type: ignore[misc]
    assert not first.done and not events[0].done and not requests.is_idle
    gate.left.set()
    events[-1].wait()
    assert ran == list(range(1000)) and all(event.done for event in events) and first.done


def test_an_error_surfaces_at_its_own_event_every_time() -> None:
    requests = Requests()

    def fail() -> None:
        raise DeviceError("on purpose")

    before, failed, after = requests.submit(int), requests.submit(fail), requests.submit(int)
    after.wait(30)
    before.wait(0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="on purpose"):
            failed.wait()
    with pytest.raises(DeviceError, match="on purpose"):
        asyncio.run(until(failed))
    assert failed.done


async def until(event: Event) -> None:
    await event


def test_a_request_waits_for_events_and_fails_where_they_fail() -> None:
    requests, managed, other = Requests(), Event.create_managed(), Requests()
    ran: list[str] = []
    event = requests.submit(lambda: ran.append("second"), [managed])
    with pytest.raises(TimeoutError):
        event.wait(0.1)
    with pytest.raises(EventTimeoutError):
        event.wait(0)
    ran.append("first")
    managed.signal()
    managed.signal()
    event.wait()
    assert ran == ["first", "second"]

    def fail() -> None:
        raise DeviceError("on purpose")

    dependent = requests.submit(lambda: ran.append("never"), [other.submit(fail)])
    with pytest.raises(DeviceError, match=r"had to wait for has failed: on purpose"):
        dependent.wait()
    assert len(ran) == 2
    requests.submit(lambda: ran.append("third"), after=[dependent]).wait()
    assert ran[2] == "third"


def test_close_finishes_what_can_run_and_fails_what_waits_for_events() -> None:
    requests, gate, ran = Requests(), Gate(), list[int]()
    events = [requests.submit(gate), requests.submit(lambda: ran.append(1))]
    stuck = requests.submit(lambda: ran.append(2), [Event()])
    last = requests.submit(lambda: ran.append(3))
    closing = threading.Thread(target=requests.close)
    closing.start()
    gate.left.set()
    closing.join(30)
    assert not closing.is_alive() and ran == [1, 3] and events[1].done and last.done
    with pytest.raises(DeviceError, match="closed before the request ran"):
        stuck.wait()
    with pytest.raises(DeviceError, match="the model is closed"):
        requests.submit(int)


def test_awaiting_blocks_no_loop_and_survives_cancelling() -> None:
    requests, gate = Requests(), Gate()
    events = [requests.submit(gate), *(requests.submit(int) for _ in range(50))]

    troubles: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(events[-1], 0.05)
        task = asyncio.ensure_future(until(events[0]))
        await asyncio.sleep(0)
        task.cancel()
        gate.left.set()
        await asyncio.gather(*events)
        await events[0]

    asyncio.run(main())
    assert troubles == []


def test_a_loop_that_is_closed_before_the_end_is_left_alone() -> None:
    requests, gate = Requests(), Gate()
    event = requests.submit(gate)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(until(event), 0.05))
    gate.left.set()
    event.wait()
    requests.submit(int).wait(30)


def test_the_thread_ends_when_idle_and_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "IDLE", 0.01)
    requests = Requests()
    for _ in range(3):
        requests.submit(int).wait()
        while requests._worker._thread:
            time.sleep(0.001)
    assert id(requests._worker) not in worker._serving


def test_a_forked_child_fails_the_requests_of_its_parent_and_makes_its_own() -> None:
    requests, gate = Requests(), Gate()
    running, waiting = requests.submit(gate), requests.submit(int)
    assert gate.entered.wait(30)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert all("forked this one" in failure(event) for event in (running, waiting))
            requests.submit(int).wait(30)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.left.set()
    waiting.wait(30)


def failure(event: Event) -> str:
    with pytest.raises(DeviceError) as caught:
        event.wait(0)
    return str(caught.value)


last: Any = None
"""A request that lives until the process ends."""


def end_while_running(waits: str) -> None:
    global last

    def run(requests: Requests, begun: threading.Event) -> None:
        begun.set()
        assert requests._worker is not None
        while not requests._worker.is_ending:
            time.sleep(0.001)
        os.write(1, b"ran, ")

    def tell() -> None:
        try:
            last.wait(0)
        except RuntimeError as error:
            os.write(1, str(error).encode())

    for requests in (Requests(), Requests()):
        begun = threading.Event()
        requests.submit(partial(run, requests, begun))
        begun.wait()
    last = requests.submit(lambda: os.write(1, b"never, "), [Event()] if waits else [])
    last._when_done(tell)


@pytest.mark.parametrize("waits", ["", "for an event"])
def test_python_exits_after_the_run_that_runs(waits: str) -> None:
    done = in_child(end_while_running, waits)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("ran, ") == 2 and "Python exited before the request ran" in done.stdout
    assert "never" not in done.stdout


def test_an_interrupt_while_waiting_leaves_the_request_alone() -> None:
    requests, gate = Requests(), Gate()
    event = requests.submit(gate)
    threading.Timer(0.1, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        event.wait()
    gate.left.set()
    event.wait()


def interrupt() -> None:
    import signal

    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def submit_many(requests: Requests, count: int, run: Callable[[], None]) -> None:
    for _ in range(count):
        requests.submit(run)


def test_many_threads_submit() -> None:
    requests, ran = Requests(), list[int]()
    threads = [threading.Thread(target=submit_many, args=(requests, 200, lambda: ran.append(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests.submit(int).wait(30)
    assert len(ran) == 1600
