"""What killed processes leave goes at the next start; what living ones use stays."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jitdelegate.runtime.cache import litter
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.store import Store, open_store
from tests.runtime.cache.programs import Compiler, files, key


def hidden(folder: Path) -> list[str]:
    return sorted(name for name in files(folder) if name.startswith("."))


def hold(folder: str, held: int) -> None:
    """Hold a lock for ever."""
    Lock(open_cache_directory(folder), "entry.jitd").acquire(0.0)
    os.write(held, b".")
    signal.pause()


def write_in_parts(folder: str, written: int) -> None:
    """Write a part of a file, and wait for ever."""

    def parts() -> Iterator[bytes]:
        yield b"part"
        os.write(written, b".")
        signal.pause()

    open_cache_directory(folder)._write_new(".entry.jitd.0.tmp", parts(), mode=0o400, flush=False)


@pytest.fixture
def child(folder: Path) -> Iterator[Callable[[Callable[[str, int], None]], int]]:
    """Starts a process that does something, and gives its number once it has; it is killed in the end."""
    started: list[int] = []

    def start(work: Callable[[str, int], None]) -> int:
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            work(str(folder), writing)
            os._exit(1)
        started.append(process)
        os.close(writing)
        assert os.read(reading, 1) == b"."
        os.close(reading)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            kill(process)


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.mark.parametrize("work", [write_in_parts, hold])
def test_what_a_killed_process_left_goes_at_the_next_start_and_not_before(
    store: Store, folder: Path, child: Callable[..., int], work: Callable[[str, int], None]
) -> None:
    process = child(work)
    (left,) = hidden(folder)
    os.utime(folder / left, (0, 0))
    open_store(str(folder))
    assert hidden(folder) == [left]
    kill(process)
    open_store(str(folder))
    assert hidden(folder) == []


def test_a_temporary_file_that_may_not_be_locked_yet_stays_and_goes_later(store: Store, folder: Path) -> None:
    path = folder / ".entry.jitd.0.tmp"
    path.touch()
    open_store(str(folder))
    assert path.exists()
    os.utime(path, (0, 0))  # no change of the directory: it was not marked as swept
    open_store(str(folder))
    assert not path.exists()


def test_where_there_are_no_locks_age_tells(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(litter.fcntl, "flock", refuse)
    now = os.stat(folder).st_mtime
    for name, age in (("old", litter.STALE_AFTER + 10), ("new", litter.LOCKED_AFTER + 10)):
        for suffix in (".tmp", ".lock", ".staged"):
            (folder / f".{name}{suffix}").touch()
            os.utime(folder / f".{name}{suffix}", (now - age, now - age))
    open_store(str(folder))
    assert hidden(folder) == [".new.lock", ".new.staged", ".new.tmp"]


def test_other_files_stay(store: Store, folder: Path) -> None:
    for name in (".models", "x.tmp", ".x.txt"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    open_store(str(folder))
    assert sorted(files(folder)) == [".models", ".x.txt", "x.tmp"]


def test_a_directory_that_has_not_changed_is_not_read(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fetch(key(), Compiler(key()))
    open_store(str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(CacheDirectory, "names", lambda _: pytest.fail("the directory was read"))
        assert open_store(str(folder)).get(key()).hit
    (folder / ".entry.lock").touch()
    open_store(str(folder))
    assert hidden(folder) == []


def test_a_directory_that_its_owner_may_not_write_stays_as_it_is(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".entry.lock").touch()
    folder.chmod(0o500)
    before = os.stat(folder)
    monkeypatch.setattr(CacheDirectory, "names", lambda _: pytest.fail("the directory was read"))
    open_store(str(folder))
    assert os.stat(folder) == before and hidden(folder) == [".entry.lock"]
    folder.chmod(0o700)


@pytest.mark.parametrize("call", ["listdir", "utime", "unlink", "access"])
def test_a_failure_to_sweep_fails_nothing(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (folder / ".entry.lock").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        assert open_store(str(folder)).trouble == ""
    open_store(str(folder))
    assert hidden(folder) == []
