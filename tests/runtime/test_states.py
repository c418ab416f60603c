"""What lives from run to run: where it begins, how it goes on, and that nobody shares it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.program.program import Program, State
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.runtime.io_binding import IOBinding
from tests.gpu.stub import library as stub
from tests.gpu.stub.library import Library
from tests.gpu.stub.programs import SCALE, library, opened, scaled_state
from tests.runtime.running_sums import running_sums_program

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def running_sums(*, is_resource: int = 0) -> Program:
    return opened(running_sums_program(is_resource=is_resource))


def scaled_sums(driver: Library, stream: int | None = None, **changes: Any) -> CudaSession:
    """y = SCALE * x + 2.5, and the state, scaled x, is what the next run sees as x."""
    values: dict[str, Any] = {
        "states": (State(name="x", nbytes=24, initial=1024),),
        "weights": np.full(1, SCALE, np.float32).tobytes().ljust(1024, b"\0") + X.tobytes(),
    }
    program = opened(scaled_state(**{**values, **changes}))
    return CudaSession(program, Device(Driver(driver), 0), stream)


def sums(session: IOBinding, count: int) -> list[float]:
    return [float(np.asarray(session.run([X])[0])[0, 1]) for _ in range(count)]


def powers(session: IOBinding, count: int) -> list[float]:
    return [float(np.asarray(session.run([])[0]).flat[1]) - 2.5 for _ in range(count)]


def test_a_run_goes_on_from_where_the_last_one_stopped() -> None:
    assert sums(Session(running_sums()), 4) == [2, 3, 4, 5]


def test_a_run_on_a_gpu_goes_on_from_where_the_last_one_stopped() -> None:
    assert powers(scaled_sums(library()), 4) == [3, 9, 27, 81]


@pytest.mark.parametrize("failing", ["", "cuStreamBeginCapture_v2"])
def test_a_state_on_a_gpu_begins_with_zeros_where_the_program_says_nothing_else(failing: str, driver: Library) -> None:
    if failing:
        driver.fail(failing, stub.INVALID_VALUE)
    assert powers(scaled_sums(driver, states=(State(name="x", nbytes=24),)), 3) == [0, 0, 0]


def test_sessions_of_one_program_have_states_of_their_own() -> None:
    program = running_sums()
    one, other = Session(program), Session(program)
    assert (sums(one, 3), sums(other, 2), sums(one, 1)) == ([2, 3, 4], [2, 3], [5])
    driver = library()
    first, second = scaled_sums(driver), scaled_sums(driver)
    assert (powers(first, 2), powers(second, 1), powers(first, 1)) == ([3, 9], [3], [27])


@pytest.mark.parametrize(("is_resource", "after"), [(0, [2, 3]), (1, [4, 5])])
def test_a_reset_may_leave_resource_variables_as_they_are(is_resource: int, after: list[float]) -> None:
    session = Session(running_sums(is_resource=is_resource))
    sums(session, 2)
    session.reset_states(resources=False)
    assert sums(session, 2) == after
    session.reset_states(resources=True)
    session.reset_states(resources=False)
    assert sums(session, 2) == [2, 3]


@pytest.mark.parametrize(("is_resource", "after"), [(0, [3, 9]), (1, [27, 81])])
def test_a_reset_on_a_gpu_may_leave_resource_variables_as_they_are(is_resource: int, after: list[float]) -> None:
    state = State(name="x", nbytes=24, initial=1024, is_resource=is_resource)
    session = scaled_sums(library(), states=(state,))
    powers(session, 2)
    session.reset_states(resources=False)
    assert powers(session, 2) == after
    session.reset_states(resources=True)
    session.reset_states(resources=False)
    assert powers(session, 2) == [3, 9]


def test_a_run_that_fails_on_a_gpu_leaves_the_state_as_it_was(driver: Library) -> None:
    driver.fail("cuStreamBeginCapture_v2", stub.INVALID_VALUE)
    session = scaled_sums(driver)
    assert powers(session, 2) == [3, 9]
    driver.fail("cuLaunchKernel", stub.INVALID_VALUE)
    with pytest.raises(DeviceError, match="cuLaunchKernel"):
        session.run([])
    assert powers(session, 1) == [27]


def test_states_on_a_gpu_are_given_back(driver: Library) -> None:
    scaled_sums(driver).close()
    assert not driver.leaks()


def test_a_closed_session_can_be_reset() -> None:
    session = Session(running_sums())
    session.close()
    session.reset_states(resources=True)


def test_a_state_can_be_read_and_written() -> None:
    session = Session(running_sums())
    assert np.frombuffer(session.read_state(0), np.float32).tolist() == [1.0] * 6
    sums(session, 2)
    assert np.frombuffer(session.read_state(0), np.float32)[1] == 3
    session.write_state(0, np.full(6, 10, np.float32).tobytes())
    assert sums(session, 2) == [11, 12]
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.read_state(0)


def test_a_state_that_is_written_before_the_first_run_is_what_that_finds() -> None:
    session = Session(running_sums())
    session.write_state(0, np.full(6, 10, np.float32).tobytes())
    assert np.frombuffer(session.read_state(0), np.float32)[1] == 10
    assert sums(session, 2) == [11, 12]


def test_a_state_on_a_gpu_can_be_read_and_written() -> None:
    session = scaled_sums(library())
    assert np.frombuffer(session.read_state(0), np.float32).tolist() == X.ravel().tolist()
    session.write_state(0, (10 * X).tobytes())
    assert powers(session, 2) == [30, 90]
    assert np.frombuffer(session.read_state(0), np.float32)[1] == 90
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.write_state(0, X.tobytes())


def test_a_variable_whose_length_is_not_that_of_its_shape_is_refused() -> None:
    program = running_sums()
    program.states = (State(name="h", nbytes=24, index=0, shape=(7,)), program.states[1])
    with pytest.raises(ProgramError, match="'h' has 24 bytes, expected 28"):
        Session(program)


@pytest.mark.parametrize("copies", [False, True])
def test_runs_that_are_timed_on_a_gpu_go_on_from_where_the_last_one_stopped(copies: bool) -> None:
    session = scaled_sums(library())
    session.run_seconds(2, copies=copies)
    assert powers(session, 1) == [27]


def test_a_state_is_neither_read_nor_written_in_a_stream_that_is_being_captured(driver: Library) -> None:
    with hold_context(Device(Driver(driver), 0)).current():
        stream = Driver(driver).create_stream()
        session = scaled_sums(driver, stream)
        driver.cuStreamBeginCapture_v2(stream, stub.CAPTURE_GLOBAL)
    for use in (lambda: session.read_state(0), lambda: session.write_state(0, X.tobytes())):
        with pytest.raises(DeviceError, match="a CUDA graph is being captured"):
            use()
    assert driver.live[stream].capture.nodes == [] and not driver.live[stream].capture.is_broken
