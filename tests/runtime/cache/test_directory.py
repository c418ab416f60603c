"""Only what nobody else can write is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.store import Store, counts, open_store
from tests.child import OPEN_TO_OTHERS, answer_of
from tests.runtime.cache.programs import Compiler, content, files, key

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def test_missing_directories_are_made_private(tmp_path: Path) -> None:
    open_cache_directory(str(tmp_path / "a" / "b"))
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


def folder_of_mode(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        path.chmod(mode)

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (link, "is a symbolic link, expected a directory"),
        (lambda path: path.write_text(""), "is not a directory"),
        (os.mkfifo, "is not a directory"),
        (folder_of_mode(0o777), "has mode 0777, expected one that others cannot write"),
        (folder_of_mode(0o770), "has mode 0770"),
        (folder_of_mode(0o1777), "has mode 1777"),
    ],
)
@pytest.mark.parametrize("ending", ["", "/"])
def test_a_directory_that_others_might_write_turns_the_cache_off(
    tmp_path: Path, make: Callable[[Path], object], message: str, ending: str
) -> None:
    make(tmp_path / "cache")
    before = sorted(os.listdir(tmp_path))
    path = str(tmp_path / "cache") + ending
    with pytest.raises(CacheError, match=message):
        open_cache_directory(path)
    lookup = open_store(path).fetch(key(), Compiler(key()))
    assert lookup.program is not None and not lookup.hit and message in lookup.reason
    assert counts.misses == {"directory": 1}
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("path", ["", "bad\0name", "/proc/nowhere/at/all", "x" * 300])
def test_a_path_that_cannot_be_made_turns_the_cache_off(path: str) -> None:
    store = open_store(path)
    assert store.directory is None and "cannot be used" in store.trouble


def test_a_system_that_takes_no_folder_for_one_ends_the_search_for_it_at_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert open_store(str(tmp_path / "a" / "b")).trouble == ""


@as_root
def test_another_users_directory_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", NOBODY, NOBODY)
    with pytest.raises(CacheError, match=f"belongs to user {NOBODY}"):
        open_cache_directory(str(tmp_path / "cache"))


def make_link(path: Path, good: bytes) -> None:
    (path.parent / "elsewhere").write_bytes(good)
    path.symlink_to(path.parent / "elsewhere")


def make_writable(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    path.chmod(0o666)


def make_sparse(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    os.truncate(path, 1 << 40)


HOSTILE_ENTRIES = [
    (make_link, "symbolic link"),
    (make_writable, "has mode 0666"),
    (lambda path, good: os.mkfifo(path, 0o600), "not a regular file"),
    (make_sparse, "expected at most"),
]


@pytest.mark.parametrize(("make", "message"), HOSTILE_ENTRIES)
def test_a_hostile_entry_is_never_followed_and_is_replaced(
    store: Store, folder: Path, make: Callable[[Path, bytes], object], message: str
) -> None:
    make(folder / key().entry_name(), content(key(), weights=b"hostile"))
    compiler = Compiler(key())
    lookup = store.fetch(key(), compiler)
    assert lookup.kind == "untrusted" and message in lookup.reason
    assert compiler.calls == 1 and store.get(key()).hit
    if (folder / "elsewhere").exists():
        assert (folder / "elsewhere").read_bytes() == content(key(), weights=b"hostile")


def test_a_directory_in_place_of_an_entry_costs_the_entry_only(store: Store, folder: Path) -> None:
    (folder / key().entry_name()).mkdir()
    lookup = store.fetch(key(), Compiler(key()))
    assert lookup.kind == "untrusted" and lookup.program is not None and lookup.write_failure
    assert files(folder) == [key().entry_name()]


@as_root
def test_another_users_entry_is_not_used(store: Store, folder: Path) -> None:
    path = folder / key().entry_name()
    path.write_bytes(content(key()))
    os.chown(path, NOBODY, NOBODY)
    assert "belongs to user" in store.get(key()).reason


def test_a_replaced_entry_leaves_its_other_hard_links_alone(store: Store, folder: Path) -> None:
    store.put(key(), content(key()))
    os.link(folder / key().entry_name(), folder / "copy")
    assert store.get(key()).hit
    store.put(key(), content(key(), weights=b"new"))
    assert (folder / "copy").read_bytes() == content(key())


def test_a_directory_that_vanishes_costs_the_entry_only(store: Store, folder: Path) -> None:
    folder.rmdir()
    lookup = store.fetch(key(), Compiler(key()))
    assert lookup.program is not None and lookup.write_failure and counts.write_failures == 1


def test_an_entry_and_its_name_are_on_the_disk_before_it_counts(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        done.append("directory" if os.path.samestat(os.fstat(descriptor), folder.stat()) else "file")
        flush(descriptor)

    def replace(source: str, target: str, **places: int) -> None:
        done.append("rename")
        rename(source, target, **places)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    assert store.put(key(), content(key())) == ""
    assert done == ["file", "rename", "directory"]


def read_as_nobody(folder: str) -> None:
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    store = open_store(folder)
    first, other = (store.fetch(one, Compiler(one)) for one in (key(), key("b" * 32)))
    assert first.hit, first.reason
    assert not other.hit and other.program and "Permission denied" in other.write_failure, other.write_failure


@pytest.mark.skipif(os.geteuid() != 0 or not OPEN_TO_OTHERS, reason="needs root, and a checkout that others may enter")
def test_a_prebuilt_directory_of_root_serves_other_users_and_stays_as_it_is(store: Store, folder: Path) -> None:
    store.put(key(), content(key()))
    for path in (folder, *folder.parents[:4]):
        if path != Path("/tmp") and path.owner() == "root" and path.is_relative_to("/tmp"):
            path.chmod(0o755)
    (folder / key().entry_name()).chmod(0o644)
    answer_of(read_as_nobody, folder)
    assert files(folder) == [key().entry_name()]
