"""The primary context: one for the process, current only where it is needed, and kind to whoever else uses the GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from tests.gpu.stub import library as stub
from tests.gpu.stub.library import CAPTURE_GLOBAL, CAPTURE_RELAXED, CAPTURE_THREAD_LOCAL, Library
from tests.gpu.stub.programs import EXPECTED, X, library, opened, scale_and_shift
from tests.runtime.test_cuda_session import session

HOLDS = ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2")


def holds(driver: Library) -> tuple[int, ...]:
    """How often the context was retained and released."""
    return tuple(driver.calls[name] for name in HOLDS)


class OtherLibrary:
    """Another library of this process, which uses the GPU by the driver's own calls.

    Attributes:
        stream: one that it made.
    """

    def __init__(self, driver: Library) -> None:
        self._driver = driver
        self._device = Device(Driver(driver), 0)
        self._handle = self._device.driver.retain_context(0)
        with self.current():
            self.stream = self._device.driver.create_stream()

    @contextmanager
    def current(self) -> Iterator[None]:
        self._device.driver.push_context(self._handle)
        try:
            yield
        finally:
            self._device.driver.pop_context()

    @contextmanager
    def capture(self, mode: int) -> Iterator[list[int]]:
        """Everything in here is its capture; yields a list that has the number of the graph's nodes then."""
        counted: list[int] = []
        with self.current():
            assert self._driver.cuStreamBeginCapture_v2(self.stream, mode) == 0
        yield counted
        with self.current():
            graph = self._device.driver.end_capture(self.stream)
            counted.append(len(self._driver.live[graph].nodes))
            self._device.driver.destroy_graph(graph)


@pytest.fixture
def other(driver: Library) -> OtherLibrary:
    """Another library on the driver of the test."""
    return OtherLibrary(driver)


def test_the_context_is_retained_once_for_all_sessions_and_never_released(driver: Library) -> None:
    for _ in range(3):
        running = session(driver)
        running.run([X])
        running.close()
    with pytest.raises(DeviceError):
        CudaSession(opened(scale_and_shift(features="sm_80")), Device(Driver(driver), 0))
    assert holds(driver) == (1, 0)
    assert driver.is_active and driver.leaks() == []


def test_devices_have_a_context_each() -> None:
    driver = library(devices=2)
    for ordinal in (0, 1, 0, 1):
        CudaSession(opened(scale_and_shift()), Device(Driver(driver), ordinal)).close()
    assert holds(driver) == (2, 0)


def test_threads_that_open_at_once_retain_the_context_once(driver: Library) -> None:
    device, together = Device(Driver(driver), 0), threading.Barrier(4)

    def hold(_: int) -> int:
        together.wait()
        return id(hold_context(device))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(hold, range(4)))) == 1
    assert holds(driver) == (1, 0)


def test_a_context_that_cannot_be_made_is_tried_again(driver: Library) -> None:
    driver.fail("cuDevicePrimaryCtxRetain", stub.OUT_OF_MEMORY)
    with pytest.raises(DeviceError, match="cuDevicePrimaryCtxRetain failed with CUDA_ERROR_OUT_OF_MEMORY"):
        session(driver)
    np.testing.assert_array_equal(np.asarray(session(driver).run([X])[0]), EXPECTED)


def test_another_librarys_use_of_the_context_is_left_alone(driver: Library, other: OtherLibrary) -> None:
    session(driver).close()
    assert driver.contexts == 2  # the other's hold and ours
    with other.current():
        assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    np.testing.assert_array_equal(np.asarray(session(driver).run([X])[0]), EXPECTED)
    assert holds(driver) == (2, 1)


def test_after_another_librarys_reset_old_sessions_say_so_and_new_ones_run(driver: Library) -> None:
    old = session(driver)
    driver.reset()
    new = session(driver)
    np.testing.assert_array_equal(np.asarray(new.run([X])[0]), EXPECTED)
    with pytest.raises(DeviceError, match=r"another library reset the GPU, .* load it again"):
        old.run([X])
    live = dict(driver.live)
    old.close()  # what has its addresses by now is not its own
    assert driver.live == live and driver.contexts == 1
    np.testing.assert_array_equal(np.asarray(new.run([X])[0]), EXPECTED)


