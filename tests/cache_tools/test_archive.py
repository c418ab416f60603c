"""Entries are carried in archives: whole ones, or none of them."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jitdelegate
from cache_tools.__main__ import main
from cache_tools.archive import import_entries
from cache_tools.entries import Entry, open_entries
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.key import Key
from jitdelegate.runtime.cache.model_names import remember_model
from jitdelegate.runtime.cache.store import open_store
from tests.api import test_shared_weights
from tests.cache_tools.test_commands import break_weights, folder, full_program, names, put
from tests.runtime.cache.programs import MODEL_A, MODEL_B, key

__all__ = ["folder"]


def left(path: Path) -> list[str]:
    """All files of a directory, temporary ones too."""
    return sorted(each.name for each in path.iterdir())


def program_file(for_key: Key) -> bytes:
    program = full_program()
    program.key = for_key.parts
    return write(program)


def members_of(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


@pytest.fixture
def archive(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "entries.tar"
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    return path


def header(name: str = "x.jitd", size: int = 0, kind: bytes = tarfile.REGTYPE, **fields: Any) -> bytes:
    known = tarfile.TarInfo(name)
    known.size, known.type = size, kind
    for field, value in fields.items():
        setattr(known, field, value)
    return known.tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes) -> bytes:
    return header("x", len(records), tarfile.XHDTYPE) + records + bytes(-len(records) % 512)


def record(name: str, value: str) -> bytes:
    text = f" {name}={value}\n"
    length = next(length for length in range(len(text), len(text) + 9) if length == len(f"{length}{text}"))
    return f"{length}{text}".encode()


END = bytes(1024)
MALFORMED = {
    "empty": b"",
    "text": b"hello " * 1000,
    "gzip bomb": gzip.compress(bytes(1 << 26)),
    "a size of 60 GiB": header(size=60 << 30) + END,
    "a size in eleven digits": header(size=(1 << 33) - 1) + END,
    "no end": header(),
    "cut short in a member": header(size=5000) + b"x" * 100,
    "cut short in a header": header()[:300],
    "a long PAX header": pax(b"9" * (1 << 17)) + header() + END,
    "digits without end": pax(b"9" * 60000) + header() + END,
    "GNU.sparse 1.0": pax(record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0")) + header() + END,
    "GNU.sparse not a number": pax(record("GNU.sparse.size", "sixty")) + header() + END,
    "GNU.sparse of 60 GiB": pax(record("GNU.sparse.size", str(60 << 30))) + header() + END,
    "a PAX size that is no number": pax(record("size", "-12")) + header() + END,
    "a huge PAX size": pax(record("size", "9" * 20)) + header() + END,
    "a PAX size of more digits than numbers have": pax(record("size", "9" * 9999)) + header() + END,
    "a record of length 0": pax(b"0 path=a\n") + header() + END,
    "a record without end": pax(b"99 path=a\n") + header() + END,
    "a record without =": pax(b"9 path a\n") + header() + END,
    "PAX headers only": pax(b"10 path=a\n") * 3000 + END,
    "a PAX header for nothing": pax(b"10 path=a\n") + END,
    "old sparse": header(size=512, kind=tarfile.GNUTYPE_SPARSE) + bytes(512) + END,
    "a link": header(kind=tarfile.SYMTYPE, linkname="/etc/passwd") + END,
    "a hard link": header(kind=tarfile.LNKTYPE, linkname="x.jitd") + END,
    "a directory": header("x.jitd/", kind=tarfile.DIRTYPE) + END,
    "a device": header(kind=tarfile.CHRTYPE) + END,
    "a negative size": header()[:124] + b"\xff" * 12 + header()[136:] + END,
    "a name with escapes": header("\x1b[31m.jitd") + END,
    "twice the same": header() * 2 + END,
    "names of models without end": header(".models", 1 << 21) + bytes(1 << 21) + END,
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_archive_is_one_clear_error(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "entries.tar", tmp_path / "other"
    path.write_bytes(MALFORMED[kind])
    assert main(["import", str(path), "--dir", str(other)]) == 1
    output = capsys.readouterr()
    (line,) = (output.err or output.out.splitlines()[0] + "\n").splitlines()
    assert line.isprintable() and left(other) == []


def test_files_of_other_kinds_are_no_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        assert main(["import", str(tmp_path / name), "--dir", str(tmp_path / "other")]) == 1
        assert "it is no regular file" in capsys.readouterr().err


def test_an_import_reads_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pieces, read = tmp_path / "entries.tar", list[int](), os.pread

    def noted(descriptor: int, nbytes: int, at: int) -> bytes:
        pieces.append(nbytes)
        return read(descriptor, nbytes, at)

    monkeypatch.setattr(os, "pread", noted)
    large = program_file(key()) + bytes(3 << 20)
    path.write_bytes(header(key().entry_name(), len(large)) + large + bytes(-len(large) % 512) + END)
    assert main(["import", str(path), "--dir", str(tmp_path / "other")]) == 1
    assert max(pieces) == 1 << 20 and sum(pieces) >= len(large)


def test_a_bad_member_leaves_the_directory_as_it_was(
    folder: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = members_of(archive)
    for bad in range(len(found) - 1):
        path, other = tmp_path / f"{bad}.tar", tmp_path / f"other{bad}"
        with tarfile.open(path, "w") as changed:
            for number, (member, content) in enumerate(found):
                content = content[:-1] + bytes([content[-1] ^ 1]) if number == bad else content
                changed.addfile(member, io.BytesIO(content))
        assert main(["import", str(path), "--dir", str(other)]) == 1
        output = capsys.readouterr().out
        assert "hash of" in output and output.endswith("nothing was imported\n")
        assert left(other) == []


def damaged(content: bytes, draw: random.Random) -> bytes:
    """An archive with some bytes changed, most of them in headers, or cut, or doubled in part."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        way, block = draw.randrange(4), draw.randrange(len(changed) // 512)
        headers = [at for at in range(0, len(changed), 512) if changed[at + 257 : at + 262] == b"ustar"]
        start = draw.choice(headers) if headers and draw.random() < 0.8 else block * 512
        if way == 0:
            changed[min(start + draw.randrange(512), len(changed) - 1)] ^= 1 << draw.randrange(8)
        elif way == 1:
            start += draw.choice((0, 100, 124, 148, 156, 257, 345))
            changed[start : start + 8] = draw.choice((b"\xff" * 8, b"77777777", b"        ", bytes(8), b"xLg12345"))
        elif way == 2:
            del changed[max(draw.randrange(len(changed)), 512) :]
        else:
            changed[start:start] = changed[block * 512 : block * 512 + 512 * draw.randint(1, 4)]
        if way < 2 and draw.random() < 0.7 and len(changed) >= start // 512 * 512 + 512:
            _seal(changed, start // 512 * 512)
    return bytes(changed)


def _seal(content: bytearray, at: int) -> None:
    """Give a header the right checksum."""
    content[at + 148 : at + 156] = b" " * 8
    content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])


