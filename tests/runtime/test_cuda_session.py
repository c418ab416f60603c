"""A session on a driver without a GPU: what it computes, what it calls, what it shares, and that it leaves nothing."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, ProgramError, TensorError
from jitdelegate.program.program import Launch, Program
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import OPENGL_PROTOTYPES, PROTOTYPES, Driver
from jitdelegate.runtime.cuda.session import CudaSession
from tests.gpu.stub import library as stub
from tests.gpu.stub.library import Library
from tests.gpu.stub.memory import HostMemory
from tests.gpu.stub.programs import (
    EXPECTED,
    KERNELS,
    SCALE,
    SHIFT,
    X_OFFSET,
    X,
    floats,
    library,
    opened,
    scale_and_shift,
)
from tests.runtime.tiny import tiny_program

PER_RUN = {
    **dict.fromkeys(("cuGraphLaunch", "cuStreamSynchronize", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"), 1),
    "cuThreadExchangeStreamCaptureMode": 2,
}


def session(driver: Library, program: Program | None = None, stream: int | None = None) -> CudaSession:
    """A session on the stub."""
    return CudaSession(opened(scale_and_shift()) if program is None else program, Device(Driver(driver), 0), stream)


@pytest.fixture
def running(driver: Library) -> Iterator[CudaSession]:
    """A session of the small program on the driver of the test; nothing is left of it."""
    yield (running := session(driver))
    running.close()
    assert driver.leaks() == []


def other_stream(driver: Library) -> int:
    """A stream that another library made in the primary context."""
    device = Device(Driver(driver), 0)
    with hold_context(device).current():
        return device.driver.create_stream()


def test_a_session_computes_what_its_launches_say() -> None:
    (y,) = session(library()).run([X])
    assert y.shape == (3, 2) and y.dtype == "float32"
    np.testing.assert_array_equal(np.asarray(y), EXPECTED)


def test_an_inference_is_one_graph_launch_and_one_wait(running: CudaSession, driver: Library) -> None:
    running.run([X])
    before = driver.calls.copy()
    for _ in range(3):
        running.run([X])
    assert driver.calls - before == {name: 3 * count for name, count in PER_RUN.items()}


@pytest.mark.parametrize("failing", ["", "cuStreamBeginCapture_v2"])
def test_a_session_runs_in_the_callers_stream_after_what_is_in_it_and_leaves_it(failing: str, driver: Library) -> None:
    stream = other_stream(driver)
    if failing:
        driver.fail(failing, stub.INVALID_VALUE)
    earlier: list[str] = []
    driver.live[stream].pending.append(lambda: earlier.append("done"))
    running = session(driver, stream=stream)
    assert not earlier  # opening waits for nothing of the caller's
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert earlier and driver.live[stream].capture is None
    assert running.run_seconds(2)[0] > 0
    running.close()
    assert driver.leaks() == ["Stream"]


def test_a_profiled_session_has_an_event_before_the_first_launch_and_one_after_each(driver: Library) -> None:
    running = CudaSession(opened(scale_and_shift()), Device(Driver(driver), 0), profile=True)
    assert running.kernel_seconds() == [None, None]
    before = driver.calls.copy()
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    counts = driver.calls - before
    names = ("cuLaunchKernel", "cuEventRecord", "cuEventElapsedTime", "cuGraphLaunch", "cuEventCreate")
    assert [counts[name] for name in names] == [6, 9, 6, 0, 0]
    assert running.kernel_seconds() == [pytest.approx(0.002)] * 2  # a launch and an event
    running.close()
    assert driver.leaks() == []


def test_launches_of_one_kernel_are_added_up() -> None:
    program = scale_and_shift()
    program.launches = (*program.launches, program.launches[1])
    running = CudaSession(opened(program), Device(Driver(library()), 0), profile=True)
    running.run([X])
    first, second = running.kernel_seconds()
    assert first and second == pytest.approx(2 * first)


def test_a_profiled_session_that_gets_no_events_leaves_nothing(driver: Library) -> None:
    driver.fail("cuEventCreate", stub.OUT_OF_MEMORY, after=2)
    with pytest.raises(DeviceError, match="cuEventCreate"):
        CudaSession(opened(scale_and_shift()), Device(Driver(driver), 0), profile=True)
    assert driver.leaks() == []


def test_outputs_of_two_runs_do_not_share_memory(running: CudaSession) -> None:
    (first,), (second,) = running.run([X]), running.run([X + 1])
    np.testing.assert_array_equal(np.asarray(first), EXPECTED)
    np.testing.assert_array_equal(np.asarray(second), EXPECTED + np.float32(SCALE))


def test_staged_runs_read_and_write_persistent_memory_that_outlives_the_session(running: CudaSession) -> None:
    running.set_input(0, X)
    y = running.output_memory(0)
    running.run([X + 1])
    running.invoke()
    running.close()
    assert y.tolist() == EXPECTED.tolist()
    assert bytes(running.input_memory(0)) == X.tobytes()


def test_wrong_inputs_are_refused_before_anything_runs(running: CudaSession, driver: Library) -> None:
    with pytest.raises(TensorError, match="2 inputs were given, expected 1"):
        running.run([X, X])
    with pytest.raises(TensorError, match="float64"):
        running.run([X.astype(np.float64)])
    assert driver.calls["cuGraphLaunch"] == 0


def test_a_closed_session_says_so_closes_again_and_leaves_nothing(running: CudaSession, driver: Library) -> None:
    running.run([X])
    running.close()
    running.close()
    assert driver.leaks() == []
    for use in (lambda: running.run([X]), running.invoke, lambda: running.run_seconds(1)):
        with pytest.raises(DeviceError, match="the session is closed"):
            use()


def test_a_dropped_session_leaves_nothing(driver: Library) -> None:
    running = session(driver)
    del running
    assert driver.leaks() == []


def test_sessions_of_one_program_share_their_weights_until_the_last_is_closed(driver: Library) -> None:
    first, second = session(driver), session(driver)
    assert driver.calls["cuMemcpyHtoDAsync_v2"] == 1
    first.close()
    np.testing.assert_array_equal(np.asarray(second.run([X])[0]), EXPECTED)
    second.close()
    assert driver.leaks() == []


def test_programs_with_other_weights_share_nothing(driver: Library) -> None:
    first = session(driver)
    second = session(driver, opened(scale_and_shift(weights=np.full(4, 7, np.float32).tobytes())))
    np.testing.assert_array_equal(np.asarray(second.run([X])[0]).ravel(), X.ravel() * 7 + SHIFT)
    np.testing.assert_array_equal(np.asarray(first.run([X])[0]), EXPECTED)


def test_weights_are_uploaded_again_once_nobody_uses_them(driver: Library) -> None:
    session(driver).close()
    np.testing.assert_array_equal(np.asarray(session(driver).run([X])[0]), EXPECTED)


def test_damaged_weights_are_refused_and_not_shared() -> None:
    driver, content = library(), bytearray(write(scale_and_shift()))
    content[-1] ^= 1
    with pytest.raises(ProgramError, match="weights: hash"):
        session(driver, read(content))
    assert driver.leaks() == []
    np.testing.assert_array_equal(np.asarray(session(driver).run([X])[0]), EXPECTED)


def test_a_program_that_claims_the_hash_of_shorter_weights_gets_none_of_them(
    running: CudaSession, driver: Library
) -> None:
    longer = opened(scale_and_shift(weights=bytes(2000)))
    longer.weights_hash = running.program.weights_hash
    with pytest.raises(ProgramError, match="weights: hash of 2000 bytes"):
        session(driver, longer)


def test_a_program_without_weights_runs() -> None:
    launch = scale_and_shift().launches[1]
    values = (launch.values[0], X_OFFSET, *launch.values[2:])
    only = Launch(kernel=1, grid=(1, 1, 1), block=(1, 1, 1), kinds="ppfi", values=values)
    driver = library()
    running = session(driver, opened(scale_and_shift(weights=b"", launches=(only,))))
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]).ravel(), X.ravel() + SHIFT)
    running.close()
    assert driver.leaks() == []


def test_a_program_of_nothing_runs() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("inputs", "outputs", "input_offsets", "output_offsets", "launches"), ())
    assert session(library(), opened(scale_and_shift(arena_bytes=0, **nothing))).run([]) == ()


def test_more_dynamic_shared_memory_than_goes_without_leave_is_asked_for(running: CudaSession, driver: Library) -> None:
    running.run([X])
    assert running.graph_failure == ""
    assert driver.calls["cuFuncSetAttribute"] == 1
    driver.fail("cuFuncSetAttribute", stub.INVALID_VALUE)
    with pytest.raises(DeviceError, match="cuFuncSetAttribute failed with CUDA_ERROR_INVALID_VALUE"):
        session(driver)


def test_entries_of_one_binary_share_its_module(driver: Library) -> None:
    program = scale_and_shift()
    shared = program.entries[1][1]
    program.entries = (("other", shared), ("shift", shared))
    program.launches = program.launches[1:]
    session(driver, opened(program))
    assert driver.calls["cuModuleLoadData"] == 1


def calls_of_a_life() -> list[tuple[str, int]]:
    """Every call that a session makes until the end of its first run, and which of them it is."""
    driver = library()
    running = session(driver)
    running.run([X])
    assert not running.graph_failure
    return [(name, turn) for name, count in sorted(driver.calls.items()) for turn in range(count)]


@pytest.mark.parametrize(("name", "turn"), calls_of_a_life())
def test_whatever_call_fails_half_way_nothing_is_left(name: str, turn: int, driver: Library) -> None:
    driver.fail(name, stub.INVALID_VALUE, after=turn)
    said = re.escape(f"{name} failed with CUDA_ERROR_INVALID_VALUE (1): invalid argument")
    try:
        running = session(driver)
    except DeviceError as error:
        assert re.search(said, str(error))
        assert driver.leaks() == []  # while the error still holds the session
        return
    try:
        running.run([X])
    except DeviceError as error:
        assert re.search(said, str(error))
    else:
        assert name in running.graph_failure or name in ("cuGraphDestroy", "cuPointerGetAttribute")
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    running.close()
    assert driver.leaks() == (["Graph"] if name == "cuGraphDestroy" else [])


@pytest.mark.parametrize("name", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"])
def test_where_no_graph_can_be_made_kernels_are_launched_one_by_one(name: str, driver: Library) -> None:
    driver.fail(name, stub.CAPTURE_INVALIDATED)
    running = session(driver)
    running.run([X])
    assert f"{name} failed with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)" in running.graph_failure
    before = driver.calls.copy()
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert (driver.calls - before)["cuLaunchKernel"] == 2
    assert driver.calls["cuGraphLaunch"] == 0
    assert running.run_seconds(2)[0] == pytest.approx(0.009)  # an event, and twice two copies and two kernels
    assert running.run_seconds(2, copies=False)[0] == pytest.approx(0.005)
    assert running.launch_seconds(1, 4) == pytest.approx(0.005)


def test_a_launch_that_fails_while_it_is_captured_ends_the_capture(driver: Library) -> None:
    driver.fail("cuLaunchKernel", stub.INVALID_VALUE, after=1)
    running = session(driver)
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert "cuLaunchKernel" in running.graph_failure
    running.close()
    assert driver.leaks() == []


def test_an_illegal_address_is_told_and_everything_after_it_is_explained() -> None:
    def crash(values: list[Any], memory: Any) -> None:
        memory.read(4, 4)

    driver = library({"scale": crash, "shift": crash})
    running, other = session(driver), session(driver)
    with pytest.raises(
        DeviceError, match=r"^cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS \(700\): an il"
    ):
        running.run([X])
    said = r"the GPU has failed in this process \(cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS .*anew"
    before = driver.calls.copy()
    for fails in (lambda: running.run([X]), lambda: other.make_place(0), lambda: session(driver)):
        with pytest.raises(DeviceError, match=said):
            fails()
    running.close()
    other.close()
    assert not {"cuCtxPushCurrent_v2", "cuMemFree_v2", "cuDevicePrimaryCtxRetain"} & {*(driver.calls - before)}


def test_too_little_gpu_memory_says_how_much_was_asked_for_and_is_free() -> None:
    driver = library(total_bytes=1100)
    with pytest.raises(DeviceError, match="no GPU memory of 512 bytes: 96 of 1100 bytes are free"):
        session(driver)
    assert driver.leaks() == []


def test_too_little_pinned_memory_says_how_much_was_asked_for(driver: Library) -> None:
    driver.fail("cuMemHostAlloc", stub.OUT_OF_MEMORY)
    running = session(driver)
    with pytest.raises(DeviceError, match="no pinned host memory of 24 bytes"):
        running.run([X])
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)


def test_code_for_another_architecture_is_refused_before_anything_is_made() -> None:
    driver = library(capability=(8, 6))
    with pytest.raises(DeviceError, match="compiled for sm_90, but Stub 9000 is sm_86"):
        session(driver)
    assert driver.leaks() == [] and driver.calls["cuDevicePrimaryCtxRetain"] == 0


def test_a_binary_that_the_driver_refuses_is_named_with_the_driver() -> None:
    driver = library(version=12040)
    driver.fail("cuModuleLoadData", stub.INVALID_IMAGE)
    with pytest.raises(DeviceError, match=r"speaks CUDA 12\.4, refuses a kernel for sm_90: cuModuleLoadData failed"):
        session(driver)


def test_a_kernel_that_its_binary_lacks_is_refused() -> None:
    program = scale_and_shift()
    program.entries = (("nowhere", 0), program.entries[1])
    with pytest.raises(DeviceError, match="cuModuleGetFunction failed with CUDA_ERROR_NOT_FOUND"):
        session(library(), opened(program))


def test_a_program_for_the_cpu_is_refused() -> None:
    with pytest.raises(ProgramError, match="flat code for cpu cannot run on a CUDA device"):
        session(library(), read(write(tiny_program())))


def test_threads_of_the_caller_take_turns(running: CudaSession) -> None:
    values = [X + turn for turn in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = [np.asarray(outputs[0]).ravel() for outputs in pool.map(lambda value: running.run([value]), values)]
    for value, output in zip(values, found, strict=True):
        np.testing.assert_array_equal(output, value.ravel() * np.float32(SCALE) + np.float32(SHIFT))


def test_sessions_may_be_opened_and_closed_by_several_threads_at_once() -> None:
    driver, program = library(), opened(scale_and_shift())
    together = threading.Barrier(4)

    def live(_: int) -> bool:
        together.wait()
        for _ in range(5):
            running = session(driver, program)
            right = np.array_equal(np.asarray(running.run([X])[0]), EXPECTED)
            running.close()
        return right

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(live, range(4)))
    assert driver.leaks() == []


def in_child(act: Callable[[], bool]) -> int:
    """The exit status of a forked child: 0 where `act` answered True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if act() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_is_told_and_takes_nothing_from_its_parent(running: CudaSession, driver: Library) -> None:

    def act() -> bool:
        before = driver.calls.copy()
        told = 0
        for use in (lambda: running.run([X]), running.invoke, lambda: running.run_seconds(1)):
            try:
                use()
            except DeviceError as error:
                told += f"in process {os.getppid()}, which forked process {os.getpid()}" in str(error)
        running.close()
        return told == 3 and driver.calls == before

    with running._lock:  # as a run in another thread holds it
        assert in_child(act) == 0
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)


