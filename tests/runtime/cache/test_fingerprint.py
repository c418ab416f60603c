"""A fingerprint is the content's, however it is remembered."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from jitdelegate.runtime.cache import key as key_module
from jitdelegate.runtime.cache import memo as memo_module
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.key import ALWAYS_HASHED, fingerprint
from jitdelegate.runtime.cache.memo import Memo
from jitdelegate.runtime.shared_file import tells_changes

LONG_AGO = time.time() - 1000


@pytest.fixture
def memo(folder: Path) -> Memo:
    """An empty memo."""
    return Memo(open_cache_directory(str(folder)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file larger than one partition."""
    path = tmp_path / "model.tflite"
    path.write_bytes(os.urandom(700_000))
    return path


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if every file were large and had last changed long ago."""
    monkeypatch.setattr(key_module, "ALWAYS_HASHED", 0)
    monkeypatch.setattr(memo_module, "_SETTLED_NANOSECONDS", -1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    told = tells_changes(descriptor)
    os.close(descriptor)
    if not told:
        pytest.skip("this file system does not tell changes")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each file that is really read."""
    reads: list[int] = []
    real = key_module.hash_file
    for module in (key_module, memo_module):
        monkeypatch.setattr(module, "hash_file", lambda *arguments: (reads.append(1), real(*arguments))[1])
    return reads


def test_what_names_no_file_is_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        fingerprint("a\0")
    with pytest.raises(TypeError):
        fingerprint(5)  # type: ignore[arg-type]


def test_path_bytes_and_views_have_one_fingerprint(model: Path) -> None:
    content = model.read_bytes()
    expected = xxh3_128_hexdigest(content)
    assert fingerprint(model) == fingerprint(str(model)) == expected
    assert fingerprint(content) == fingerprint(bytearray(content)) == fingerprint(memoryview(content)) == expected


def test_an_empty_file_has_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert fingerprint(tmp_path / "empty") == fingerprint(b"")


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "none")


@pytest.mark.usefixtures("settled")
def test_an_unchanged_file_is_read_once(memo: Memo, model: Path, hashed: list[int]) -> None:
    assert {fingerprint(model, large=memo.fingerprint) for _ in range(3)} == {fingerprint(model.read_bytes())}
    assert len(hashed) == 1


def test_a_file_that_changed_a_moment_ago_is_not_remembered(
    memo: Memo, model: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_module, "ALWAYS_HASHED", 0)
    for _ in range(2):
        fingerprint(model, large=memo.fingerprint)
    assert len(hashed) == 2


@pytest.mark.parametrize(("size", "reads"), [(ALWAYS_HASHED, 3), (ALWAYS_HASHED + 1, 1)])
def test_a_file_of_usual_size_is_read_each_time(
    memo: Memo, model: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch, size: int, reads: int
) -> None:
    monkeypatch.setattr(memo_module, "_SETTLED_NANOSECONDS", -1)
    monkeypatch.setattr("jitdelegate.runtime.shared_file.tells_changes", lambda _: True)
    os.truncate(model, size)
    assert len({fingerprint(model, large=memo.fingerprint) for _ in range(3)}) == 1
    assert len(hashed) == reads


@pytest.mark.usefixtures("settled")
def test_a_large_file_is_written_back_so_that_an_edit_through_a_mapping_moves_its_time(memo: Memo, model: Path) -> None:
    memory = mmap.mmap(os.open(model, os.O_RDWR), 0)
    memory[5:9] = b"once"
    first = fingerprint(model, large=memo.fingerprint)
    assert memo.get(model.stat()) == first
    time.sleep(0.02)  # longer than a tick of the file system's clock, as the settled time is
    memory[5:9] = b"more"
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(model.read_bytes()) != first


