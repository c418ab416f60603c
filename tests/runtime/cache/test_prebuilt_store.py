"""Prebuilt folders are looked into first, in their order, and stay as they are whatever happens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest

from jitdelegate.errors import CacheWarning
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import Program
from jitdelegate.program.write import parts
from jitdelegate.runtime.cache import key as keys
from jitdelegate.runtime.cache import memo, trouble
from jitdelegate.runtime.cache import store as store_module
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.key import SUFFIX, Key, variant_parts
from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore
from jitdelegate.runtime.cache.store import Store, counts, open_store
from tests.entries import overwrite
from tests.runtime.cache.programs import MODEL_B, Compiler, content, key

NAME = key().entry_name()
FURTHER = Key((*key().parts, *variant_parts(0, ((2, 2),))))
MAIN, REST = os.urandom(40 * PAGE), os.urandom(3 * PAGE)


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", set())


def entries(folder: Path) -> list[str]:
    """Names of programs."""
    return [path.name for path in folder.glob(f"*{SUFFIX}")]


@pytest.fixture
def prebuilt(tmp_path: Path) -> Path:
    """A prebuilt folder that has a program."""
    return filled(tmp_path / "prebuilt", key())


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The own directory, which is not there yet."""
    return tmp_path / "own"


def filled(folder: Path, *stored: Key, weights: bytes = b"weights") -> Path:
    """A folder with programs."""
    for one in stored:
        assert open_store(str(folder)).put(one, content(one, weights)) == ""
    counts.reset()
    return folder


def layered(*folders: Path, own: Path | None = None) -> Store:
    """A store of prebuilt folders before the own one; None is no own one."""
    return PrebuiltStore(list(map(str, folders)), False if own is None else str(own))


@contextmanager
def untouched(*folders: Path) -> Iterator[None]:
    """Nothing is written, locked, removed or given another mode there meanwhile."""
    before = list(map(_state, folders))
    yield
    assert list(map(_state, folders)) == before