def test_a_forked_child_of_a_process_with_a_gpu_cannot_open_a_session_of_its_own(driver: Library) -> None:
    session(driver)

    def act() -> bool:
        try:
            session(driver)
        except DeviceError as error:
            return "CUDA_ERROR_NOT_INITIALIZED" in str(error)
        return False

    assert in_child(act) == 0


def test_the_time_on_the_gpu_is_taken_by_its_own_clock_with_and_without_copies(running: CudaSession) -> None:
    assert running.run_seconds(3)[0] == pytest.approx(0.013)  # an event, and three times a copy, two kernels, a copy
    assert running.run_seconds(2, copies=False)[0] == pytest.approx(0.005)


def test_a_measurement_has_an_event_before_all_runs_and_one_after_them(running: CudaSession, driver: Library) -> None:
    before = driver.calls.copy()
    running.run_seconds(50)
    assert (driver.calls - before)["cuEventRecord"] == 2
    assert (driver.calls - before)["cuStreamSynchronize"] == 1


def test_the_hosts_clock_runs_from_before_the_first_run_to_when_the_last_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, readings = library(), []

    def clock() -> float:
        readings.append(driver.calls.copy())
        return float(len(readings))

    running = session(driver)
    monkeypatch.setattr("jitdelegate.runtime.cuda.timing.time.perf_counter", clock)
    assert running.run_seconds(3)[1] == 1.0
    between = readings[1] - readings[0]
    assert (between["cuGraphLaunch"], between["cuStreamSynchronize"], between["cuEventRecord"]) == (3, 1, 2)


