"""Zeroed anonymous memory with an address, for activations, scratch and machine code."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes

ALIGNMENT = 64
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC
_FAILED = ctypes.c_void_p(-1).value

_MOVE = 0x1 | 0x2  # Linux's MREMAP_MAYMOVE and MREMAP_FIXED
_LARGEST = sys.maxsize  # ctypes would drop the upper bits of sizes beyond size_t

libc = ctypes.CDLL(None, use_errno=True)
"""The C library; a call that failed has left its errno in `ctypes.get_errno()`."""
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,
)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Memory:
    """Private zeroed pages, freed by `close` only.

    They come from the system directly: Python's mmap objects would be unmapped when the interpreter ends, while a
    worker thread may still run code or spin on words in them.

    Attributes:
        address: of the first byte, page-aligned; 0 once closed.
        nbytes: size, at least 1.

    Raises:
        DeviceError: out of memory, or the system does not allow it.
    """

    __slots__ = ("address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = max(nbytes, 1)
        self.address = _map(self.nbytes)

    def write(self, content: Bytes) -> None:
        """Copy `content`, at most `nbytes` bytes, to the start."""
        if len(content) > self.nbytes:
            raise DeviceError(f"{len(content)} bytes do not fit in memory of {self.nbytes}")
        memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")[: len(content)] = content

    def make_executable(self) -> None:
        """Make the pages executable and read-only."""
        if libc.mprotect(self.address, self.nbytes, _EXECUTABLE):
            raise _refusal("no executable memory")

    def replace(self, address: int) -> None:
        """Move these pages to `address` atomically, over the pages there; this object is empty then. Linux only."""
        move = libc.mremap
        move.restype = ctypes.c_void_p
        move.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        if move(self.address, self.nbytes, self.nbytes, _MOVE, address) == _FAILED:
            raise _refusal(f"no memory of {self.nbytes} bytes at {address:#x}")
        self.address = 0

    def close(self) -> None:
        """Free the pages; harmless a second time."""
        address, self.address = self.address, 0
        if address:
            libc.munmap(address, self.nbytes)


def aligned(nbytes: int) -> int:
    """The first multiple of ALIGNMENT at or after `nbytes`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _map(nbytes: int) -> int:
    if nbytes > _LARGEST:
        raise DeviceError(f"no memory of {nbytes} bytes: this system counts up to {_LARGEST}")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _FAILED:
        raise _refusal(f"no memory of {nbytes} bytes")
    return int(address)


def _refusal(what: str) -> DeviceError:
    return DeviceError(f"{what}: {os.strerror(ctypes.get_errno())}")
