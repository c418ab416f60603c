"""A session runs a program's code on the caller's memory, with workers, forks and damage."""

from __future__ import annotations

import _thread
import array
import ctypes
import os
import signal as signals
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, ProgramError, TensorError
from jitdelegate.program.program import Port, Program
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cpu import workers
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import machine
from tests.child import in_child
from tests.runtime.tiny import SCALE, opened, tiny_program

pytestmark = pytest.mark.skipif(not machine(), reason="no machine code for this processor and system")

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WORKERS_CAME, WORKERS_THERE = 1, 2


def expected(run: int = 0) -> np.ndarray:
    return (X * SCALE + run).reshape(3, 2)


def sync_words(session: Session) -> list[int]:
    """The tiny program's sync words."""
    memory = session._memory
    assert memory is not None
    return list((ctypes.c_int32 * 3).from_address(memory.arguments[0][3]))


def wait_for_workers(session: Session, count: int) -> None:
    while sync_words(session)[WORKERS_THERE] < count:
        time.sleep(0.001)


@pytest.mark.parametrize("loader", ["flat", "object"])
def test_a_session_computes_what_its_code_says(loader: str) -> None:
    session = Session(opened(tiny_program(loader=loader)))
    (y,) = session.run([X])
    assert y.shape == (3, 2) and y.dtype == "float32" and y.nbytes == 24
    np.testing.assert_array_equal(np.asarray(y), expected())


@pytest.mark.parametrize("make", [lambda: X, X.tobytes, lambda: bytearray(X), lambda: X[::1, :], X.tolist])
def test_any_form_of_the_same_input_gives_the_same_output(make) -> None:  # type: ignore[no-untyped-def]
    (y,) = Session(opened(tiny_program())).run([make()])
    assert y.tolist() == expected().tolist()


def test_outputs_of_two_runs_do_not_share_memory_and_the_arena_persists() -> None:
    session = Session(opened(tiny_program()))
    (first,), (second,) = session.run([X]), session.run([X])
    assert first.tolist() == expected(0).tolist()
    assert second.tolist() == expected(1).tolist()


def test_staged_runs_read_and_write_persistent_memory() -> None:
    session = Session(opened(tiny_program()))
    session.set_input(0, X)
    y = session.output_memory(0)
    session.invoke()
    assert y.tolist() == expected(0).tolist()
    session.invoke()
    assert y.tolist() == expected(1).tolist()
    assert session.output_memory(0) is y
    session.close()
    assert y.tolist() == expected(1).tolist()


def test_from_the_third_run_on_only_the_code_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(opened(tiny_program()))
    calls: list[object] = []
    compute = session._compute

    def counted(*arguments: Any) -> None:
        calls.append(arguments)
        compute(*arguments)

    monkeypatch.setattr(session, "_compute", counted)
    y = session.output_memory(0)
    session.set_input(0, X)
    for number in range(4):
        session.invoke()
        assert y.tolist() == expected(number).tolist()
    assert len(calls) == 2
    assert session.run([X])[0].tolist() == expected(4).tolist()  # with its own memory
    session.invoke()
    assert y.tolist() == expected(5).tolist()
    assert len(calls) == 2
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.invoke()


def test_workers_come_once_and_leave_at_close() -> None:
    others = tasks()
    session = Session(opened(tiny_program()), num_threads=3)
    assert sync_words(session)[WORKERS_CAME] == 0
    session.run([X])
    wait_for_workers(session, 2)
    session.run([X])
    assert sync_words(session)[WORKERS_CAME] == 2
    workers = tasks() - others
    session.close()
    assert len(workers) == 2 and have_ended(workers)


def test_a_closed_session_says_so_and_closes_again() -> None:
    session = Session(opened(tiny_program()), num_threads=2)
    session.run([X])
    session.close()
    session.close()
    with pytest.raises(DeviceError, match="closed"):
        session.run([X])


