"""A directory with a limit keeps the programs that were used last, and each model runs whatever the limit is."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from jitdelegate.errors import CacheWarning
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import Program
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import parts
from jitdelegate.runtime.cache import limit, trouble
from jitdelegate.runtime.cache import store as store_module
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.key import Key, variant_parts
from jitdelegate.runtime.cache.lock import Lock
from jitdelegate.runtime.cache.store import Store, counts, open_store
from jitdelegate.runtime.cache.use_log import Log, append
from tests.runtime.cache.programs import Compiler, content, files, key

EARLY = 1_000_000_000
WEIGHTS = bytes(20_000)
SIZE = len(content(key(), WEIGHTS))
"""Bytes of one program."""
MAIN, OWN = os.urandom(20 * PAGE), os.urandom(16 * PAGE)


@pytest.fixture(autouse=True)
def nothing_was_done(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(store_module, "_tallies", {})
    monkeypatch.setattr(trouble, "_told", set())
    yield


def model(number: int) -> Key:
    return key(f"{number:032x}")


def limited(folder: Path, programs: float) -> Store:
    """A store in a directory for so many programs."""
    return open_store(str(folder), most_bytes=int(programs * SIZE))


def keep(store: Store, *numbers: int) -> None:
    for number in numbers:
        found = store.fetch(model(number), Compiler(model(number), WEIGHTS))
        assert found.program is not None and found.write_failure == ""


def kept(folder: Path) -> list[int]:
    return [int(name.partition("-")[0], 16) for name in files(folder)]


def used(folder: Path, when: float, *keys: Key) -> None:
    """As if a process had used the entries then."""
    for each in keys:
        os.utime(folder / each.entry_name(), (EARLY + when, EARLY + when))


def test_the_programs_that_were_not_used_for_longest_go(folder: Path) -> None:
    store = limited(folder, 4)
    keep(store, *range(4))
    assert kept(folder) == [0, 1, 2, 3]
    store.get(model(0))
    keep(store, 4, 5)
    assert kept(folder) == [0, 3, 4, 5] and counts.evictions == 2
    assert all(store.get(model(number)).hit for number in kept(folder))


def test_a_use_that_another_process_has_written_down_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = limited(folder, 3)
    keep(store, 0, 1, 2)
    monkeypatch.setattr(store_module, "_tallies", {})
    (folder / ".uses").unlink()
    used(folder, 0, *map(model, range(3)))
    append(open_cache_directory(str(folder)), Log(uses={model(0).entry_name(): time.time()}))
    keep(store, 3)
    assert 0 in kept(folder) and len(kept(folder)) == 3


def test_without_a_limit_all_stay(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "write_within", lambda *_: pytest.fail("there is no limit"))
    keep(store, *range(5))
    assert kept(folder) == [*range(5)]


def test_a_limit_that_one_program_does_not_fit_is_told_once_and_the_program_runs(folder: Path) -> None:
    keep(open_store(str(folder)), 9)
    store = limited(folder, 0.9)
    with pytest.warns(CacheWarning) as warned:
        for number in range(3):
            found = store.fetch(model(number), Compiler(model(number), WEIGHTS))
            assert found.program is not None
            verify_weights(found.program)
            assert f"it needs {SIZE} bytes, but cache_max_bytes allows {int(0.9 * SIZE)}" in found.write_failure
    (one,) = warned
    assert "What helps: a larger cache_max_bytes or none, or another serialization_dir" in str(one.message)
    assert kept(folder) == [9] and counts.evictions == 0


def test_an_open_program_outlives_its_entry(folder: Path) -> None:
    store = limited(folder, 1)
    keep(store, 0)
    program = store.get(model(0)).program
    keep(store, 1)
    assert kept(folder) == [1] and program is not None
    verify_weights(program)


def further(subgraph: int, *shapes: int) -> Key:
    return Key((*key().parts, *variant_parts(subgraph, tuple((size,) for size in shapes))))


def share(store: Store, each: Key, weights: bytes = MAIN) -> int:
    """Store a program that shares what it can with its sources; the pages that it shares."""

    def compile() -> tuple[object, ...]:
        program = Program(key=each.parts, target="cpu", code=b"\xc3" * 10, weights=weights)
        return tuple(parts(program, store.weight_sources(each)))

    found = store.fetch(each, compile).program  # type: ignore[arg-type]
    assert found is not None
    verify_weights(found)
    assert bytes(found.weights) == weights
    return sum(pages for *_, pages in found.shared)


CHAIN = [key(), further(1), further(1, 5)]
"""A main program, one that shares its weights, and one that shares those of both."""
WHOLE = [MAIN, MAIN + OWN, MAIN + OWN + b"2" * PAGE]


def test_a_program_goes_after_those_that_share_its_weights(folder: Path) -> None:
    store = open_store(str(folder), most_bytes=10**6)
    assert [share(store, *pair) for pair in zip(CHAIN, WHOLE, strict=True)] == [0, 20, 36]
    keep(store, 7)
    store_module._tallies.clear()
    (folder / ".uses").unlink()
    for number, each in enumerate(CHAIN):  # the main program longest ago
        used(folder, number, each)
    used(folder, 1, model(7))
    sizes = {each.entry_name(): (folder / each.entry_name()).stat().st_size for each in (*CHAIN, model(7))}
    gone = []
    for number in range(4):
        before = set(files(folder))
        store.most_bytes = sum((folder / name).stat().st_size for name in before) + SIZE - 1
        keep(store, 100 + number)
        (name,) = before - set(files(folder))
        gone.append(name)
        used(folder, 1000 + number, model(100 + number))
    assert gone == [each.entry_name() for each in (model(7), *reversed(CHAIN))], sizes


def test_the_sources_of_the_program_that_was_just_stored_stay(folder: Path) -> None:
    store = open_store(str(folder), most_bytes=10**6)
    share(store, CHAIN[0])
    keep(store, 7)
    used(folder, 0, CHAIN[0])
    used(folder, 1, model(7))
    store.most_bytes = (folder / CHAIN[0].entry_name()).stat().st_size + 20 * PAGE
    share(store, CHAIN[1], WHOLE[1])
    assert set(files(folder)) == {each.entry_name() for each in CHAIN[:2]}


def test_a_program_that_fits_only_without_its_sources_is_not_stored(folder: Path) -> None:
    store = open_store(str(folder), most_bytes=10**6)
    share(store, CHAIN[0])
    keep(store, 7)
    store.most_bytes = (folder / CHAIN[0].entry_name()).stat().st_size + SIZE
    assert store.most_bytes < 36 * PAGE
    with pytest.warns(CacheWarning, match="cache_max_bytes allows"):
        share(store, CHAIN[1], WHOLE[1])
    assert set(files(folder)) == {CHAIN[0].entry_name(), model(7).entry_name()}  # others need not go for it


def test_a_program_whose_source_was_removed_has_all_its_weights(folder: Path) -> None:
    store = open_store(str(folder), most_bytes=10**6)
    share(store, CHAIN[0])
    store.refuse(CHAIN[0], "for the test")
    assert share(store, CHAIN[1], WHOLE[1]) == 0


@pytest.mark.parametrize("call", ["names", "looking"])
def test_a_failure_to_make_room_fails_no_model(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = limited(folder, 2)
    keep(store, 0, 1)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(CacheDirectory, call, fail)
        patch.setattr(trouble, "_told", {str(folder)})
        assert store.fetch(model(2), Compiler(model(2), WEIGHTS)).program is not None
    keep(store, 3)
    assert len(kept(folder)) == 2


def test_a_process_that_holds_the_limit_for_ever_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "LONGEST_WAIT", 0.05)
    store = limited(folder, 2)
    assert store.directory is not None
    neighbour = Lock(store.directory, "limit")
    assert neighbour.acquire(0.0)
    keep(store, 0, 1, 2)
    neighbour.release()
    assert kept(folder) == [1, 2]


def work(folder: str, seed: int) -> int:
    """Fetch models by chance; the largest size of the directory that was seen."""
    chance, store, largest = random.Random(seed), limited(Path(folder), 5), 0
    for _ in range(40):
        keep(store, chance.randrange(12))
        sizes = (entry.stat().st_size for entry in Path(folder).glob("*.jitd") if entry.exists())
        try:
            largest = max(largest, sum(sizes))
        except FileNotFoundError:
            continue  # one went meanwhile
    return largest


def test_processes_that_store_at_the_same_time_keep_the_limit(folder: Path) -> None:
    with get_context("fork").Pool(4) as pool:
        largest = max(pool.starmap(work, [(str(folder), seed) for seed in range(4)]))
    assert 5 * SIZE <= largest <= 6 * SIZE
    assert len(kept(folder)) == 5
