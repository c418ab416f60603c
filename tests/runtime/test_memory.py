"""Memory is zeroed, aligned, and freed on request."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime import memory as module
from jitdelegate.runtime.memory import ALIGNMENT, LARGE_PAGE, Memory, Workspace, aligned
from tests.runtime.tiny import tiny_program


def content(memory: Memory) -> bytes:
    return ctypes.string_at(memory.address, memory.nbytes)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, 1_000_003])
def test_memory_is_zeroed_and_aligned(nbytes: int) -> None:
    memory = Memory(nbytes)
    assert memory.address % ALIGNMENT == 0
    assert content(memory) == bytes(max(nbytes, 1))
    memory.close()


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="Linux's")
def test_large_memory_may_have_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr(module.libc, "madvise", lambda *call: calls.append(call))
    Memory(LARGE_PAGE, has_gaps=True).close()
    for nbytes in (LARGE_PAGE - 1, LARGE_PAGE):
        memory = Memory(nbytes)
        at = memory.address
        memory.close()
    assert calls == [(at, LARGE_PAGE, mmap.MADV_HUGEPAGE)]


def test_memory_takes_content_and_refuses_too_much() -> None:
    memory = Memory(8)
    memory.write(memoryview(b"1234567"))
    assert content(memory) == b"1234567\0"
    with pytest.raises(DeviceError, match="9 bytes do not fit in memory of 8"):
        memory.write(b"123456789")
    memory.close()


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 63, 1 << 64, (1 << 64) + 1])
def test_more_than_there_can_be_is_refused(nbytes: int) -> None:
    with pytest.raises(DeviceError, match=f"no memory of {nbytes} bytes"):
        Memory(nbytes)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are moved on Linux only")
def test_memory_takes_the_place_of_other_memory() -> None:
    old, new = Memory(10_000), Memory(10_000)
    old.write(b"old")
    new.write(b"new")
    address = old.address
    new.replace(address)
    new.close()  # it has none
    assert content(old)[:3] == b"new" and old.address == address
    old.close()
    with pytest.raises(DeviceError, match="no memory of 10000 bytes at 0x1"):
        Memory(10_000).replace(1)


def test_code_cannot_be_written_any_more() -> None:
    memory = Memory(1)
    memory.make_executable()
    start = f"{memory.address:x}-"
    (line,) = (line for line in Path("/proc/self/maps").read_text().splitlines() if line.startswith(start))
    assert line.split()[1] == "r-xp"
    memory.close()


def test_closed_memory_is_gone_and_closes_again() -> None:
    memory = Memory(1 << 20)
    start = f"{memory.address:x}-"
    memory.close()
    memory.close()
    assert memory.address == 0
    assert not any(line.startswith(start) for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_session_that_closes_shared_pages_twice_leaves_them_to_the_others() -> None:
    workspace = Workspace(tiny_program().altered(arena_bytes=100), 1)
    one, other = workspace.pages(10), workspace.pages(20)
    assert one.address == other.address
    one.close()
    one.close()
    assert one.address == 0
    other.write(b"still there")
    assert workspace.pages(30).address == other.address
    other.close()


def test_an_impossible_size_is_refused() -> None:
    with pytest.raises(DeviceError, match="Cannot allocate memory"):
        Memory(1 << 60)


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    assert [aligned(nbytes) for nbytes in (0, 1, 64, 65)] == [0, 64, 64, 128]