def test_a_session_that_is_dropped_ends_its_workers() -> None:
    others = tasks()
    session = Session(opened(tiny_program()), num_threads=2)
    session.run([X])
    wait_for_workers(session, 1)
    workers = tasks() - others
    del session
    assert len(workers) == 1 and have_ended(workers)


def tasks() -> set[str]:
    """The system's numbers of this process's threads, those that Python knows nothing of among them."""
    return set(os.listdir("/proc/self/task"))


def have_ended(threads: set[str]) -> bool:
    """Whether none of these is left. The system lists a thread for a moment after it was joined."""
    end = time.monotonic() + 5
    while threads & tasks() and time.monotonic() < end:
        time.sleep(0.01)
    return not threads & tasks()


def native_threads() -> int:
    """Number of this process's threads."""
    return len(tasks())


def test_workers_are_no_threads_of_pythons_and_take_no_signals() -> None:
    others, before = tasks(), _thread._count()
    session = Session(opened(tiny_program()), num_threads=3)
    session.run([X])
    wait_for_workers(session, 2)
    workers = tasks() - others
    assert len(workers) == 2 and _thread._count() <= before
    for task in workers:
        blocked = int(Path(f"/proc/self/task/{task}/status").read_text().partition("SigBlk:")[2].split()[0], 16)
        assert all(blocked & 1 << signal - 1 for signal in (signals.SIGINT, signals.SIGTERM, signals.SIGUSR1))
        assert not any(blocked & 1 << signal - 1 for signal in (signals.SIGSEGV, signals.SIGBUS, signals.SIGFPE))
    session.close()
    assert not signals.pthread_sigmask(signals.SIG_BLOCK, ())


def test_a_session_finishes_alone_where_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(routine: int, argument: int, threads: list[ctypes.c_void_p]) -> None:
        raise DeviceError("no thread: Resource temporarily unavailable")

    monkeypatch.setattr(workers, "start", refuse)
    session = Session(opened(tiny_program()), num_threads=3)
    (y,) = session.run([X])
    assert y.tolist() == expected().tolist()
    session.close()


def test_threads_of_the_caller_take_turns() -> None:
    session = Session(opened(tiny_program()), num_threads=2)
    sums: list[float] = []

    def call() -> None:
        for _ in range(50):
            (y,) = session.run([X])
            sums.append(y.tolist()[0][0])

    for _ in range(4):
        _thread.start_new_thread(call, ())
    while len(sums) < 200:
        time.sleep(0.001)
    assert sorted(sums) == [float(run) for run in range(200)]


def test_an_interrupt_while_a_worker_starts_loses_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def pthread_create(self, *arguments: object) -> int:
            signals.pthread_kill(threading.get_ident(), signals.SIGINT)
            return int(real.pthread_create(*arguments))

    real, blocked = workers._libc, signals.pthread_sigmask(signals.SIG_BLOCK, ())
    session = Session(opened(tiny_program()), num_threads=2)
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_libc", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            session.run([X])
    assert signals.pthread_sigmask(signals.SIG_BLOCK, ()) == blocked
    session.run([X])
    wait_for_workers(session, 1)
    assert sync_words(session)[WORKERS_CAME] == 1  # a second one would have the first one's scratch memory
    session.close()