def test_a_launch_is_timed_by_itself_many_times_in_one_graph_on_what_those_before_it_made() -> None:
    seen: list[tuple[str, list[float]]] = []

    def watched(name: str) -> Callable[[list[Any], Any], None]:
        def kernel(values: list[Any], memory: Any) -> None:
            seen.append((name, floats(memory, int(values[1]), 6).tolist()))
            KERNELS[name](values, memory)

        return kernel

    driver = library({name: watched(name) for name in KERNELS})
    running = session(driver)
    running.run([X])
    seen.clear()
    before = driver.calls.copy()
    assert running.launch_seconds(1, 50) == pytest.approx(0.051)  # fifty kernels and an event
    assert (driver.calls - before)["cuGraphLaunch"] == 1
    x = X.ravel()
    assert seen == [("scale", x.tolist()), *50 * [("shift", (x * SCALE).tolist())]]
    assert running.launch_seconds(1, 2, afresh=False) == pytest.approx(0.003)
    assert seen[51:] == 2 * [("shift", (x * SCALE).tolist())]
    running.close()
    assert driver.leaks() == []


def test_a_measurement_that_fails_leaves_nothing(running: CudaSession, driver: Library) -> None:
    driver.fail("cuEventRecord", stub.INVALID_VALUE, after=1)
    with pytest.raises(DeviceError, match="cuEventRecord"):
        running.run_seconds(5, copies=False)


