"""Sessions on weights that are shared with a file: whatever happens to it, no output is wrong and no state is lost."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.program.program import State
from jitdelegate.program.read import read, weights_start
from jitdelegate.program.write import write
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.memory import Weights
from tests.gpu.stub import library as stub
from tests.gpu.stub.programs import library, scale_and_shift, scaled_state
from tests.runtime.running_sums import running_sums_program
from tests.runtime.tiny import SCALE, opened_from, tiny_program

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def break_weights(path: Path) -> None:
    """Other bytes at the end, where both programs here have what they compute with or begin with."""
    content = path.read_bytes()
    nbytes = min(len(content) - weights_start(content, len(content)), 4096)
    with path.open("r+b") as file:
        file.seek(-nbytes, os.SEEK_END)
        file.write(b"\x11" * nbytes)


def cut(path: Path) -> None:
    os.truncate(path, 0)


def run_once(session: IOBinding) -> float:
    return float(np.asarray(session.run([X])[0]).flat[1])


def during_runs(session: Session, changes: list[Callable[[], object]]) -> list[int]:
    """Let the next runs of the code be followed by these changes; grows by one with each run."""
    real, runs = session._code.run, []

    def run(*arguments: int) -> int:
        status = real(*arguments)
        runs.append(len(runs))
        if changes:
            changes.pop(0)()
        return status

    session._code.run = run
    return runs


@pytest.fixture(autouse=True)
def begins_at_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any size begin where they can be mapped."""
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "program"


@pytest.fixture
def sums(path: Path) -> Session:
    """Answers 2, 3, 4 ... : one more than the sum of all 1s so far."""
    return Session(opened_from(path, running_sums_program()))


def test_weights_are_used_where_they_are_mapped(path: Path) -> None:
    program = opened_from(path, tiny_program())
    session = Session(program)
    assert session.shared is not None and session.shared.shared
    assert session._memory is not None
    assert session._memory.arguments[0][1] == session.shared._address
    assert run_once(session) == SCALE


@pytest.mark.parametrize("change", [break_weights, cut])
def test_weights_that_changed_before_a_run_are_refused(
    path: Path, sums: Session, change: Callable[[Path], None]
) -> None:
    assert [run_once(sums) for _ in range(2)] == [2, 3]
    change(path)
    for _ in range(2):
        with pytest.raises(ProgramError, match="weights"):
            run_once(sums)
    assert np.frombuffer(sums.states_so_far()[0] or b"", np.float32)[1] == 3


@pytest.mark.parametrize("change", [break_weights, cut])
def test_what_was_computed_while_weights_changed_is_never_answered(
    path: Path, sums: Session, change: Callable[[Path], None]
) -> None:
    assert run_once(sums) == 2
    runs = during_runs(sums, [lambda: change(path)])
    with pytest.raises(ProgramError, match="weights"):
        run_once(sums)
    assert len(runs) == 1
    assert np.frombuffer(sums.states_so_far()[0] or b"", np.float32)[1] == 2


def test_weights_that_are_right_again_after_the_run_are_computed_with_again(path: Path, sums: Session) -> None:
    content = path.read_bytes()

    def break_and_restore() -> None:
        break_weights(path)
        path.write_bytes(content)

    runs = during_runs(sums, [break_and_restore])
    assert [run_once(sums) for _ in range(2)] == [2, 3]
    assert len(runs) == 3


def test_a_run_that_is_repeated_finds_the_states_as_the_first_time(path: Path, sums: Session) -> None:
    assert run_once(sums) == 2
    during_runs(sums, [path.touch, path.touch])
    assert [run_once(sums) for _ in range(2)] == [3, 4]
    assert sums.shared is not None and not sums.shared.shared  # disturbed twice in one run


def test_a_first_value_is_read_again_with_the_weights(path: Path, sums: Session) -> None:
    content = path.read_bytes()
    break_weights(path)
    with pytest.raises(ProgramError, match="weights"):
        run_once(sums)
    assert sums.states_so_far() == [None, None]
    path.write_bytes(content)
    assert [run_once(sums) for _ in range(2)] == [2, 3]