def test_a_forked_child_runs_with_workers_of_its_own() -> None:
    session = Session(opened(tiny_program()), num_threads=2)
    session.run([X])
    wait_for_workers(session, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            (y,) = session.run([X])
            wait_for_workers(session, 1)
            right = y.tolist() == expected(1).tolist() and sync_words(session)[WORKERS_CAME] == 1
            session.close()
            status = 0 if right else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (y,) = session.run([X])
    assert y.tolist() == expected(1).tolist()


def test_a_forked_child_forgets_its_parents_workers() -> None:
    session = Session(opened(tiny_program()), num_threads=2)
    session.run([X])
    wait_for_workers(session, 1)
    child = os.fork()
    if child == 0:
        session._follow_fork()
        os._exit(0 if sync_words(session) == [0, 0, 0] and session._memory and not session._memory.workers else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_during_a_run_leaves_the_child_usable() -> None:
    session = Session(opened(tiny_program()))
    with session._lock:  # as a run in another thread holds it
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if session.run([X])[0].tolist() == expected().tolist() else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_damaged_weights_are_refused_before_any_output() -> None:
    content = bytearray(write(tiny_program()))
    content[-1] ^= 1
    session = Session(read(content))
    with pytest.raises(ProgramError, match="weights"):
        session.run([X])
    with pytest.raises(ProgramError, match="weights"):
        session.invoke()


def test_weights_are_used_where_they_are_mapped_and_copied_to_a_page_elsewhere() -> None:
    program = opened(tiny_program())
    session = Session(program)
    assert session._memory is not None
    assert session._memory.arguments[0][1] % 4096 == 0
    assert session.run([X])[0].tolist() == expected().tolist()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (X.astype(np.float64), r"float64\[2, 3\]"),
        (X.reshape(3, 2), r"float32\[3, 2\]"),
        (X.tobytes()[:-1], r"uint8\[23\]"),
        (array.array("i", range(6)), r"int32\[6\]"),
        (X.astype(">f4"), "format"),
        ([[1, 2], [3]], "cannot be made from list"),
        (None, "float32"),
        ("text", "cannot be made from str"),
    ],
)
def test_a_wrong_input_is_refused_with_tensor_found_and_expected(value: object, found: str) -> None:
    with pytest.raises(TensorError, match=f"'picture'.*{found}"):
        Session(opened(tiny_program(name="picture"))).run([value])


def test_a_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(TensorError, match="2 inputs were given, expected 1"):
        Session(opened(tiny_program())).run([X, X])


def test_a_program_without_code_is_refused() -> None:
    with pytest.raises(ProgramError, match="litert"):
        Session(opened(Program(key=(), target="litert")))


def test_a_program_that_lacks_an_entry_is_refused() -> None:
    program = tiny_program()
    program.entries = (("run", 0),)
    with pytest.raises(ProgramError, match="work, stop"):
        Session(opened(program))


def test_an_output_whose_length_is_not_its_shapes_is_refused() -> None:
    program = tiny_program()
    program.outputs = (Port(name="y", index=1, shape=(3, 2), dtype="float32", nbytes=4),)
    with pytest.raises(ProgramError, match="4 bytes, expected 24"):
        Session(opened(program))


def test_an_object_that_llvm_cannot_load_is_refused() -> None:
    pytest.importorskip("llvmlite")
    with pytest.raises(ProgramError):
        Session(opened(tiny_program(loader="object", code=b"no object at all")))


def test_more_memory_than_there_is_is_refused() -> None:
    program = tiny_program()
    program.arena_bytes = 1 << 40
    program.scratch_bytes = 1 << 40
    with pytest.raises(DeviceError, match="no memory"):
        Session(opened(program), num_threads=1 << 10)


def test_no_memory_for_an_output_or_a_persistent_tensor_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self) -> None:
            raise MemoryError

    session = Session(opened(tiny_program()))
    monkeypatch.setattr(session, "_output_classes", [Full])
    with pytest.raises(DeviceError, match="no memory of 24 bytes for tensor 'y'"):
        session.run([X])
    monkeypatch.setattr("jitdelegate.runtime.io_binding.tensor_class", lambda dtype, shape: Full)
    with pytest.raises(DeviceError, match="no memory of 24 bytes for tensor 'x'"):
        session.invoke()


kept: Any = None
"""A module's value, which goes while the interpreter ends."""


def end_with_workers(seconds: str) -> None:
    global kept
    kept = Session(opened(tiny_program()), num_threads=3)
    kept.run([bytes(24)])
    time.sleep(float(seconds))


@pytest.mark.parametrize("seconds", ["0", "0.02"])
def test_a_process_ends_in_peace_with_workers_in_their_code(seconds: str) -> None:
    ended = in_child(end_with_workers, seconds)
    assert (ended.returncode, ended.stderr) == (0, "")
