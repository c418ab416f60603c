"""Entries are found, checked, healed and replaced; no trouble is raised."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import directory as directory_module
from jitdelegate.runtime.cache.store import Store, counts, open_store
from tests.entries import overwrite
from tests.runtime.cache.programs import MODEL_A, MODEL_B, Compiler, content, files, key


def entry(folder: Path) -> Path:
    """The only entry of a store."""
    (found,) = folder.glob("*.jitd")
    return found


def test_a_program_is_compiled_once_and_found_ever_after(store: Store, folder: Path) -> None:
    compiler = Compiler(key())
    first = store.fetch(key(), compiler)
    assert (first.hit, first.kind, first.write_failure) == (False, "absent", "")
    second = open_store(str(folder)).fetch(key(), compiler)
    assert (second.hit, second.kind, second.reason) == (True, "hit", "")
    assert second.path == str(entry(folder))
    assert second.program is not None and second.program == first.program
    assert write(second.program) == compiler.content
    assert compiler.calls == 1
    assert (counts.hits, counts.misses, counts.writes, counts.write_failures) == (1, {"absent": 1}, 1, 0)


def test_nothing_but_the_entry_is_left_in_a_private_directory(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    assert files(folder) == [key().entry_name()]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert entry(folder).stat().st_mode & 0o777 == 0o400


def test_entries_of_different_models_live_side_by_side(store: Store) -> None:
    for model in (MODEL_A, MODEL_B):
        store.fetch(key(model), Compiler(key(model)))
    assert store.get(key(MODEL_A)).hit and store.get(key(MODEL_B)).hit


def test_the_first_key_with_an_entry_is_found_and_counts_as_one_hit(store: Store) -> None:
    keys = [key(model) for model in ("c" * 32, MODEL_A, MODEL_B)]
    assert store.first(keys) is None and open_store(False).first(keys) is None
    for each in keys[1:]:
        store.fetch(each, Compiler(each))
    before = counts.hits, dict(counts.misses)
    found = store.first(keys)
    assert found is not None and found[0] is keys[1]
    assert found[1].hit and found[1].program is not None and found[1].program.key == keys[1].parts
    assert (counts.hits, counts.misses) == (before[0] + 1, before[1])


def damaged(content: bytes, number: int) -> bytearray:
    """One of many seeded flips (two of three) and truncations of a file's bytes."""
    chance, data = random.Random(number), bytearray(content)
    at = chance.randrange(len(data))
    if number % 3:
        data[at] ^= 1 << chance.randrange(8)
    else:
        del data[at:]
    return data


def test_every_damage_to_an_entry_is_found_and_healed(store: Store, folder: Path) -> None:
    compiler = Compiler(key(), weights=bytes(20000))
    store.fetch(key(), compiler)
    for number in range(1, 65):
        overwrite(entry(folder), damaged(compiler.content, number))
        try:
            lookup = store.fetch(key(), compiler)
            assert lookup.program is not None
            verify_weights(lookup.program)
        except ProgramError as error:
            store.refuse(key(), str(error))
            store.fetch(key(), compiler)
        assert compiler.calls == 1 + number
        assert entry(folder).read_bytes() == compiler.content
    assert counts.misses["damaged"] == 64


