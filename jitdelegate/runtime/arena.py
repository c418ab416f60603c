"""Zeroed anonymous memory with an address, for activations, scratch and machine code."""

from __future__ import annotations

import ctypes
import mmap
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes

ALIGNMENT = 64
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Memory:
    """Private zeroed pages, freed by `close` and by nothing else.

    The system is asked directly: Python's mmap objects would be unmapped when the interpreter ends, while a worker
    thread may still be in the code or spinning on the words in here.

    Attributes:
        address: of the first byte, page-aligned; 0 once closed.
        nbytes: at least one.

    Raises:
        DeviceError: the system gives no such memory.
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
        """Turn it into code; it cannot be written any more."""
        if _libc.mprotect(self.address, self.nbytes, _EXECUTABLE):
            raise _refusal("no executable memory")

    def close(self) -> None:
        """Give the pages back; harmless a second time."""
        address, self.address = self.address, 0
        if address:
            _libc.munmap(address, self.nbytes)


def aligned(nbytes: int) -> int:
    """The first multiple of ALIGNMENT at or after `nbytes`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _map(nbytes: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _FAILED:
        raise _refusal(f"no memory of {nbytes} bytes")
    return int(address)


def _refusal(what: str) -> DeviceError:
    return DeviceError(f"{what}: {os.strerror(ctypes.get_errno())}")