def fuzz(content: bytes, directory: CacheDirectory, path: Path, rounds: int, seed: int) -> int:
    """How many of the damaged archives were refused; the others left good entries only."""
    draw, refused = random.Random(seed), 0
    for _ in range(rounds):
        path.write_bytes(damaged(content, draw))
        status = main(["import", str(path), "--dir", directory.path])
        assert status in (0, 1)
        entries = open_entries(directory.path, verify=True)
        assert not any(entry.trouble for entry in entries) and (status == 0 or not entries)
        refused += status
        for name in directory.names():
            assert name.endswith(".jitd") or name == ".models"
            directory.remove(name)
    return refused


def test_damaged_archives_are_refused_or_harmless(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = full_program()
    program.key = key("d" * 32, token="t" * 80).parts  # its name takes a PAX header
    open_cache_directory(str(folder)).write(key("d" * 32, token="t" * 80).entry_name(), write(program))
    path = tmp_path / "entries.tar"
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    assert fuzz(path.read_bytes(), open_cache_directory(str(tmp_path / "other")), path, rounds=40, seed=3) > 20
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_that_other_tools_pack_are_imported(layout: int, tmp_path: Path) -> None:
    path, name = tmp_path / "entries.tar", key(token="t" * 80).entry_name()
    content = program_file(key(token="t" * 80))
    if layout == tarfile.USTAR_FORMAT:
        name, content = key().entry_name(), program_file(key())
    with tarfile.open(path, "w", format=layout) as archive:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.uname = len(content), 1234567890.5, "somebody"  # type: ignore[assignment]
        archive.addfile(member, io.BytesIO(content))
    assert main(["import", str(path), "--dir", str(tmp_path / "other")]) == 0
    assert left(tmp_path / "other") == [name]


def test_a_program_is_imported_with_the_one_whose_weights_it_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cache.store.LEAST_SHARED", 0)
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)
    folder, path, other = tmp_path / "cache", tmp_path / "entries.tar", tmp_path / "other"
    with jitdelegate.load(
        test_shared_weights.MODEL, serialization_dir=str(folder), target="cpu", num_threads=1
    ) as loaded:
        for signature in ("one", "two"):
            loaded.run({"x": test_shared_weights.X}, signature)
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    found = members_of(path)
    with tarfile.open(path, "w") as turned:  # the program before its source, and after it
        for member, content in reversed(found):
            turned.addfile(member, io.BytesIO(content))
    assert main(["import", str(path), "--dir", str(other)]) == 0
    assert names(other) == names(folder) and main(["verify", "--dir", str(other)]) == 0
    dependent = next(entry.name for entry in open_entries(str(other)) if entry.weight_sources)
    with tarfile.open(path, "w") as alone:
        alone.addfile(*next((member, io.BytesIO(content)) for member, content in found if member.name == dependent))
    assert main(["import", str(path), "--dir", str(tmp_path / "third")]) == 1
    assert "which has a part of its weights, is missing" in capsys.readouterr().out
    assert left(tmp_path / "third") == []