def _state(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {path.name: path.lstat() for path in (folder, *folder.iterdir())}
    return {name: (one.st_ino, one.st_mode, one.st_mtime_ns, one.st_ctime_ns) for name, one in found.items()}


def test_a_program_comes_from_the_first_folder_that_has_it(tmp_path: Path, own: Path) -> None:
    first = filled(tmp_path / "first", key())
    second = filled(tmp_path / "second", key(), key(MODEL_B))
    with untouched(first, second):
        store = layered(first, second, own=own)
        found = [store.get(one).path for one in (key(), key(MODEL_B))]
    assert found == [str(first / NAME), str(second / key(MODEL_B).entry_name())]
    assert (counts.hits, counts.misses) == (2, {})
    assert not own.exists()


def test_what_no_folder_has_is_compiled_into_the_own_directory(prebuilt: Path, own: Path) -> None:
    compiler = Compiler(key(MODEL_B))
    with untouched(prebuilt):
        lookup = layered(prebuilt, own=own).fetch(key(MODEL_B), compiler)
        again = layered(prebuilt, own=own).fetch(key(MODEL_B), compiler)
    assert (lookup.hit, lookup.kind, again.hit, compiler.calls) == (False, "absent", True, 1)
    assert entries(own) == [key(MODEL_B).entry_name()]


def test_without_an_own_directory_a_miss_is_compiled_each_time(prebuilt: Path) -> None:
    compiler = Compiler(key(MODEL_B))
    with untouched(prebuilt, prebuilt.parent):
        for _ in range(2):
            lookup = layered(prebuilt).fetch(key(MODEL_B), compiler)
            assert (lookup.kind, lookup.path) == ("absent", None)
            assert lookup.reason == "no prebuilt folder has an entry for it, and the cache is turned off"
            assert lookup.program is not None and lookup.write_failure == lookup.reason
        assert layered(prebuilt).get(key()).hit
    assert compiler.calls == 2


def test_users_without_a_home_are_told_so_only_where_something_is_not_stored(
    prebuilt: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def no_home(*_: object, **__: object) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(platformdirs, "user_cache_dir", no_home)
    store = PrebuiltStore([str(prebuilt)], None)
    assert store.fetch(key(), Compiler(key())).hit
    assert store.first([key(MODEL_B), key()])
    assert not recwarn.list
    with pytest.warns(CacheWarning, match="the user has no cache directory.*set HOME"):
        lookup = store.fetch(key(MODEL_B), Compiler(key(MODEL_B)))
    assert (lookup.kind, lookup.program is not None) == ("directory", True)


def damage(path: Path) -> None:
    overwrite(path, b"nothing")


def cut(path: Path) -> None:
    overwrite(path, path.read_bytes()[:-1])


def another_compiler(path: Path) -> None:
    overwrite(path, content(key(toolchain="llvmlite 2")))


def open_to_others(path: Path) -> None:
    path.chmod(0o666)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: list[tuple[Callable[[Path], None], str, str]] = [
    (damage, "damaged", "is damaged"),
    (cut, "damaged", "is damaged"),
    (another_compiler, "toolchain", "was compiled by llvmlite 2, llvmlite 1 is installed"),
    (open_to_others, "untrusted", "has mode 0666"),
    (link, "untrusted", "is a symbolic link"),
    (folder, "untrusted", "is not a regular file"),
]


@pytest.mark.parametrize(("spoil", "kind", "reason"), BAD)
def test_a_bad_entry_is_a_counted_miss_told_once_and_the_own_directory_serves(
    prebuilt: Path, own: Path, spoil: Callable[[Path], None], kind: str, reason: str
) -> None:
    spoil(prebuilt / NAME)
    compiler = Compiler(key())
    with untouched(prebuilt), pytest.warns(CacheWarning) as warned:
        lookup = layered(prebuilt, own=own).fetch(key(), compiler)
        assert (lookup.hit, lookup.kind, lookup.path) == (False, kind, str(own / NAME))
        assert reason in lookup.reason
        assert (counts.hits, counts.misses) == (0, {kind: 1})
        again = layered(prebuilt, own=own).fetch(key(), compiler)
    assert (again.hit, again.path, compiler.calls) == (True, str(own / NAME), 1)
    assert (counts.hits, counts.misses) == (1, {kind: 2})
    (one,) = warned
    assert f"prebuilt folder {prebuilt} has an entry that cannot be used: " in str(one.message)
    assert reason in str(one.message)


def test_the_next_folder_serves_before_the_own_directory(tmp_path: Path, own: Path) -> None:
    first, second = filled(tmp_path / "first", key()), filled(tmp_path / "second", key())
    damage(first / NAME)
    with pytest.warns(CacheWarning):
        assert layered(first, second, own=own).get(key()).path == str(second / NAME)
    assert not own.exists()


def test_an_entry_that_fails_later_is_left_alone_and_not_taken_again(prebuilt: Path, own: Path) -> None:
    store = layered(prebuilt, own=own)
    assert store.get(key()).hit
    with untouched(prebuilt), pytest.warns(CacheWarning, match="is damaged: its hash differs"):
        store.refuse(key(), "its hash differs")
    lookup = store.fetch(key(), Compiler(key()))
    assert (lookup.kind, counts.misses) == ("absent", {"damaged": 1, "absent": 1})
    assert store.get(key()).path == str(own / NAME)
    store.refuse(key(), "its hash differs")
    assert entries(own) == []


def missing(path: Path) -> None:
    shutil.rmtree(path)


def open_folder(path: Path) -> None:
    path.chmod(0o777)


def linked_folder(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


@pytest.mark.parametrize(
    ("spoil", "reason", "remedy"),
    [
        (missing, "cannot be used: [Errno 2] No such file or directory", "to write it anew"),
        (open_folder, "has mode 0777, expected one that others cannot write", "chmod 700 {}, or to write it anew"),
        (linked_folder, "is a symbolic link, expected a directory", "to write it anew"),
        (file, "is not a directory", "to write it anew"),
    ],
)
def test_a_folder_that_cannot_be_used_is_told_once_and_not_made(
    prebuilt: Path, own: Path, spoil: Callable[[Path], None], reason: str, remedy: str
) -> None:
    spoil(prebuilt)
    before = sorted(os.listdir(prebuilt.parent))
    with pytest.warns(CacheWarning) as warned:
        for _ in range(2):
            assert layered(prebuilt, own=own).get(key()).kind == "absent"
    (one,) = warned
    assert f"prebuilt folder {prebuilt} {reason}" in str(one.message)
    assert f"What helps: {remedy.format(prebuilt)}" in str(one.message)
    assert sorted({*os.listdir(prebuilt.parent)} - {own.name}) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_another_user_owns_is_not_used(prebuilt: Path, own: Path) -> None:
    os.chown(prebuilt / NAME, 65534, 65534)
    with pytest.warns(CacheWarning, match="belongs to user 65534, expected 0 or root"):
        assert layered(prebuilt, own=own).get(key()).kind == "untrusted"
    os.chown(prebuilt, 65534, 65534)
    trouble._told.clear()
    with pytest.warns(CacheWarning, match=r"prebuilt folder .* belongs to user 65534, expected 0 or root"):
        assert layered(prebuilt, own=own).get(key()).kind == "absent"


def keep(store: Store, one: Key, weights: bytes) -> Program:
    """A program that is stored."""
    made = Program(key=one.parts, target="cpu", code=b"\xc3" * 10, weights=weights)
    found = store.fetch(one, lambda: parts(made, store.weight_sources(one))).program
    assert found is not None and bytes(found.weights) == weights
    return found


def test_an_own_entry_finds_the_weights_that_it_shares_in_a_folder_again(tmp_path: Path, own: Path) -> None:
    prebuilt = filled(tmp_path / "prebuilt", key(), weights=MAIN)
    with untouched(prebuilt):
        assert keep(layered(prebuilt, own=own), FURTHER, REST + MAIN).shared
        again = layered(prebuilt, own=own).get(FURTHER)
    assert again.program is not None and bytes(again.program.weights) == REST + MAIN
    assert entries(own) == [FURTHER.entry_name()]
    assert (own / FURTHER.entry_name()).stat().st_size <= 5 * PAGE


def test_an_own_entry_without_its_folder_is_incomplete_and_made_again(tmp_path: Path, own: Path) -> None:
    prebuilt = filled(tmp_path / "prebuilt", key(), weights=MAIN)
    keep(layered(prebuilt, own=own), FURTHER, REST + MAIN)
    counts.reset()
    store = open_store(str(own))
    assert keep(store, key(), MAIN) and keep(store, FURTHER, REST + MAIN)
    assert counts.misses == {"absent": 1} and counts.hits == 1  # whose source is there again
    (own / NAME).unlink()
    assert store.get(FURTHER).kind == "incomplete"
    assert not keep(store, FURTHER, REST + MAIN).shared
    assert open_store(str(own)).get(FURTHER).hit


def test_weights_of_a_bad_entry_of_a_folder_are_not_shared(tmp_path: Path, own: Path) -> None:
    prebuilt = filled(tmp_path / "prebuilt", key(), weights=MAIN)
    overwrite(prebuilt / NAME, (prebuilt / NAME).read_bytes()[:-PAGE])
    with pytest.warns(CacheWarning), untouched(prebuilt):
        for _ in range(2):
            store = layered(prebuilt, own=own)
            keep(store, key(), MAIN)
            assert keep(store, FURTHER, REST + MAIN).shared
    assert counts.misses == {"damaged": 2, "absent": 1}
    assert counts.writes == 2


@pytest.mark.parametrize("pages", [40, 20])
def test_an_own_entry_that_got_weights_of_a_stale_entry_of_a_folder_is_made_whole(
    pages: int, tmp_path: Path, own: Path
) -> None:
    prebuilt, weights = filled(tmp_path / "prebuilt", key(), weights=bytes(pages * PAGE)), REST + MAIN
    overwrite(prebuilt / NAME, content(key(toolchain="llvmlite 2"), bytes(pages * PAGE)))
    with pytest.warns(CacheWarning, match="was compiled by llvmlite 2"):
        store = layered(prebuilt, own=own)
        keep(store, key(), MAIN)
        assert keep(store, FURTHER, weights).shared
    other = layered(prebuilt, own=own)  # which does not look for the main program, as LiteRT's interpreter does not
    found = other.get(FURTHER)
    assert found.program is None or bytes(found.program.weights) != weights
    if found.hit:
        other.refuse(FURTHER, "its hash differs")
    assert not keep(other, FURTHER, weights).shared
    assert keep(layered(prebuilt, own=own), FURTHER, weights)
    assert counts.writes == 3


def test_an_entry_of_a_folder_takes_weights_from_that_folder_only(tmp_path: Path, own: Path) -> None:
    prebuilt = tmp_path / "prebuilt"
    store = open_store(str(prebuilt))
    keep(store, key(), MAIN)
    keep(store, FURTHER, REST + MAIN)
    (prebuilt / NAME).rename(tmp_path / NAME)
    own.mkdir(mode=0o700)
    shutil.copy(tmp_path / NAME, own / NAME)
    with pytest.warns(CacheWarning, match="lacks weights"):
        assert layered(prebuilt, own=own).get(FURTHER).kind == "incomplete"
    (tmp_path / NAME).rename(prebuilt / NAME)
    assert layered(prebuilt, own=own).get(FURTHER).hit


def test_fingerprints_of_large_models_are_noted_in_the_own_directory(
    prebuilt: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "_can_be_remembered", lambda *_: True)
    model = own.parent / "model.tflite"
    model.write_bytes(b"model")
    with untouched(prebuilt):
        assert layered(prebuilt, own=own).fingerprint(model) == keys.fingerprint(b"model")
        assert not own.exists()
        monkeypatch.setattr(keys, "ALWAYS_HASHED", 0)
        assert layered(prebuilt).fingerprint(model) == keys.fingerprint(b"model")
        assert layered(prebuilt, own=own).fingerprint(model) == keys.fingerprint(b"model")
    assert os.listdir(own) == [memo.Memo.NAME]


def test_an_own_entry_of_another_compiler_is_not_bad(tmp_path: Path, own: Path) -> None:
    prebuilt = filled(tmp_path / "prebuilt", key(), weights=MAIN)
    older = Key(tuple((name, "older" if name == "toolchain" else value) for name, value in FURTHER.parts))
    keep(layered(prebuilt, own=own), older, REST)
    assert keep(layered(prebuilt, own=own), FURTHER, REST + MAIN).shared


def test_uses_of_an_own_directory_that_ends_in_a_slash_are_noted(prebuilt: Path, own: Path) -> None:
    store = PrebuiltStore([str(prebuilt)], f"{own}/")
    store.fetch(key(MODEL_B), Compiler(key(MODEL_B)))
    assert store.get(key(MODEL_B)).hit
    assert store_module.whole_log(open_cache_directory(f"{own}/")).hits == 1