@pytest.mark.usefixtures("settled")
def test_a_page_that_is_written_again_after_the_write_back_is_not_remembered(
    memo: Memo, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, write_back, hash_content = mmap.mmap(os.open(model, os.O_RDWR), 0), os.fdatasync, memo_module.hash_file

    def write_back_and_dirty(descriptor: int) -> None:
        write_back(descriptor)
        memory[5:9] = b"once"

    def hash_and_change(descriptor: int) -> str:
        found = hash_content(descriptor)
        memory[5:9] = b"more"  # which moves no time stamp any more
        return found

    os.utime(model, (LONG_AGO, LONG_AGO))
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", write_back_and_dirty)
        patch.setattr(memo_module, "hash_file", hash_and_change)
        fingerprint(model, large=memo.fingerprint)
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(model.read_bytes())


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("what", ["os.fdatasync", "shared_file.tells_changes"])
def test_what_may_change_unseen_is_not_remembered(
    memo: Memo, model: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(*_: object) -> bool:
        if what == "os.fdatasync":
            raise OSError(5, "the disk fails")
        return False

    monkeypatch.setattr(what if what == "os.fdatasync" else f"jitdelegate.runtime.{what}", refuse)
    for _ in range(2):
        assert fingerprint(model, large=memo.fingerprint) == fingerprint(model.read_bytes())
    assert memo.get(model.stat()) == ""


@pytest.mark.parametrize("size", [0, 1, 4095, (1 << 20) - 1, 1 << 20, (1 << 20) + 5000])
def test_a_file_of_any_size_has_the_fingerprint_of_its_bytes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "model"
    path.write_bytes(os.urandom(size))
    assert fingerprint(path) == xxh3_128_hexdigest(path.read_bytes())


def test_nothing_of_a_file_that_was_hashed_stays_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(os.urandom(1 << 20))
    assert fingerprint(path) == xxh3_128_hexdigest(path.read_bytes())
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_file_that_is_cut_as_it_is_hashed_has_the_fingerprint_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.write_bytes(os.urandom(1 << 20))
    real = os.readv

    def cut_and_read(descriptor: int, buffers: list[bytearray]) -> int:
        os.truncate(path, 10_000)
        return real(descriptor, buffers)

    monkeypatch.setattr(os, "readv", cut_and_read)
    assert fingerprint(path) == xxh3_128_hexdigest(path.read_bytes())


@pytest.mark.usefixtures("settled")
def test_what_was_remembered_wrongly_is_forgotten_and_nothing_else(memo: Memo, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other")
    for path in (model, other):
        fingerprint(path, large=memo.fingerprint)
    memo.forget(model.stat())
    assert (memo.get(model.stat()), memo.get(other.stat())) == ("", fingerprint(b"other"))
    memo.forget(model.stat())


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("call", ["close", "read", "open", "fstat"])
def test_a_memo_that_cannot_be_read_costs_nothing(
    memo: Memo, model: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    expected, found = fingerprint(model, large=memo.fingerprint), model.stat()
    real = getattr(os, call)

    def fail(*arguments: object, **options: object) -> None:
        if call == "close":
            real(*arguments, **options)
        raise OSError(5, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        known = memo.get(found)
    assert known == (expected if call == "close" else "")


@pytest.mark.usefixtures("settled")
def test_a_swap_that_keeps_size_and_time_is_seen(memo: Memo, model: Path, tmp_path: Path) -> None:
    os.utime(model, (LONG_AGO, LONG_AGO))
    other = tmp_path / "other.tflite"
    other.write_bytes(os.urandom(700_000))
    os.utime(other, (LONG_AGO, LONG_AGO))
    first = fingerprint(model, large=memo.fingerprint)
    time.sleep(0.02)  # longer than a tick of the file system's clock, as the settled time is
    shutil.copy2(other, model)  # cp -p: the same inode, size and time of modification
    assert model.stat().st_mtime == other.stat().st_mtime
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(other.read_bytes()) != first
    os.replace(other, model)
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(model.read_bytes())


@pytest.mark.usefixtures("settled")
def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    memo: Memo, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = memo_module.hash_file

    def read_then_change(*arguments: int) -> str:
        found = real(*arguments)
        model.write_bytes(b"changed")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(memo_module, "hash_file", read_then_change)
        fingerprint(model, large=memo.fingerprint)
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(b"changed")


@pytest.mark.usefixtures("settled")
def test_a_damaged_memo_is_forgotten_bit_by_bit(memo: Memo, model: Path, folder: Path) -> None:
    expected = fingerprint(model, large=memo.fingerprint)
    path = folder / Memo.NAME
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert memo.get(model.stat()) == ""
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert memo.get(model.stat()) == ""
    assert fingerprint(model, large=memo.fingerprint) == expected
    assert path.read_bytes() == good


@pytest.mark.usefixtures("settled")
def test_the_memo_keeps_the_newest(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memo, "LARGEST", 3)
    memo = Memo(open_cache_directory(str(folder)))
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_text(path.name)
        fingerprint(path, large=memo.fingerprint)
    assert [bool(memo.get(path.stat())) for path in paths] == [False, False, True, True, True]


@pytest.mark.usefixtures("settled")
def test_a_memo_that_cannot_be_written_costs_nothing(memo: Memo, model: Path, folder: Path, hashed: list[int]) -> None:
    folder.rmdir()
    assert fingerprint(model, large=memo.fingerprint) == fingerprint(model, large=memo.fingerprint)
    assert len(hashed) == 2


@pytest.mark.usefixtures("settled")
def test_a_memo_that_is_a_link_is_not_followed(memo: Memo, model: Path, folder: Path, tmp_path: Path) -> None:
    fingerprint(model, large=memo.fingerprint)
    os.replace(folder / Memo.NAME, tmp_path / "moved")
    (folder / Memo.NAME).symlink_to(tmp_path / "moved")
    assert memo.get(model.stat()) == ""
