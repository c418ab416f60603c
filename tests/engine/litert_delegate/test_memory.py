"""Reads of any address return, and never end the process."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from jitdelegate.engine.litert_delegate.memory import PAGE, SafeReader, library_of
from jitdelegate.runtime.memory import Memory

CONTENT = b"".join(bytes([page]) + bytes(range(1, 256)) * 16 + bytes(15) for page in range(3))
_libc = ctypes.CDLL(None)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@pytest.fixture
def pages() -> Memory:
    """Three pages of CONTENT."""
    memory = Memory(3 * PAGE)
    memory.write(CONTENT)
    return memory


@pytest.mark.parametrize("start, nbytes", [(0, 1), (5, 300), (PAGE - 1, 2), (0, 3 * PAGE), (3 * PAGE - 1, 1), (9, 0)])
def test_memory_that_is_there_is_read(pages: Memory, start: int, nbytes: int) -> None:
    assert SafeReader().read(pages.address + start, nbytes) == CONTENT[start : start + nbytes]


@pytest.mark.parametrize("address", [0, 1, PAGE - 1, PAGE, 1 << 47, (1 << 63) + 8, (1 << 64) - 1])
def test_memory_that_is_not_there_is_none(address: int) -> None:
    assert SafeReader().read(address, 8) is None


def test_a_read_into_a_hole_is_none(pages: Memory) -> None:
    _libc.munmap(pages.address + PAGE, PAGE)
    reader = SafeReader()
    assert reader.read(pages.address + PAGE - 8, 8) == CONTENT[PAGE - 8 : PAGE]
    assert reader.read(pages.address + PAGE - 8, 9) is None
    assert reader.read(pages.address, 3 * PAGE) is None
    assert reader.read(pages.address + 2 * PAGE, PAGE) == CONTENT[2 * PAGE :]


def test_an_interrupted_read_leaves_nothing_for_the_next(pages: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int, nbytes: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "read", interrupted)
        SafeReader().read(pages.address, 8)
    assert SafeReader().read(pages.address + PAGE, 8) == CONTENT[PAGE : PAGE + 8]


def test_a_number_is_signed_and_little_endian() -> None:
    value = ctypes.c_int32(-2)
    assert SafeReader().integer(ctypes.addressof(value), 4) == -2
    assert SafeReader().integer(0, 4) is None


def test_a_forked_process_reads_through_a_pipe_of_its_own(pages: Memory) -> None:
    SafeReader().read(pages.address, 1)
    child = os.fork()
    if child == 0:
        found = [SafeReader().read(pages.address + place, 1) for place in range(200)]
        os._exit(0 if found == [CONTENT[place : place + 1] for place in range(200)] else 1)
    for _ in range(200):
        assert SafeReader().read(pages.address, PAGE) == CONTENT[:PAGE]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_functions_have_libraries_and_data_has_none() -> None:
    # one that Python does not call: the address of those may be in Python's own file
    function = ctypes.cast(_libc.a64l, ctypes.c_void_p).value
    assert function is not None and "libc" in library_of(function)
    page = mmap.mmap(-1, PAGE)
    assert library_of(ctypes.addressof(ctypes.c_char.from_buffer(page))) == ""
    assert library_of(0) == ""