def test_a_forked_child_of_a_process_that_only_looked_for_a_gpu_holds_a_context_of_its_own(driver: Library) -> None:

    def act() -> bool:
        return np.array_equal(np.asarray(session(driver).run([X])[0]), EXPECTED) and holds(driver) == (1, 0)

    child = os.fork()
    if child == 0:
        os._exit(0 if act() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert holds(driver) == (0, 0)


def test_a_context_is_current_only_within_its_block(driver: Library) -> None:
    device = Device(Driver(driver), 0)
    context = hold_context(device)
    with pytest.raises(DeviceError, match="INVALID_CONTEXT"):
        device.driver.create_stream()
    with context.current():
        device.driver.destroy_stream(device.driver.create_stream())
    assert driver.leaks() == []


def test_a_thread_gets_its_context_and_its_way_with_captures_back(driver: Library, other: OtherLibrary) -> None:
    with other.current():
        assert other._device.driver.exchange_capture_mode(CAPTURE_THREAD_LOCAL) == CAPTURE_GLOBAL
        session(driver).close()
        other._device.driver.destroy_stream(other._device.driver.create_stream())  # its own context is current
        assert other._device.driver.exchange_capture_mode(CAPTURE_GLOBAL) == CAPTURE_THREAD_LOCAL


@pytest.mark.parametrize("call", ["cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"])
def test_a_context_that_cannot_be_made_current_leaves_the_threads_own(
    call: str, driver: Library, other: OtherLibrary
) -> None:
    running = session(driver)
    with other.current():
        driver.fail(call, stub.INVALID_CONTEXT)
        with pytest.raises(DeviceError, match=f"{call} failed with CUDA_ERROR_INVALID_CONTEXT"):
            running.run([X])
        assert len(driver._current.stack) == 1
    assert driver._current.stack == []


@pytest.mark.parametrize(("call", "after"), [("cuThreadExchangeStreamCaptureMode", 1), ("cuCtxPopCurrent_v2", 0)])
def test_what_failed_in_a_context_is_told_though_leaving_it_fails_too(call: str, after: int, driver: Library) -> None:
    running = session(driver)
    driver.fail("cuStreamSynchronize", stub.INVALID_HANDLE)
    driver.fail(call, stub.INVALID_HANDLE, after=after)
    with pytest.raises(DeviceError, match="cuStreamSynchronize failed"):
        running.run([X])
    driver.fail(call, stub.INVALID_HANDLE, after=after)
    with pytest.raises(DeviceError, match=f"{call} failed"):
        running.run([X])
    assert driver._current.stack == [] or call.startswith("cuCtxPop")


def live(driver: Library, stream: int | None = None) -> None:
    """All that a session does: open, run, keep time, close."""
    running = session(driver, stream=stream)
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert running.graph_failure == ""
    running.run_seconds(2)
    running.close()


@pytest.mark.parametrize("mode", [CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED])
def test_a_session_leaves_a_capture_of_another_library_in_its_thread_alone(
    mode: int, driver: Library, other: OtherLibrary
) -> None:
    with other.capture(mode) as nodes:
        live(driver)
    assert nodes == [0]  # nothing of ours is in it
    assert driver.leaks() == ["Stream"]


def test_a_session_leaves_a_capture_of_another_library_in_another_thread_alone(
    driver: Library, other: OtherLibrary
) -> None:
    with ThreadPoolExecutor(1) as pool, other.capture(CAPTURE_GLOBAL) as nodes:
        pool.submit(live, driver).result()
    assert nodes == [0]


def test_a_session_that_is_dropped_while_another_library_captures_breaks_nothing(
    driver: Library, other: OtherLibrary
) -> None:
    running = session(driver)
    with other.capture(CAPTURE_GLOBAL):
        del running
    assert driver.leaks() == ["Stream"]


def test_other_libraries_may_allocate_while_a_session_is_captured(driver: Library, other: OtherLibrary) -> None:
    found = []

    def allocate() -> int:
        with other.current():
            return other._device.driver.allocate(64)

    def meanwhile(*arguments: object) -> None:
        with ThreadPoolExecutor(1) as pool:  # in a thread whose way with captures is the driver's default
            found.append(pool.submit(allocate).result())

    class Busy(Library):
        """A driver that another thread uses as well, whenever a launch is captured."""

        def enter(self, name: str) -> None:
            super().enter(name)
            if name == "cuLaunchKernel":
                self.lock.release()
                try:
                    meanwhile()
                finally:
                    self.lock.acquire()

    driver.__class__ = Busy
    running = session(driver)
    running.run([X])
    assert running.graph_failure == ""
    assert len(found) == 2


@pytest.mark.parametrize("mode", [CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED])
def test_a_run_in_a_stream_that_is_captured_is_refused_and_the_capture_goes_on(
    mode: int, driver: Library, other: OtherLibrary
) -> None:
    running = session(driver, stream=other.stream)
    with other.capture(mode) as nodes:
        for use in (lambda: running.run([X]), lambda: running.run_seconds(1), lambda: running.launch_seconds(0, 2)):
            with pytest.raises(DeviceError, match=rf"captured from stream {other.stream}, .* run it before or after"):
                use()
        live(driver)
    assert nodes == [0]
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)


def test_a_session_may_be_opened_for_a_stream_that_is_being_captured(driver: Library, other: OtherLibrary) -> None:
    with other.capture(CAPTURE_GLOBAL) as nodes:
        running = session(driver, stream=other.stream)
    assert nodes == [0]
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert running.graph_failure == ""


def test_a_stream_that_another_capture_makes_unusable_is_refused_like_one_that_is_captured(driver: Library) -> None:
    running = session(driver, stream=OtherLibrary(driver).stream)
    driver.fail("cuStreamIsCapturing", stub.CAPTURE_IMPLICIT)
    with pytest.raises(DeviceError, match="a CUDA graph is being captured"):
        running.run([X])
    driver.fail("cuStreamIsCapturing", stub.INVALID_HANDLE)
    with pytest.raises(DeviceError, match="cuStreamIsCapturing failed with CUDA_ERROR_INVALID_HANDLE"):
        running.run([X])
