"""Many processes share one directory: one compiles, all see whole programs."""

from __future__ import annotations

import fcntl
import os
import resource
import time
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest

from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import lock as lock_module
from jitdelegate.runtime.cache import store as store_module
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.store import Store, counts, open_store
from tests.runtime.cache.programs import Compiler, content, files, key

PROCESSES = get_context("fork")
ROUNDS = 20
LONGEST_SILENCE = 0.5
"""Seconds, in place of the store's."""


def run_together(work, arguments: list[tuple]) -> list:  # type: ignore[no-untyped-def,type-arg]
    """What `work` answers, called in one process per tuple of arguments."""
    with PROCESSES.Pool(len(arguments)) as pool:
        return pool.starmap(work, arguments, chunksize=1)


def start_cold(folder: str, log: str, start: float) -> bytes:
    time.sleep(max(0.0, start - time.time()))

    def compile_slowly() -> tuple[bytes]:
        with open(log, "a") as file:
            file.write("compiled\n")
        time.sleep(0.3)
        return (content(key()),)

    lookup = open_store(folder).fetch(key(), compile_slowly)
    assert lookup.program is not None
    return write(lookup.program)


def test_processes_that_start_together_compile_once(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = run_together(start_cold, [(str(folder), str(log), time.time() + 0.3)] * 6)
    assert set(found) == {content(key())}
    assert log.read_text() == "compiled\n"
    assert files(folder) == [key().entry_name()]


def test_without_locks_they_compile_more_and_are_right_all_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module.fcntl, "flock", lambda *_: None)
    log = tmp_path / "log"
    found = run_together(start_cold, [(str(folder), str(log), time.time() + 0.3)] * 4)
    assert set(found) == {content(key())}
    assert open_store(str(folder)).get(key()).hit


def write_often(folder: str, number: int) -> int:
    store = open_store(folder)
    return sum(store.put(key(), content(key(), weights=bytes([number]) * 30_000)) == "" for _ in range(ROUNDS))


def read_often(folder: str, _: int) -> int:
    store, whole = open_store(folder), 0
    for _ in range(5 * ROUNDS):
        program = store.get(key()).program
        assert program is not None
        verify_weights(program)
        whole += len(set(bytes(program.weights))) == 1
    return whole


def work(folder: str, number: int) -> int:
    return write_often(folder, number) if number < 3 else read_often(folder, number)


def test_readers_see_whole_programs_while_others_write(store: Store, folder: Path) -> None:
    write_often(str(folder), 9)
    found = run_together(work, [(str(folder), number) for number in range(6)])
    assert found == 3 * [ROUNDS] + 3 * [5 * ROUNDS]


def test_a_neighbour_that_holds_the_lock_for_ever_is_not_waited_for(store: Store) -> None:
    assert store.directory is not None
    neighbour = Lock(store.directory, key().entry_name())
    assert neighbour.acquire(0.0)
    lookup = store.fetch(key(), Compiler(key()), longest_wait=0.05)
    assert lookup.program is not None and counts.lock_timeouts == 1
    neighbour.release()
    assert store.get(key()).hit


def compile_long(folder: str, log: str, start: float, is_busy: bool) -> bool:
    """A start whose compilation takes several times the silence that ends others' waiting."""
    time.sleep(max(0.0, start - time.time()))

    def compile_for_long() -> tuple[bytes]:
        with open(log, "a") as file:
            file.write("compiled\n")
        until = time.monotonic() + 4 * LONGEST_SILENCE
        while time.monotonic() < until:
            if not is_busy:
                time.sleep(LONGEST_SILENCE)
        return (content(key()),)

    return open_store(folder).fetch(key(), compile_for_long).program is not None


@pytest.mark.parametrize(("is_busy", "compiled"), [(True, 1), (False, 3)], ids=["it computes", "it hangs"])
def test_others_wait_as_long_as_the_one_that_compiles_computes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool, compiled: int
) -> None:
    monkeypatch.setattr(store_module, "LONGEST_SILENCE", LONGEST_SILENCE)
    monkeypatch.setattr(lock_module, "BEAT", LONGEST_SILENCE / 20)
    log = tmp_path / "log"
    arguments = [(str(folder), str(log), time.time() + 0.3, is_busy)] * 3
    assert all(run_together(compile_long, arguments))
    assert log.read_text() == compiled * "compiled\n"


def hold(folder: str, held: int) -> None:
    """Take the lock and compile for ever."""
    store = open_store(folder)
    assert store.directory is not None
    lock = Lock(store.directory, key().entry_name())
    assert lock.acquire(0.0)
    with lock.beating():
        os.write(held, b".")
        while True:
            pass


@pytest.mark.parametrize("signal", [SIGSTOP, SIGKILL])
def test_a_stopped_or_killed_neighbour_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, folder: Path, signal: int
) -> None:
    monkeypatch.setattr(store_module, "LONGEST_SILENCE", LONGEST_SILENCE)
    monkeypatch.setattr(lock_module, "BEAT", LONGEST_SILENCE / 20)
    reading, writing = os.pipe()
    neighbour = PROCESSES.Process(target=hold, args=(str(folder), writing))
    neighbour.start()
    assert neighbour.pid is not None and os.read(reading, 1) == b"."
    os.kill(neighbour.pid, signal)
    try:
        assert store.fetch(key(), Compiler(key())).program is not None
        assert counts.lock_timeouts == (signal == SIGSTOP)
    finally:
        neighbour.kill()
        neighbour.join()
        os.close(reading)
        os.close(writing)


def test_a_lock_is_free_after_release_and_leaves_no_file(store: Store, folder: Path) -> None:
    assert store.directory is not None
    first, second = Lock(store.directory, "entry"), Lock(store.directory, "entry")
    assert first.acquire(0.0) and not second.acquire(0.0)
    first.release()
    assert second.acquire(0.0)
    second.release()
    assert files(folder) == []


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.directory is not None
    real, removed = fcntl.flock, []

    def flock_after_removal(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(1)
            (folder / ".entry.lock").unlink()
        real(descriptor, operation)

    monkeypatch.setattr(lock_module.fcntl, "flock", flock_after_removal)
    held = Lock(store.directory, "entry")
    assert held.acquire(1.0)
    assert not Lock(store.directory, "entry").acquire(0.0)


@pytest.mark.parametrize("error", [OSError(38, "no locks here"), PermissionError(13, "read-only")])
def test_a_system_without_locks_compiles_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(lock_module.fcntl, "flock", refuse)
    assert store.fetch(key(), Compiler(key())).write_failure == ""
    assert store.get(key()).hit


def fill(folder: str, limit: int) -> tuple[str, bool]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    lookup = open_store(folder).fetch(key(), Compiler(key(), weights=bytes(100_000)))
    return lookup.write_failure, lookup.program is not None


def test_a_file_size_limit_costs_the_entry_only(folder: Path) -> None:
    ((failure, compiled),) = run_together(fill, [(str(folder), 20_000)])
    assert "File too large" in failure and compiled
    assert files(folder) == []