def test_what_failed_first_is_told_though_cleaning_up_fails_too(driver: Library) -> None:
    driver.fail("cuStreamSynchronize", stub.INVALID_HANDLE)
    driver.fail("cuMemFree_v2", stub.INVALID_HANDLE)
    with pytest.raises(DeviceError, match="cuStreamSynchronize failed"):
        session(driver)
    running = session(driver)
    driver.fail("cuStreamSynchronize", stub.INVALID_HANDLE)
    driver.fail("cuGraphExecDestroy", stub.INVALID_HANDLE)
    with pytest.raises(DeviceError, match="cuStreamSynchronize failed"):
        running.run_seconds(1, copies=False)


def test_device_memory_may_be_of_any_kind() -> None:
    class Counting(HostMemory):
        written = 0

        def write(self, address: int, content: bytes) -> None:
            Counting.written += len(content)
            super().write(address, content)

    session(library(memory=Counting())).run([X])
    assert Counting.written == 1004 + 3 * 24


def test_the_stub_has_every_function_that_the_driver_calls_and_no_other() -> None:
    assert {name for name in vars(Library) if name.startswith("cu")} == {*PROTOTYPES, *OPENGL_PROTOTYPES}


def test_every_function_that_is_called_is_in_cuda() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    known = {name.removesuffix("_v2") for name in (*PROTOTYPES, *OPENGL_PROTOTYPES)}
    assert {name for name in known if not hasattr(driver, name) and name != "cuGraphInstantiateWithFlags"} == set()
