"""An entry is read as far as it says how to run; only large weights are shared with its file."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Program
from jitdelegate.program.read import verify_weights
from jitdelegate.program.write import write
from jitdelegate.runtime.cache import store as module
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.store import LEAST_SHARED, Store, open_entry, open_store
from jitdelegate.runtime.memory import shared_file
from tests.entries import only_entry, overwrite
from tests.runtime.cache.programs import Compiler, key

LARGE, SMALL = b"large" * LEAST_SHARED, b"small"


@pytest.fixture
def directory(folder: Path) -> CacheDirectory:
    return open_cache_directory(str(folder))


def kept(directory: CacheDirectory, weights: bytes, code: bytes = b"\xc3" * 10) -> Program:
    """A program that is in the directory under the name "entry"."""
    program = Program(key=key().parts, target="cpu", code=code, weights=weights)
    directory.write("entry", write(program), flush=True)
    return program


def is_shared(program: Program) -> bool:
    return shared_file(program.weights) is not None


def skip_where_nothing_is_shared(directory: CacheDirectory) -> None:
    kept(directory, LARGE)
    if not is_shared(open_entry(directory, "entry")):
        pytest.skip("nothing is shared on this system")


@pytest.mark.parametrize("code", [b"\xc3", b"\xc3" * 5_000_000])
@pytest.mark.parametrize("weights", [b"", SMALL, LARGE])
@pytest.mark.parametrize("private", [False, True])
def test_what_was_kept_is_opened(directory: CacheDirectory, weights: bytes, code: bytes, private: bool) -> None:
    program = kept(directory, weights, code)
    found = open_entry(directory, "entry", private=private)
    assert write(found) == write(program)
    assert bytes(found.code) == code
    verify_weights(found)


@pytest.mark.parametrize(("size", "shared"), [(LEAST_SHARED, True), (LEAST_SHARED - 1, False)])
def test_only_large_weights_are_shared(directory: CacheDirectory, size: int, shared: bool) -> None:
    skip_where_nothing_is_shared(directory)
    kept(directory, bytes(size))
    assert is_shared(open_entry(directory, "entry")) is shared
    assert not is_shared(open_entry(directory, "entry", private=True))


def test_a_store_of_private_weights_shares_none(folder: Path) -> None:
    for _ in range(2):
        lookup = open_store(str(folder), private_weights=True).fetch(key(), Compiler(key(), weights=LARGE))
        assert lookup.program is not None and not is_shared(lookup.program)
    assert lookup.hit


def test_nothing_but_shared_weights_follows_the_file(directory: CacheDirectory, folder: Path) -> None:
    program = kept(directory, LARGE)
    found = open_entry(directory, "entry")
    overwrite(folder / "entry", b"")
    assert bytes(found.code) == program.code
    assert found.operators == () and found.kernels == () and found.key == program.key
    with pytest.raises(ProgramError, match="weights"):
        verify_weights(found)


@pytest.mark.parametrize("trouble", [OSError(errno.ENOMEM, "no"), MemoryError(), ValueError("no"), ImportError("no")])
def test_what_cannot_be_shared_is_read(
    directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    program = kept(directory, LARGE)

    def refuse(*_: object) -> None:
        raise trouble

    monkeypatch.setattr("jitdelegate.runtime.shared_file.share", refuse)
    found = open_entry(directory, "entry")
    assert not is_shared(found) and write(found) == write(program)


def test_a_module_that_cannot_be_read_shares_nothing(
    directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = kept(directory, LARGE)
    monkeypatch.setitem(sys.modules, "jitdelegate.runtime.shared_file", None)
    found = open_entry(directory, "entry")
    assert not is_shared(found) and write(found) == write(program)


@pytest.mark.parametrize("weights", [SMALL, LARGE])
def test_a_file_that_shrinks_while_it_is_read_is_damaged(
    directory: CacheDirectory, folder: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes
) -> None:
    kept(directory, weights)
    real = module._read

    def cut_and_read(pieces: list[tuple[int, int, int]]) -> memoryview:
        overwrite(folder / "entry", b"")
        return real(pieces)

    monkeypatch.setattr(module, "_read", cut_and_read)
    with pytest.raises(ProgramError):
        open_entry(directory, "entry")


TROUBLES = [OSError(errno.EIO, "the disk fails"), MemoryError(), ValueError("no"), OverflowError("no")]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_reading_an_entry_raises_is_a_miss_with_a_reason(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    store.fetch(key(), Compiler(key()))
    compiler = Compiler(key())

    def fail(*_: object, **__: object) -> None:
        raise trouble

    with monkeypatch.context() as patch:
        patch.setattr("jitdelegate.runtime.cache.store.open_entry", fail)
        lookup = store.fetch(key(), compiler)
    assert (lookup.kind, compiler.calls) == ("unreadable", 1)
    assert lookup.reason == f"{only_entry(folder).name} cannot be read: {str(trouble) or 'no memory'}"
    assert lookup.program is not None and store.get(key()).hit


@pytest.mark.parametrize("weights", [SMALL, LARGE])
def test_no_descriptor_is_left_of_an_entry(directory: CacheDirectory, weights: bytes) -> None:
    before = sorted(os.listdir("/dev/fd"))
    kept(directory, weights)
    found = open_entry(directory, "entry")
    del found
    overwrite(Path(directory.path) / "entry", b"nonsense")
    with pytest.raises(ProgramError):
        open_entry(directory, "entry")
    assert sorted(os.listdir("/dev/fd")) == before
