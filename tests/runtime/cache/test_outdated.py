"""Entries of other compilers and versions go when nobody has used them for long, and others never do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jitdelegate.program.program import Program
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import store as store_module
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.key import FORMAT, GENERATORS, TOOLCHAIN, Key, KeyParts, model_key, this_machine
from jitdelegate.runtime.cache.outdated import UNUSED
from jitdelegate.runtime.cache.output_folder import open_output
from jitdelegate.runtime.cache.store import Store, counts
from jitdelegate.runtime.cache.use_log import Log, append
from tests.runtime.cache.programs import MODEL_B, Compiler, files, key

GPU = model_key("d" * 32, KeyParts("cuda", "sm_90", "cubin", this_machine(), toolchain="numba-cuda 1"))
OUTDATED = {
    "of an older compiler": key(toolchain="llvmlite 0"),
    "of another program's older compiler": key("c" * 32, toolchain="llvmlite 0"),
    "of an older generator": key().changed(GENERATORS, "older"),
    "of an older format": key().changed(FORMAT, "0"),
}
OTHERS = {
    "of this compiler": key(),
    "of another target": GPU,
}


@pytest.fixture(autouse=True)
def nothing_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_tallies", {})


def stored_long_ago(folder: Path, each: Key, age: float = UNUSED + 60) -> Path:
    path = folder / each.entry_name()
    path.write_bytes(write(Program(key=each.parts, target=each.part("target"), code=b"\xc3" * 10, weights=b"w")))
    path.chmod(0o400)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def store_another(store: Store) -> None:
    store.fetch(key(MODEL_B), Compiler(key(MODEL_B)))


@pytest.mark.parametrize("each", OUTDATED.values(), ids=OUTDATED)
def test_an_outdated_entry_that_nobody_used_for_long_goes_at_a_write(store: Store, folder: Path, each: Key) -> None:
    path = stored_long_ago(folder, each)
    store.get(key(MODEL_B))
    assert path.exists()
    store_another(store)
    assert not path.exists() and counts.evictions == 1


@pytest.mark.parametrize("each", OUTDATED.values(), ids=OUTDATED)
def test_in_a_folder_for_others_nobody_knows_what_is_used(folder: Path, each: Key) -> None:
    store = open_output(str(folder))
    path = stored_long_ago(folder, each)
    store_another(store)
    assert path.exists()


@pytest.mark.parametrize("each", OUTDATED.values(), ids=OUTDATED)
def test_an_outdated_entry_that_was_used_stays(store: Store, folder: Path, each: Key) -> None:
    path = stored_long_ago(folder, each, UNUSED - 60)
    store_another(store)
    assert path.exists()
    path.unlink()
    path = stored_long_ago(folder, each)
    append(open_cache_directory(str(folder)), Log(uses={path.name: time.time()}))
    store_another(store)
    store.refuse(key(MODEL_B), "for the test")
    store_another(store)
    assert path.exists()


@pytest.mark.parametrize("each", OTHERS.values(), ids=OTHERS)
def test_other_entries_stay_however_old(store: Store, folder: Path, each: Key) -> None:
    path = stored_long_ago(folder, each)
    store_another(store)
    assert path.exists()


def test_entries_that_cannot_be_read_as_programs_go_too(store: Store, folder: Path) -> None:
    path = folder / "nothing.jitd"
    path.write_bytes(b"of a format of which nobody knows")
    os.utime(path, (0, 0))
    store_another(store)
    assert files(folder) == [key(MODEL_B).entry_name()]


def test_a_hit_looks_for_none(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_another(store)
    path = stored_long_ago(folder, key(toolchain="llvmlite 0"))
    assert key().part(TOOLCHAIN) == "llvmlite 1"
    monkeypatch.setattr(CacheDirectory, "names", lambda _: pytest.fail("the directory was read"))
    assert store.get(key(MODEL_B)).hit and path.exists()