def test_an_empty_entry_is_damaged(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    overwrite(entry(folder), b"")
    lookup = store.get(key())
    assert (lookup.kind, lookup.hit) == ("damaged", False)
    assert "0 bytes" in lookup.reason


def test_a_refused_entry_is_counted_and_gone(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    store.refuse(key(), "weights differ")
    assert files(folder) == [] and counts.misses == {"absent": 1, "damaged": 1}


def test_two_models_under_one_token_live_side_by_side(store: Store, folder: Path) -> None:
    models = [key(model, token="my model") for model in (MODEL_A, MODEL_B)]
    for each in models:
        assert store.fetch(each, Compiler(each)).kind == "absent"
    for each in models:
        found = store.get(each)
        assert found.program is not None and found.program.part("model") == each.part("model")
    assert len(files(folder)) == 2 and all(name.startswith("my_model-") for name in files(folder))


def test_programs_of_two_toolchains_live_side_by_side(store: Store, folder: Path) -> None:
    first, second = key(toolchain="llvmlite 1"), key(toolchain="llvmlite 2")
    store.fetch(first, Compiler(first))
    lookup = store.fetch(second, Compiler(second))
    assert (lookup.kind, lookup.path) == ("toolchain", str(folder / second.entry_name()))
    assert lookup.reason == "the entry was compiled by llvmlite 1, llvmlite 2 is installed"
    assert store.get(first).hit and store.get(second).hit


def test_where_no_toolchain_is_installed_a_good_program_of_any_is_taken(store: Store, folder: Path) -> None:
    known = [key(toolchain=f"llvmlite {number}") for number in (1, 2)]
    for each in known:
        store.fetch(each, Compiler(each))
    assert store.get(key(toolchain="")).hit
    overwrite(folder / min(each.entry_name() for each in known), b"")
    assert store.get(key(toolchain="")).hit
    overwrite(folder / max(each.entry_name() for each in known), b"")
    assert store.get(key(toolchain="")).kind == "damaged"


def test_a_refused_program_of_any_toolchain_is_gone(store: Store, folder: Path) -> None:
    store.fetch(key(), Compiler(key()))
    store.refuse(key(toolchain=""), "weights differ")
    assert files(folder) == []


def test_an_entry_renamed_to_anothers_name_is_not_taken_for_it(store: Store, folder: Path) -> None:
    store.fetch(key(MODEL_A), Compiler(key(MODEL_A)))
    entry(folder).rename(folder / key(MODEL_B).entry_name())
    lookup = store.get(key(MODEL_B))
    assert (lookup.hit, lookup.kind) == (False, "model")


def test_an_open_entry_survives_its_replacement_and_removal(store: Store) -> None:
    compiler = Compiler(key(), weights=b"old" * 10000)
    store.fetch(key(), compiler)
    opened = store.get(key()).program
    assert opened is not None
    store.put(key(), content(key(), weights=b"new"))
    store.refuse(key(), "for the test")
    verify_weights(opened)
    assert bytes(opened.weights) == b"old" * 10000


def test_a_store_that_is_turned_off_compiles_each_time(tmp_path: Path) -> None:
    store, compiler = open_store(False), Compiler(key())
    for _ in range(2):
        lookup = store.fetch(key(), compiler)
        assert (lookup.hit, lookup.kind, lookup.path) == (False, "off", None)
        assert lookup.program is not None
    assert compiler.calls == 2 and counts.write_failures == 0


def test_the_users_cache_directory_is_the_default() -> None:
    store = open_store(None)
    assert store.directory is not None
    assert store.directory.path == str(Path(os.environ["XDG_CACHE_HOME"]) / "jitdelegate")


def test_what_a_compiler_raises_reaches_the_caller_and_frees_the_lock(store: Store, folder: Path) -> None:
    def fail() -> tuple[bytes]:
        raise ArithmeticError("no such kernel")

    with pytest.raises(ArithmeticError):
        store.fetch(key(), fail)
    assert files(folder) == []
    assert store.fetch(key(), Compiler(key()), longest_wait=0.0).program is not None
    assert counts.lock_timeouts == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace", "fchmod"])
def test_a_disk_that_refuses_costs_the_entry_and_nothing_else(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(directory_module.os, call, refuse)
        lookup = store.fetch(key(), Compiler(key()))
    assert lookup.program is not None
    assert os.strerror(number) in lookup.write_failure
    assert counts.write_failures == 1
    assert files(folder) == [] if call != "fsync" else True
    assert store.fetch(key(), Compiler(key())).write_failure == ""
    assert store.get(key()).hit


def test_short_writes_are_completed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(directory_module.os, "write", lambda descriptor, data: write(descriptor, data[:777]))
    store.fetch(key(), Compiler(key(), weights=bytes(5000)))
    assert store.get(key()).hit


def test_a_disk_that_takes_nothing_does_not_hang(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module.os, "write", lambda descriptor, data: 0)
    assert "nothing was written" in store.fetch(key(), Compiler(key())).write_failure


class Killed(BaseException):
    """Stands for the end of the process at one call."""


def test_a_writer_that_dies_anywhere_leaves_the_old_entry_or_the_new_one(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = content(key(), weights=b"old" * 100), content(key(), weights=b"new" * 100)
    calls = ("open", "fchmod", "write", "fsync", "close", "replace", "unlink")
    seen: set[bytes] = set()
    for after in range(2 * len(calls)):
        store.put(key(), old)
        left = [after]

        def die(name: str, real: Callable[..., object], left: list[int]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                left[0] -= 1
                if left[0] < 0:  # dead: nothing that comes later happens either
                    raise Killed(name)
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(directory_module.os, name, die(name, getattr(os, name), left))
            with contextlib.suppress(Killed):
                store.put(key(), new)
        found = (folder / key().entry_name()).read_bytes()
        assert found in (old, new)
        seen.add(found)
        assert store.get(key()).hit
    assert seen == {old, new}
