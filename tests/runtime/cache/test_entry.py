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
from jitdelegate.runtime.cache import entry as module
from jitdelegate.runtime.cache.entry import LEAST_SHARED, open_entry
from jitdelegate.runtime.cache.place import Place, open_place
from jitdelegate.runtime.cache.store import Store, open_store
from jitdelegate.runtime.weights import shared_file
from tests.entries import only_entry, overwrite
from tests.runtime.cache.programs import Compiler, key

LARGE, SMALL = b"large" * LEAST_SHARED, b"small"


@pytest.fixture
def place(folder: Path) -> Place:
    return open_place(str(folder))


def kept(place: Place, weights: bytes, code: bytes = b"\xc3" * 10) -> Program:
    """A program that is in the directory under the name "entry"."""
    program = Program(key=key().parts, target="cpu", code=code, weights=weights)
    place.write("entry", write(program), flush=True)
    return program


def is_shared(program: Program) -> bool:
    return shared_file(program.weights) is not None


def skip_where_nothing_is_shared(place: Place) -> None:
    kept(place, LARGE)
    if not is_shared(open_entry(place, "entry")):
        pytest.skip("nothing is shared on this system")


@pytest.mark.parametrize("code", [b"\xc3", b"\xc3" * 5_000_000])
@pytest.mark.parametrize("weights", [b"", SMALL, LARGE])
@pytest.mark.parametrize("private", [False, True])
def test_what_was_kept_is_opened(place: Place, weights: bytes, code: bytes, private: bool) -> None:
    program = kept(place, weights, code)
    found = open_entry(place, "entry", private=private)
    assert write(found) == write(program)
    assert bytes(found.code) == code
    verify_weights(found)


@pytest.mark.parametrize(("size", "shared"), [(LEAST_SHARED, True), (LEAST_SHARED - 1, False)])
def test_only_large_weights_are_shared(place: Place, size: int, shared: bool) -> None:
    skip_where_nothing_is_shared(place)
    kept(place, bytes(size))
    assert is_shared(open_entry(place, "entry")) is shared
    assert not is_shared(open_entry(place, "entry", private=True))


def test_a_store_of_private_weights_shares_none(folder: Path) -> None:
    for _ in range(2):
        lookup = open_store(str(folder), private_weights=True).fetch(key(), Compiler(key(), weights=LARGE))
        assert lookup.program is not None and not is_shared(lookup.program)
    assert lookup.hit


def test_nothing_but_shared_weights_follows_the_file(place: Place, folder: Path) -> None:
    program = kept(place, LARGE)
    found = open_entry(place, "entry")
    overwrite(folder / "entry", b"")
    assert bytes(found.code) == program.code
    assert found.operators == () and found.kernels == () and found.key == program.key
    with pytest.raises(ProgramError, match="weights"):
        verify_weights(found)


@pytest.mark.parametrize("trouble", [OSError(errno.ENOMEM, "no"), MemoryError(), ValueError("no"), ImportError("no")])
def test_what_cannot_be_shared_is_read(place: Place, monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    program = kept(place, LARGE)

    def refuse(*_: object) -> None:
        raise trouble

    monkeypatch.setattr("jitdelegate.runtime.shared_file.share", refuse)
    found = open_entry(place, "entry")
    assert not is_shared(found) and write(found) == write(program)


def test_a_module_that_cannot_be_read_shares_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    program = kept(place, LARGE)
    monkeypatch.setitem(sys.modules, "jitdelegate.runtime.shared_file", None)
    found = open_entry(place, "entry")
    assert not is_shared(found) and write(found) == write(program)


@pytest.mark.parametrize("weights", [SMALL, LARGE])
def test_a_file_that_shrinks_while_it_is_read_is_damaged(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes
) -> None:
    kept(place, weights)
    real = module._read

    def cut_and_read(pieces: list[tuple[int, int, int]]) -> memoryview:
        overwrite(folder / "entry", b"")
        return real(pieces)

    monkeypatch.setattr(module, "_read", cut_and_read)
    with pytest.raises(ProgramError):
        open_entry(place, "entry")


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
def test_no_descriptor_is_left_of_an_entry(place: Place, weights: bytes) -> None:
    before = sorted(os.listdir("/dev/fd"))
    kept(place, weights)
    found = open_entry(place, "entry")
    del found
    overwrite(Path(place.path) / "entry", b"nonsense")
    with pytest.raises(ProgramError):
        open_entry(place, "entry")
    assert sorted(os.listdir("/dev/fd")) == before
