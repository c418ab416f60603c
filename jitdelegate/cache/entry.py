"""Opens an entry: header, table and code in private memory, large weights shared with other processes."""

from __future__ import annotations

import mmap
import os

from jitdelegate.cache.place import close_quietly
from jitdelegate.program.read import read_parts, weights_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.cache.place import Place
    from jitdelegate.program.program import Program

LEAST_SHARED = 1 << 20
"""Smallest weights to share, in bytes. Reading smaller ones takes no longer than mapping and watching them."""
_HEAD_BYTES = 1 << 17
"""Bytes that hold header, table and code of nearly all programs."""


def open_entry(place: Place, name: str, *, private: bool = False, verify_code: bool = True) -> Program:
    """The program in a trusted file.

    Args:
        private: read the weights too, so that the file is not used any more.
        verify_code: as in `read_parts`.
    Raises:
        OSError, CacheError: as `Place.open`.
        ProgramError: as `read_parts`.
        MemoryError: out of memory.
    """
    descriptor = place.open(name)
    try:
        nbytes = os.fstat(descriptor).st_size
        head = _read(descriptor, 0, nbytes if nbytes <= LEAST_SHARED else _HEAD_BYTES)
        start = weights_start(head, nbytes)
        front = head[:start] if start <= len(head) else _read(descriptor, 0, start)
        weights = head[start:] if nbytes == len(head) else _weights(descriptor, start, nbytes, private=private)
        return read_parts(front, weights, verify_code=verify_code)
    finally:
        close_quietly(descriptor)


def _weights(descriptor: int, start: int, nbytes: int, *, private: bool) -> mmap.mmap | memoryview:
    if not private and nbytes - start >= LEAST_SHARED:
        try:
            from jitdelegate.runtime.shared_file import share  # not before: most programs are small

            shared = share(descriptor, start)
        except (ImportError, OSError, ValueError, MemoryError):
            shared = None  # read what cannot be mapped
        if shared is not None:
            return shared
    return _read(descriptor, start, nbytes - start)


def _read(descriptor: int, start: int, nbytes: int) -> memoryview:
    """Bytes of a file in page-aligned private memory; zeros where the file became shorter meanwhile."""
    if not nbytes:
        return memoryview(b"")
    memory = memoryview(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    done = 0
    while done < nbytes and (count := os.preadv(descriptor, [memory[done:]], start + done)):
        done += count
    return memory