def test_a_first_value_that_changed_after_it_was_verified_is_not_kept(
    path: Path, sums: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, real = path.read_bytes(), Weights.verify

    def verify_and_break(weights: Weights) -> None:
        real(weights)
        monkeypatch.setattr(Weights, "verify", real)
        break_weights(path)

    monkeypatch.setattr(Weights, "verify", verify_and_break)
    runs = during_runs(sums, [lambda: path.write_bytes(content)])
    assert [run_once(sums) for _ in range(2)] == [2, 3]
    assert len(runs) == 3


def test_a_first_value_that_changed_is_not_read(path: Path, sums: Session) -> None:
    break_weights(path)
    with pytest.raises(ProgramError, match="weights"):
        sums.read_state(0)
    with pytest.raises(ProgramError, match="weights"):
        sums.verify()


def test_a_reset_finds_the_first_value_of_the_file_as_it_was(path: Path, sums: Session) -> None:
    assert [run_once(sums) for _ in range(2)] == [2, 3]
    break_weights(path)
    sums.reset_states(resources=True)
    with pytest.raises(ProgramError, match="weights"):
        run_once(sums)


def test_a_file_that_is_replaced_or_removed_goes_on_as_it_is(path: Path, sums: Session) -> None:
    assert run_once(sums) == 2
    other = path.with_name("other")
    other.write_bytes(b"other")
    os.replace(other, path)
    assert run_once(sums) == 3
    path.unlink()
    assert run_once(sums) == 4
    assert sums.shared is not None and sums.shared.shared


def test_no_memory_for_a_copy_is_a_device_error(path: Path, sums: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DeviceError("no memory of 5000 bytes")

    assert run_once(sums) == 2
    during_runs(sums, 2 * [path.touch])
    with monkeypatch.context() as patch:
        patch.setattr("jitdelegate.runtime.shared_file.Memory", refuse)
        with pytest.raises(DeviceError, match="no memory of 5000 bytes"):
            run_once(sums)
    assert run_once(sums) == 3


def test_another_session_takes_over_states_and_persistent_memory(path: Path, sums: Session) -> None:
    given, made = sums.input_memory(0), sums.output_memory(0)
    ctypes.memmove(given, X.tobytes(), X.nbytes)
    sums.invoke()
    break_weights(path)
    with pytest.raises(ProgramError):
        sums.invoke()
    other = Session(read(write(running_sums_program())))
    other.take_over(sums)
    sums.close()
    other.invoke()
    assert other.input_memory(0) is given and other.output_memory(0) is made
    assert np.asarray(made).flat[1] == 3


def test_a_session_that_takes_over_keeps_first_values_where_none_has_run(sums: Session) -> None:
    other = Session(read(write(running_sums_program())))
    other.take_over(sums)
    assert other.states_so_far() == [None, None]
    assert run_once(other) == 2


def test_what_litert_runs_has_weights_of_its_own(path: Path) -> None:
    from jitdelegate.targets.cpu.generate import generate
    from jitdelegate.targets.host import level
    from tests.passes.graphs import Builder, lowered
    from tests.targets.execute import program_of

    model = Builder()
    x = model.input(2, 3)
    y = model.op("ADD", [x, model.constant(np.full((2, 3), 0.5, np.float32))], (2, 3))
    graph = lowered(model.finish(y))
    session = Session(opened_from(path, program_of(graph, generate(graph, level()), level())))
    assert session.shared is not None and session.shared.shared
    session.host(lambda index: index)
    assert not session.shared.shared


@pytest.fixture
def on_gpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaSession]:
    monkeypatch.setattr("jitdelegate.runtime.cuda.context._held", {})

    def open_session(driver: stub.Library, **changes: Any) -> CudaSession:
        program = (scaled_state if "states" in changes else scale_and_shift)(**changes)
        return CudaSession(opened_from(path, program), Device(Driver(driver), 0))

    return open_session


def test_weights_that_change_as_they_are_uploaded_are_uploaded_again(
    path: Path, on_gpu: Callable[..., CudaSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, uploads = Driver.upload, []

    def upload(driver: Driver, address: int, source: int, nbytes: int, stream: int) -> None:
        real(driver, address, source, nbytes, stream)
        uploads.append(nbytes)
        if len(uploads) == 1:
            path.touch()

    monkeypatch.setattr(Driver, "upload", upload)
    session = on_gpu(library())
    assert uploads.count(1004) == 2
    monkeypatch.undo()
    expected = np.asarray(session.run([X])[0])
    break_weights(path)
    assert np.array_equal(np.asarray(session.run([X])[0]), expected)


def test_a_session_on_a_gpu_reads_nothing_of_the_file_once_it_is_open(
    path: Path, on_gpu: Callable[..., CudaSession]
) -> None:
    first = np.full(6, 7, np.float32).tobytes()
    weights = np.full(1, 3, np.float32).tobytes().ljust(1024, b"\0") + first
    state = State(name="x", nbytes=24, initial=1024)
    session = on_gpu(library(), states=(state,), weights=weights)
    assert session.shared is None
    cut(path)
    assert session.read_state(0) == first
    session.reset_states(resources=True)
    assert session.states_so_far() == [None]
    assert session.read_state(0) == first