def test_programs_that_share_weights_of_a_bad_one_are_left_out_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cache.store.LEAST_SHARED", 0)
    folder, path = tmp_path / "cache", tmp_path / "entries.tar"
    with jitdelegate.load(
        test_shared_weights.MODEL, serialization_dir=str(folder), target="cpu", num_threads=1
    ) as loaded:
        for signature in ("one", "two"):
            loaded.run({"x": test_shared_weights.X}, signature)
    dependent = next(entry for entry in open_entries(str(folder)) if entry.weight_sources)
    source = folder / dependent.weight_sources[0]
    real = Entry._read

    def read(entry: Entry, directory: CacheDirectory, verify: bool) -> None:
        if verify and entry.name == source.name:
            raise OSError("it cannot be read now")
        real(entry, directory, verify)

    monkeypatch.setattr(Entry, "_read", read)
    put(open_store(str(folder)), MODEL_A)
    assert main(["export", str(path), "--dir", str(folder)]) == 1
    assert f"{dependent.name} is left out: an entry that has a part of its weights" in capsys.readouterr().err
    assert main(["import", str(path), "--dir", str(tmp_path / "other")]) == 0


def _failing_at(number: int) -> Iterator[bool]:
    count = 0
    while True:
        count += 1
        yield count == number


@pytest.mark.parametrize("call", ["write", "replace", "fsync"])
def test_a_failure_in_the_middle_leaves_nothing(
    call: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other, real, fails = tmp_path / "other", getattr(os, call), _failing_at(2)

    def fail(*arguments: Any, **named: Any) -> Any:
        if next(fails):
            raise OSError(28, "No space left on device")
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        assert main(["import", str(archive), "--dir", str(other)]) == 1
    assert "No space left on device" in capsys.readouterr().err and left(other) == []
    assert main(["import", str(archive), "--dir", str(other)]) == 0 and len(names(other)) == 2


def test_a_directory_named_like_an_entry_lets_an_import_fail_whole(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / key(MODEL_B).entry_name()).mkdir()
    (other / key(MODEL_B).entry_name() / "x").touch()
    assert main(["import", str(archive), "--dir", str(other)]) == 1
    assert left(other) == [key(MODEL_B).entry_name()]


def test_a_bad_entry_that_is_there_is_replaced(folder: Path, archive: Path) -> None:
    break_weights(folder, MODEL_A)
    (entry,) = import_entries(str(archive), open_cache_directory(str(folder)))
    assert entry.name == key(MODEL_A).entry_name()
    assert main(["verify", "--dir", str(folder)]) == 0


def test_only_names_of_models_that_came_along_are_kept(folder: Path, tmp_path: Path) -> None:
    directory, path = open_cache_directory(str(folder)), tmp_path / "entries.tar"
    remember_model(directory, MODEL_A, "a.tflite")
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    found = [(member, content) for member, content in members_of(path) if member.name == ".models"]
    with tarfile.open(path, "w") as alone:
        alone.addfile(found[0][0], io.BytesIO(found[0][1]))
    assert main(["import", str(path), "--dir", str(tmp_path / "other")]) == 0
    assert left(tmp_path / "other") == []


def test_export_leaves_bad_entries_out_and_names_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    break_weights(folder, MODEL_A)
    path = tmp_path / "entries.tar"
    assert main(["export", str(path), "--dir", str(folder)]) == 1
    output = capsys.readouterr()
    assert f"{key(MODEL_A).entry_name()} is left out: weights: hash of" in output.err and "1 entries in" in output.out
    assert [member.name for member, _ in members_of(path)] == [key(MODEL_B).entry_name(), ".models"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_export_leaves_no_piece_of_an_archive(
    error: BaseException, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    path, added, real = tmp_path / "out" / "entries.tar", [], tarfile.TarFile.addfile

    def add(*arguments: Any) -> None:
        if added:
            raise error
        added.append(real(*arguments))

    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "addfile", add)
        assert main(["export", str(path), "--dir", str(folder)]) in (1, 130)
    assert added and left(tmp_path / "out") == []
    assert main(["export", str(path), "--dir", str(folder)]) == 0
    before = path.read_bytes()
    assert main(["export", str(path), "--dir", str(folder)]) == 2
    assert left(tmp_path / "out") == ["entries.tar"] and path.read_bytes() == before


def test_entries_are_carried_in_an_archive(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember_model(open_cache_directory(str(folder)), MODEL_A, "net.tflite")
    archive, other = str(tmp_path / "entries.tar"), tmp_path / "other"
    assert main(["export", archive, "--dir", str(folder)]) == 0
    assert main(["import", archive, str(other)]) == 0
    assert names(other) == names(folder)
    assert {entry.name: entry.model_name for entry in open_entries(str(other), verify=True) if not entry.trouble} == {
        key(MODEL_A).entry_name(): "net.tflite",
        key(MODEL_B).entry_name(): "",
    }
    before = (other / key(MODEL_A).entry_name()).stat().st_ino
    assert main(["import", archive, str(other)]) == 0
    assert (other / key(MODEL_A).entry_name()).stat().st_ino == before
    assert "all entries are there already" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../escaped.jitd", "wrong-name.jitd"])
def test_an_archive_of_other_things_stores_nothing(name: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "entries.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / key(MODEL_A).entry_name(), name)
    assert main(["import", str(path), "--dir", str(tmp_path / "other")]) == 1
    assert left(tmp_path / "other") == [] and not (tmp_path / "escaped.jitd").exists()
