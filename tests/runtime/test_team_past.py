"""What a session's team found out goes on in another process, and never changes a result."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cpu import team_past
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import machine
from jitdelegate.tflite.write import ModelBuilder
from tests.child import answer_of
from tests.runtime.tiny import opened, tiny_program

pytestmark = pytest.mark.skipif(not machine(), reason="no machine code for this processor and system")
UNKNOWN = [0, 0, 0, 0, 0]
LEARNT = [1, 0, 70, 800, 90]
"""Runs are alone, this is no trial, ticks since the last one, ticks until the next one, ticks of a run."""


@pytest.fixture
def directory(tmp_path: Path) -> CacheDirectory:
    return open_cache_directory(str(tmp_path / "programs"))


def words_of(session: Session) -> ctypes.Array[ctypes.c_int64]:
    assert session._memory is not None
    return (5 * ctypes.c_int64).from_address(session._memory.learnt)


def started(directory: CacheDirectory | None, threads: int = 2) -> Session:
    session = Session(opened(tiny_program()), threads)
    session.recall(directory)
    return session


def known(directory: CacheDirectory, threads: int = 2) -> list[int]:
    """The words with which a session begins."""
    session = started(directory, threads)
    words = list(words_of(session))
    session.close()
    return words


def learn(directory: CacheDirectory | None, words: list[int], threads: int = 2) -> None:
    """A session that finds this out, and ends."""
    session = started(directory, threads)
    words_of(session)[:] = words
    session.close()
    session.close()


def test_a_session_begins_where_the_last_one_ended(directory: CacheDirectory) -> None:
    assert known(directory) == UNKNOWN
    learn(directory, LEARNT)
    assert known(directory) == LEARNT


def test_it_is_another_past_with_other_threads_cpus_or_code(
    directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(directory, LEARNT)
    assert known(directory, threads=3) == UNKNOWN
    learn(directory, [0, *LEARNT[1:]], threads=3)
    assert (known(directory), known(directory, threads=3)) == (LEARNT, [0, *LEARNT[1:]])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 9})
    assert known(directory) == UNKNOWN


def test_another_machine_has_a_past_of_its_own(
    directory: CacheDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(directory, LEARNT)
    monkeypatch.setattr(team_past, "BOOT_ID", str(tmp_path / "none"))
    assert known(directory) == UNKNOWN
    learn(directory, LEARNT)
    assert known(directory) == LEARNT


def test_a_trial_is_not_kept(directory: CacheDirectory) -> None:
    learn(directory, [0, 1, *LEARNT[2:]])
    assert known(directory) == UNKNOWN


@pytest.mark.parametrize(("passed", "writes"), [(70, 0), (150, 0), (180, 1)])
def test_it_is_written_rarely(
    directory: CacheDirectory, passed: int, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(directory, LEARNT)
    written = []
    monkeypatch.setattr(CacheDirectory, "write", lambda *_, **__: written.append(1))
    learn(directory, [*LEARNT[:2], passed, *LEARNT[3:]])
    assert len(written) == writes


def test_damage_reads_as_nothing(directory: CacheDirectory, tmp_path: Path) -> None:
    learn(directory, LEARNT)
    path = tmp_path / "programs" / team_past.NAME
    content = path.read_bytes()
    for number in range(len(content)):
        path.write_bytes(content[:number] + bytes([content[number] ^ 1]) + content[number + 1 :])
        assert known(directory) == UNKNOWN
    path.write_bytes(content[:-1])
    assert known(directory) == UNKNOWN
    learn(directory, LEARNT)
    assert known(directory) == LEARNT


def test_without_a_directory_that_takes_it_nothing_is_kept(
    directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    learn(None, LEARNT)
    monkeypatch.setattr(CacheDirectory, "write", refuse)
    learn(directory, LEARNT)
    assert known(directory) == UNKNOWN


def test_the_file_keeps_the_newest(directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_past, "LARGEST", 2)
    for threads in (2, 3, 2, 4):
        learn(directory, [0, 0, 0, 100 * threads, 1 + len(known(directory, threads))], threads)
        learn(directory, [1, 0, 0, 100 * threads, 1], threads)
    assert [known(directory, threads)[0] for threads in (2, 3, 4)] == [1, 0, 1]


def test_a_forked_child_begins_with_it_too(directory: CacheDirectory) -> None:
    learn(directory, LEARNT)
    session = started(directory)
    child = os.fork()
    if not child:
        session.run([bytes(24)])
        os._exit(list(words_of(session)) != LEARNT)
    assert os.waitpid(child, 0)[1] == 0
    session.close()


def end_without_closing(folder: str) -> None:
    global kept
    kept = started(open_cache_directory(folder))
    words_of(kept)[:] = LEARNT


kept: Session | None = None
"""A module's value, which goes while the interpreter ends."""


def test_it_is_kept_where_python_ends_without_closing(directory: CacheDirectory) -> None:
    answer_of(end_without_closing, directory.path)
    assert known(directory) == LEARNT


def rows(count: int) -> bytes:
    """f32[count,64] -> FULLY_CONNECTED -> f32[count,64]"""
    model = ModelBuilder()
    weights = model.constant(np.ones((64, 64), np.float32))
    model.output(model.op("FULLY_CONNECTED", [model.input((count, 64)), weights, None], (count, 64)))
    return model.finish()


@pytest.mark.parametrize(("count", "has_team"), [(4096, True), (4, False)])
def test_a_model_goes_on_in_the_way_that_was_faster(tmp_path: Path, count: int, has_team: bool) -> None:
    """Through `load`; a program that threads do not share looks for no past."""
    value, expected = np.ones((count, 64), np.float32), np.full((count, 64), 64, np.float32)
    for number in range(2):
        model = jitdelegate.load(rows(count), serialization_dir=tmp_path, num_threads=2)
        session = model._opened.session
        assert isinstance(session, Session)
        assert (session._past is not None) is has_team
        if has_team:
            assert list(words_of(session)) == (LEARNT if number else UNKNOWN)
        np.testing.assert_array_equal(model(value), expected)
        if has_team:
            words_of(session)[:] = LEARNT
        model.close()
    assert (tmp_path / team_past.NAME).exists() is has_team
