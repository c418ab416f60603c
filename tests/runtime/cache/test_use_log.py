"""The log of a directory's use: what processes did there adds up, damage does not count, and no hit waits for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import jitdelegate
from jitdelegate.runtime.cache import store as store_module
from jitdelegate.runtime.cache import use_log
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.store import Store, open_store, tally_of
from jitdelegate.runtime.cache.use_log import Log, append, read_log
from tests.child import answer_of
from tests.runtime.cache.programs import MODEL_B, Compiler, key

EARLY = 1_000_000_000


@pytest.fixture(autouse=True)
def nothing_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_tallies", {})


def hit_twice_and_miss(folder: str) -> None:
    for each in (key(), key(), key(MODEL_B)):
        open_store(folder).get(each)


def logged(folder: Path) -> Log:
    return read_log(open_cache_directory(str(folder)))


def test_what_processes_did_adds_up_when_they_end(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    for _ in range(2):
        answer_of(hit_twice_and_miss, folder)
    log = logged(folder)
    assert (log.hits, log.misses, [*log.uses]) == (4, {"absent": 3}, [key().entry_name()])


def test_a_hit_writes_nothing_before_the_process_ends(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fetch(key(), Compiler(key()))
    open_store(str(folder))
    with monkeypatch.context() as patch:
        for name in ("create", "append", "write"):
            patch.setattr(CacheDirectory, name, lambda *_, **__: pytest.fail("something is written"))
        hit_twice_and_miss(str(folder))
    assert logged(folder).hits == 0
    store_module._append_all()
    content = (folder / use_log.NAME).read_bytes()
    store_module._append_all()
    assert (folder / use_log.NAME).read_bytes() == content
    assert logged(folder).hits == 2 and open_cache_directory(str(folder)).is_swept()


def test_the_end_writes_nothing_where_nothing_may_be_written(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    hit_twice_and_miss(str(folder))
    (folder / use_log.NAME).unlink()
    folder.chmod(0o500)
    store_module._append_all()
    folder.chmod(0o700)
    assert not (folder / use_log.NAME).exists()
    shutil.rmtree(folder)
    store_module._append_all()
    assert not folder.exists()


def test_a_forked_process_counts_only_what_it_does_itself(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    store.get(key())
    process = os.fork()
    if not process:
        store.get(key())
        os._exit(tally_of(str(folder)).hits)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1


def damaged(content: bytes) -> Iterator[bytes]:
    yield b""
    yield os.urandom(1000)
    yield b"\n\n\t\t\n" + content[:-5]
    for at in range(0, len(content), 7):
        yield content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def test_a_damaged_line_does_not_count_and_others_do(store: Store, folder: Path) -> None:
    line, other = Log(5.0, 3, {"absent": 2}, 1, 9, {"a.jitd": 7.0}).line(), Log(9.0, 1).line()
    for bad in damaged(line):
        (folder / use_log.NAME).write_bytes(bad + b"\n" + other)
        assert logged(folder).hits == 1 and logged(folder).uses == {}
    (folder / use_log.NAME).write_bytes(line + other)
    log = logged(folder)
    assert (log.since, log.hits, log.misses, log.evictions) == (5, 4, {"absent": 2}, 1)
    assert (log.limit, log.uses) == (9, {"a.jitd": 7})


def test_a_log_that_is_no_file_reads_as_empty_and_fails_nothing(store: Store, folder: Path) -> None:
    (folder / use_log.NAME).symlink_to("/etc/passwd")
    assert logged(folder).hits == 0
    assert store.fetch(key(), Compiler(key())).write_failure == ""
    assert store.get(key()).hit and jitdelegate.cache_stats(folder)["hits"] == 1


def test_a_kind_of_miss_cannot_make_a_line_of_its_own(folder: Path, store: Store) -> None:
    assert store.directory is not None
    append(store.directory, Log(5.0, 1, {"a\n\t;=b": 2}))
    assert logged(folder).misses == {"a____b": 2}


def test_a_large_log_is_merged_and_keeps_what_counts(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_log, "LARGEST", 2000)
    store.fetch(key(), Compiler(key()))
    assert store.directory is not None
    for number in range(100):
        append(store.directory, Log(EARLY + number, 1, {"absent": 2}, 3, uses={f"{number}.jitd": EARLY}))
    log = logged(folder)
    assert (log.since, log.hits, log.misses, log.evictions) == (EARLY, 100, {"absent": 201}, 300)
    assert key().entry_name() in log.uses and len(log.uses) < 50
    assert (folder / use_log.NAME).stat().st_size <= 2000


def test_statistics_tell_what_is_there_and_what_was_done(store: Store, folder: Path) -> None:
    for each in (key(), key(MODEL_B)):
        store.fetch(each, Compiler(each))
        store.get(each)
    os.utime(folder / key().entry_name(), (EARLY, EARLY))
    found = jitdelegate.cache_stats(folder)
    assert (found["directory"], found["entries"], found["oldest"]) == (str(folder), 2, EARLY)
    assert found["bytes"] == sum(path.stat().st_size for path in folder.glob("*.jitd"))
    assert (found["hits"], found["misses"], found["evictions"]) == (2, {"absent": 2}, 0)
    assert found["last_used"] >= found["counted_since"] > EARLY


def test_statistics_make_no_directory(tmp_path: Path) -> None:
    found = jitdelegate.cache_stats(tmp_path / "nowhere")
    assert (found["entries"], found["hits"], found["counted_since"]) == (0, 0, None)
    assert not (tmp_path / "nowhere").exists()
