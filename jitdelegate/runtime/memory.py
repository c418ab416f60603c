"""Zeroed anonymous memory with an address: for activations, scratch, machine code, and values from run to run."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

from jitdelegate.errors import DeviceError
from jitdelegate.program.program import ZEROS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes, Program

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


def states_in_place(program: Program) -> set[int]:
    """Positions of the states whose old and new value may be the same memory."""
    inputs, outputs = len(program.inputs), len(program.outputs)
    return {made - outputs for given, made in program.aliases if given - inputs == made - outputs >= 0}


class States:
    """The states of one session. An unfinished run leaves them unchanged, but for rows of those that a run updates in
    place, which the next run overwrites if it is the same run again.

    Attributes:
        before: per state, the address that the next run reads.
        after: per state, the address that the next run writes; the same one for a state that is updated in place.

    Raises:
        DeviceError: out of memory.
    """

    __slots__ = ("_memory", "_program", "_stale", "after", "before")

    def __init__(self, program: Program) -> None:
        self._program = program
        # a cache line between buffers stays unused: kernels may read some bytes beyond the end
        rooms = [aligned(state.nbytes) + ALIGNMENT for state in program.states]
        steps = [0 if place in states_in_place(program) else room for place, room in enumerate(rooms)]
        self._memory = Memory(sum(rooms) + sum(steps)) if rooms else None
        start = self._memory.address if self._memory else 0
        self.before: list[int] = []
        self.after: list[int] = []
        for room, step in zip(rooms, steps, strict=True):
            self.before.append(start)
            self.after.append(start + step)
            start += room + step
        self._stale = list(range(len(rooms)))

    def reset(self, *, resources: bool) -> None:
        """Reset to the first values, those of resource variables if `resources`."""
        states = enumerate(self._program.states)
        self._stale = [place for place, state in states if resources or not state.is_resource or place in self._stale]

    def prepare(self) -> None:
        """Write the first values of reset states; they stay reset until a run has ended. The program's weights, which
        hold the values, have been verified."""
        for place in self._stale:
            state = self._program.states[place]
            if state.initial == ZEROS:
                ctypes.memset(self.before[place], 0, state.nbytes)
            else:
                first = bytes(self._program.weights[state.initial : state.initial + state.nbytes])
                ctypes.memmove(self.before[place], first, state.nbytes)

    def read(self, place: int) -> bytes:
        """Current value of a state, as row-major bytes; call `prepare` first, unless a run has ended since."""
        return ctypes.string_at(self.before[place], self._program.states[place].nbytes)

    def write(self, place: int, content: bytes) -> None:
        """Set the current value of a state."""
        self._stale = [each for each in self._stale if each != place]
        ctypes.memmove(self.before[place], content, self._program.states[place].nbytes)

    def advance(self) -> None:
        """Make the values that the run has written the current ones."""
        self.before, self.after = self.after, self.before
        self._stale = []

    def so_far(self) -> list[bytes | None]:
        """Current value of each state; None for its first value."""
        return [None if place in self._stale else self.read(place) for place in range(len(self.before))]

    def close(self) -> None:
        """Free the memory."""
        if self._memory:
            self._memory.close()
