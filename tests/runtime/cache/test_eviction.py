"""A directory keeps the programs of the shapes that were used last, whatever others do there meanwhile."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from jitdelegate.runtime.cache import eviction, store, use_log
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.eviction import MOST_STORED, evict
from jitdelegate.runtime.cache.key import Key, variant_parts
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.store import Store, counts, open_store, tally_of
from tests.runtime.cache.programs import MODEL_A, MODEL_B, Compiler, files, key

EARLY = 1_000_000_000


def further(batch: int, *, model: str = MODEL_A, subgraph: int = 0, **rest: object) -> Key:
    """The key of a program for another batch size."""
    base = key(model)
    return Key((*base.parts, *variant_parts(subgraph, ((batch, 3),), **rest)))  # type: ignore[arg-type]


def stored(cache: Store, *keys: Key) -> None:
    for each in keys:
        cache.fetch(each, Compiler(each))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.jitd")}


def last_used(folder: Path, each: Key, when: float) -> None:
    """As if the last process had used the entry then, and written down nothing."""
    (folder / use_log.NAME).unlink(missing_ok=True)
    tally_of(str(folder)).uses.pop(each.entry_name(), None)
    os.utime(folder / each.entry_name(), (EARLY + when, EARLY + when))


@pytest.fixture
def full(store: Store, folder: Path) -> list[Key]:
    """As many programs as are kept, used in this order."""
    keys = [further(batch) for batch in range(MOST_STORED)]
    stored(store, *keys)
    for number, each in enumerate(keys):
        last_used(folder, each, number)
    return keys


def test_a_new_shape_at_every_call_leaves_a_bounded_number_of_entries(store: Store, folder: Path) -> None:
    stored(store, key(), *(further(batch) for batch in range(3 * MOST_STORED)))
    expected = {further(batch).entry_name() for batch in range(2 * MOST_STORED, 3 * MOST_STORED)}
    assert names(folder) == {key().entry_name(), *expected}
    assert counts.evictions == 2 * MOST_STORED and not [name for name in files(folder) if name[0] == "."]


def test_values_count_as_shapes_do(store: Store, folder: Path) -> None:
    values = [Key((*key().parts, *variant_parts(0, values=((1, (each,)),)))) for each in range(MOST_STORED)]
    stored(store, further(1), *values)
    assert names(folder) == {each.entry_name() for each in values}


def test_the_entries_of_a_shape_are_kept_or_removed_together(store: Store, folder: Path) -> None:
    groups = [[further(batch, nodes=(node,)) for node in range(3)] for batch in range(MOST_STORED + 1)]
    stored(store, *(each for group in groups for each in group))
    assert names(folder) == {each.entry_name() for group in groups[1:] for each in group}


def test_what_was_not_used_for_longest_goes_first(store: Store, folder: Path, full: list[Key]) -> None:
    last_used(folder, full[0], MOST_STORED)
    stored(store, further(1000), further(1001))
    assert names(folder) == {each.entry_name() for each in (full[0], *full[3:], further(1000), further(1001))}


def test_a_use_that_the_file_system_does_not_keep_counts(store: Store, folder: Path, full: list[Key]) -> None:
    assert store.get(full[0]).hit and open_store(str(folder)).fetch(full[1], Compiler(full[1])).hit
    for number, each in enumerate(full[:2]):
        os.utime(folder / each.entry_name(), (EARLY + number, EARLY + number))
    stored(store, further(1000))
    assert names(folder) == {each.entry_name() for each in (*full[:2], *full[3:], further(1000))}


def test_looking_at_entries_is_no_use_of_them(store: Store, folder: Path, full: list[Key]) -> None:
    before = {path.name: path.stat().st_atime_ns for path in folder.glob("*.jitd")}
    stored(store, further(1000))
    assert names(folder) == {each.entry_name() for each in (*full[1:], further(1000))}
    assert {each.entry_name(): before[each.entry_name()] for each in full[1:]} == {
        each.entry_name(): (folder / each.entry_name()).stat().st_atime_ns for each in full[1:]
    }


OTHERS = {
    "the main program": key(),
    "another model": key(MODEL_B),
    "a shape of another model": further(1, model=MODEL_B),
    "another subgraph": Key((*key().parts, *variant_parts(1))),
    "a shape of another subgraph": further(1, subgraph=1),
    "LiteRT's program": Key((*key().parts, *variant_parts(0, hosted=True))),
    "a shape in LiteRT's interpreter": further(1, hosted=True),
    "a group of LiteRT's": Key((*key().parts, *variant_parts(0, nodes=(1, 2)))),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_programs_are_left(store: Store, folder: Path, full: list[Key], other: Key) -> None:
    stored(store, other)
    os.utime(folder / other.entry_name(), (1, 1))
    stored(store, *(further(batch) for batch in range(1000, 1002)))
    assert other.entry_name() in names(folder) and len(names(folder)) == MOST_STORED + 1


def test_an_entry_that_another_process_is_making_is_left(store: Store, folder: Path, full: list[Key]) -> None:
    lock = Lock(open_cache_directory(str(folder)), full[0].entry_name())
    assert lock.acquire(1)
    stored(store, further(1000))
    lock.release()
    assert full[0].entry_name() in names(folder) and len(names(folder)) == MOST_STORED + 1
    stored(store, further(1001))
    assert full[0].entry_name() not in names(folder) and len(names(folder)) == MOST_STORED


def test_an_entry_that_was_replaced_meanwhile_is_left(
    store: Store, folder: Path, full: list[Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Lock.acquire

    def acquire(lock: Lock, longest_wait: float, *rest: float) -> bool:
        if longest_wait == 0:
            content = (folder / full[0].entry_name()).read_bytes()
            (folder / "new").write_bytes(content)
            os.replace(folder / "new", folder / full[0].entry_name())
        return real(lock, longest_wait, *rest)

    monkeypatch.setattr(Lock, "acquire", acquire)
    stored(store, further(1000))
    assert full[0].entry_name() in names(folder)


def test_bad_entries_and_strange_names_are_left(store: Store, folder: Path, full: list[Key]) -> None:
    strange = [f"{MODEL_A}-nothing.jitd", f"{MODEL_A}-{'0' * 32}.jitd"]
    (folder / strange[0]).write_bytes(b"nothing")
    (folder / strange[1]).mkdir()
    stored(store, further(1000))
    assert names(folder) == {each.entry_name() for each in (*full[1:], further(1000))} | set(strange)


def test_a_hit_looks_at_no_other_entry(store: Store, full: list[Key], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheDirectory, "names", lambda _: pytest.fail("the directory was read"))
    monkeypatch.setattr(eviction, "evict", lambda *_: pytest.fail("evicted"))
    assert all(store.fetch(each, Compiler(each)).hit for each in full)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()])
def test_a_failure_to_evict_fails_nothing(
    store: Store, folder: Path, full: list[Key], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(CacheDirectory, "looking", fail)
        lookup = store.fetch(further(1000), Compiler(further(1000)))
        assert lookup.program is not None and not lookup.write_failure
    assert len(names(folder)) == MOST_STORED + 1
    stored(store, further(1001))
    assert len(names(folder)) == MOST_STORED


def storm(folder: str, first: int) -> None:
    cache = open_store(folder)
    for batch in range(first, first + 2 * MOST_STORED):
        each = further(batch)
        lookup = cache.fetch(each, Compiler(each))
        assert lookup.program is not None and dict(lookup.program.key) == dict(each.parts)


def test_processes_that_store_at_the_same_time_leave_as_many(folder: Path) -> None:
    stored(open_store(str(folder)), key())
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=storm, args=(str(folder), 20 * number)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    stored(open_store(str(folder)), further(1000))
    assert len(names(folder)) == 1 + MOST_STORED and key().entry_name() in names(folder)
    assert evict(open_cache_directory(str(folder)), further(1000), {}, store.open_front) == 0
