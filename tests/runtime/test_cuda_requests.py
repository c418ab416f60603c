"""Requests on a GPU's stream, on the stub driver, whose device does nothing before somebody looks or waits."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.runtime.event import Event
from tests.gpu.stub import library as stub
from tests.gpu.stub.install import install
from tests.gpu.stub.library import Library, Value
from tests.gpu.stub.memory import DeviceMemory
from tests.gpu.stub.programs import KERNELS, SCALE, SHIFT, library
from tests.runtime.gate import place
from tests.runtime.test_cuda_session import other_stream, session
from tests.runtime.test_requests import failure


class Request:
    """x[6] -> y = x * SCALE + SHIFT."""

    def __init__(self, running: CudaSession, value: float, *needs: Event) -> None:
        self.x, self.y = np.full(6, value, np.float32), np.zeros(6, np.float32)
        self.event = running.run_async(running.bind([place(self.x), place(self.y)]), needs)


def pinned(running: CudaSession) -> tuple[Place, Place]:
    return running.make_place(0), running.make_place(1)


def array(where: Place) -> np.ndarray:
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 6).from_address(where.address))


def halted() -> tuple[Library, CudaSession]:
    """A session on a device that does nothing until somebody waits."""
    driver = library()
    running = session(driver)
    driver.is_halted = True
    return driver, running


def test_a_request_is_enqueued_and_nobody_waits() -> None:
    driver, running = halted()
    first = Request(running, 1)  # captures the graph
    before = driver.calls.copy()
    second = Request(running, 2)
    made = driver.calls - before
    assert made["cuGraphLaunch"] == made["cuEventRecord"] == made["cuEventCreate"] == 1
    assert not made["cuStreamSynchronize"] and not made["cuEventSynchronize"]
    assert not first.event.done and not second.event.done
    with pytest.raises(TimeoutError):
        second.event.wait(0.01)
    second.event.wait()
    assert first.event.done and second.y[0] == np.float32(2 * SCALE + SHIFT)
    first.event.wait()
    assert first.y[0] == np.float32(SCALE + SHIFT)
    del first, second
    running.close()
    gc.collect()
    assert driver.leaks() == []


def test_many_requests_are_right_and_end_in_order() -> None:
    running = session(library())
    requests = []
    for number in range(300):
        requests.append(Request(running, number))
        done = [each.event.done for each in requests[-10:][::-1]]
        assert done == sorted(done)
    for number, request in enumerate(requests):
        request.event.wait()
        assert request.y[5] == np.float32(number) * np.float32(SCALE) + np.float32(SHIFT)
    running.close()


def test_requests_in_pinned_memory_follow_each_other_in_the_stream() -> None:
    driver, running = halted()
    x, y = pinned(running)
    z = running.make_place(1)
    array(x)[:] = 1
    first = running.run_async(running.bind([x, y]))
    second = running.run_async(running.bind([y, z]), [first])
    assert driver.calls["cuStreamWaitEvent"] == 1 and not first.done and not second.done
    second.wait()
    assert array(z)[0] == np.float32(np.float32(SCALE + SHIFT) * SCALE + SHIFT)


def test_a_request_waits_for_events_of_the_host_and_later_ones_for_it() -> None:
    _, running = halted()
    managed = Event.create_managed()
    first, second = Request(running, 1, managed), Request(running, 2)
    with pytest.raises(TimeoutError):
        second.event.wait(0.05)
    managed.signal()
    second.event.wait()
    assert first.event.done and first.y[0] == np.float32(SCALE + SHIFT)

    failed = Event()
    failed._finish(DeviceError("on purpose"))
    assert "on purpose" in failure_of(Request(running, 1, failed).event)


def failure_of(event: Event) -> str:
    event._block(30)
    return failure(event)


def test_events_are_made_of_cuda_s(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, library())
    running = session(driver)
    driver.is_halted = True
    stream = other_stream(driver)
    written: list[int] = []
    driver.live[stream].pending.append(lambda: written.append(1))
    event = Event.from_cuda_stream(stream)
    again = Event.from_cuda_event(event.mark._handle)  # type: ignore[attr-defined]
    assert not event.done and not again.done
    x, y = pinned(running)
    array(x)[:] = 1
    request = running.run_async(running.bind([x, y]), [event])
    assert not written and not request.done
    request.wait()
    assert written and event.done and again.done
    with pytest.raises(DeviceError, match="only a managed event"):
        event.signal()
    later = Event.from_cuda_stream(stream)
    asyncio.run(until_done(later))


async def until_done(event: Event) -> None:
    await event


def test_an_error_of_the_device_surfaces_at_the_event_and_later_requests_say_so() -> None:
    def shift(values: list[Value], memory: DeviceMemory) -> None:
        if faults:
            raise IndexError(faults.pop())
        KERNELS["shift"](values, memory)

    faults: list[str] = []
    driver = library(KERNELS | {"shift": shift})
    running = session(driver)
    driver.fail("cuGraphLaunch", stub.OUT_OF_MEMORY)
    with pytest.raises(DeviceError, match="cuGraphLaunch"):
        Request(running, 2)
    after = Request(running, 3)
    after.event.wait()
    assert after.y[0] == np.float32(3 * SCALE + SHIFT)
    faults.append("an address outside")
    request = Request(running, 1)
    with pytest.raises(DeviceError, match="failed with CUDA_ERROR_ILLEGAL_ADDRESS"):
        request.event.wait()
    assert "ILLEGAL_ADDRESS" in failure(request.event)
    with pytest.raises(DeviceError, match="refuses all further work of a process"):
        Request(running, 4)


def test_close_waits_and_events_of_closed_sessions_have_happened() -> None:
    _, running = halted()
    request = Request(running, 1)
    running.close()
    assert request.event.done and request.y[0] == np.float32(SCALE + SHIFT)
    request.event.wait(0)
    with pytest.raises(DeviceError, match="closed"):
        Request(running, 1)


def test_what_the_gpu_uses_lives_until_it_is_done() -> None:
    _, running = halted()
    request = Request(running, 1)
    y = request.y
    memory = weakref.ref(request.x)
    del request
    gc.collect()
    assert memory() is not None and not y[0]
    Request(running, 2).event.wait()
    assert y[0] == np.float32(SCALE + SHIFT)
    Request(running, 2).event.wait()
    assert memory() is None


def test_awaiting_takes_one_thread_for_all_requests() -> None:
    _, running = halted()
    requests = [Request(running, number) for number in range(20)]

    async def main() -> None:
        before = threading.active_count(), len(threading.enumerate())
        await asyncio.gather(*(until_done(request.event) for request in requests))
        assert (threading.active_count(), len(threading.enumerate())) <= (before[0] + 1, before[1] + 1)

    asyncio.run(main())
    assert all(request.y[0] == np.float32(n * SCALE + SHIFT) for n, request in enumerate(requests))


def test_a_request_on_what_another_leaves_in_pageable_memory_waits_for_the_copy() -> None:
    driver, running = halted()
    x, y, z = np.ones(6, np.float32), np.zeros(6, np.float32), np.zeros(6, np.float32)
    first = running.run_async(running.bind([place(x), place(y)]))
    second = running.run_async(running.bind([place(y), place(z)]), [first])
    assert not first.done and not second.done
    driver.is_halted = False
    second.wait(30)
    assert z[0] == np.float32(np.float32(SCALE + SHIFT) * SCALE + SHIFT)
