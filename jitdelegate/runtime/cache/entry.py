"""An entry's file, opened: what says how to run is read into private memory, large weights are shared.

Weights that the file lacks lie in entries of other programs of the model (`Key.lenders`). They are mapped to their
places among the program's own, so that programs share pages on disk and in memory.
"""

from __future__ import annotations

import mmap
import os

from jitdelegate.program.read import complete, read_front, weights_start
from jitdelegate.runtime.cache.place import close_quietly, read_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key
    from jitdelegate.runtime.cache.place import Place

    Piece = tuple[int, int, int]

LEAST_SHARED = 1 << 20
"""Smallest weights to share, in bytes. Reading smaller ones takes no longer than mapping and watching them."""
_HEAD_BYTES = 1 << 17
"""Bytes that hold header, table and code of nearly all programs."""


def open_entry(
    place: Place, name: str, *, key: Key | None = None, private: bool = False, verify_code: bool = True
) -> Program:
    """The program in a trusted file.

    Args:
        key: the key that is looked for. A program of another one, which is of no use, gets no weights.
        private: read the weights too, so that no file is used any more.
        verify_code: as in `read_parts`.
    Raises:
        OSError, CacheError: as `Place.open`.
        IncompleteError: a part of the weights lies in an entry that is missing or bad.
        ProgramError: as `read_parts`.
        MemoryError: out of memory.
    """
    descriptor = place.open(name)
    opened = [descriptor]
    try:
        nbytes = os.fstat(descriptor).st_size
        head = _read([(descriptor, 0, nbytes if nbytes <= LEAST_SHARED else _HEAD_BYTES)])
        start = weights_start(head, nbytes)
        program = _front(descriptor, head, nbytes, verify_code=verify_code)
        if key is not None and key.difference(program.key):
            return program
        if nbytes == len(head) and not program.borrowed:
            return complete(program, head[start:])
        pieces = [(descriptor, start, nbytes - start)]
        if program.borrowed:
            from jitdelegate.runtime.cache.lenders import whole_pieces  # not before: most programs borrow nothing

            pieces = whole_pieces(place, program, pieces[0], opened)
        return complete(program, _weights(pieces, private=private))
    finally:
        for each in opened:
            close_quietly(each)


def open_front(place: Place, name: str) -> Program:
    """The program in a trusted file, without its weights and with unverified code, to see what it is.

    Raises:
        OSError, CacheError, ProgramError, MemoryError: as `open_entry`.
    """
    descriptor = place.open(name)
    try:
        nbytes = os.fstat(descriptor).st_size
        head = _read([(descriptor, 0, min(nbytes, _HEAD_BYTES))])
        return _front(descriptor, head, nbytes, verify_code=False)
    finally:
        close_quietly(descriptor)


def _front(descriptor: int, head: memoryview, nbytes: int, *, verify_code: bool) -> Program:
    """The program before its weights, in a file that begins with `head`."""
    start = weights_start(head, nbytes)
    front = head[:start] if start <= len(head) else _read([(descriptor, 0, start)])
    return read_front(front, nbytes, verify_code=verify_code)


def _weights(pieces: list[Piece], *, private: bool) -> mmap.mmap | memoryview:
    if sum(nbytes for _, _, nbytes in pieces) >= LEAST_SHARED:
        try:
            from jitdelegate.runtime.shared_file import keep, share  # not before: most programs are small

            return (None if private else share(pieces)) or keep(pieces)
        except (ImportError, OSError, ValueError, MemoryError):
            pass  # read what cannot be mapped
    return _read(pieces)


def _read(pieces: list[Piece]) -> memoryview:
    """Parts of files, one after another, in page-aligned private memory; zeros where a file became shorter."""
    whole = sum(nbytes for _, _, nbytes in pieces)
    if not whole:
        return memoryview(b"")
    memory = memoryview(mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    read_pieces(pieces, memory)
    return memory
