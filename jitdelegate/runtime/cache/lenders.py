"""Lenders: the entries of other programs of a model, in which a part of a program's weights lies."""

from __future__ import annotations

import os

from jitdelegate.errors import CacheError, IncompleteError, ProgramError
from jitdelegate.program.layout import ALIGNMENT as PAGE
from jitdelegate.program.layout import HEADER_BYTES, LARGEST_MEMORY, check_range
from jitdelegate.program.read import weights_start
from jitdelegate.runtime.cache.key import stored_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Loans, Program
    from jitdelegate.runtime.cache.place import Place

    Piece = tuple[int, int, int]
    """Descriptor of a file, first byte, bytes."""


def whole_pieces(place: Place, program: Program, own: Piece, opened: list[int]) -> list[Piece]:
    """The parts of files that are the program's weights, one after another.

    Args:
        own: the weights in the program's own file.
        opened: receives the descriptors of further files, to be closed by the caller.
    Raises:
        IncompleteError: a lender is missing, untrusted, no program, or too short.
        ProgramError: the program's loans are out of bounds.
        MemoryError: out of memory.
    """
    names = [key.entry_name() for key in stored_key(program.key).lenders]
    descriptor, start, stored = own
    _check_loans(program.borrowed, stored, len(names))
    lent: dict[int, Piece] = {}
    pieces, at, end = list[tuple[int, int, int]](), 0, start + stored
    for first, lender, source, pages in program.borrowed:
        if lender not in lent:
            lent[lender] = _stored(place, names[lender], opened)
        file, begin, nbytes = lent[lender]
        if (source + pages) * PAGE > nbytes:
            needed = (source + pages) * PAGE
            raise IncompleteError(f"{names[lender]} stores {nbytes} bytes of weights, expected at least {needed}")
        if first * PAGE > at:
            pieces.append((descriptor, start, first * PAGE - at))
            start += first * PAGE - at
        pieces.append((file, begin + source * PAGE, pages * PAGE))
        at = (first + pages) * PAGE
    if end > start:
        pieces.append((descriptor, start, end - start))
    return pieces


def whole_weights(program: Program, stored: memoryview, lenders: Sequence[Program | None]) -> memoryview:
    """The program's weights, put together from what its file stores and from open programs.

    Raises:
        ProgramError: a lender is missing or too short.
    """
    from jitdelegate.program.loans import stored_ranges  # not before: programs are put together from files

    content = bytearray(len(stored) + PAGE * sum(pages for *_, pages in program.borrowed))
    done = 0
    for start, end in stored_ranges(program.borrowed, len(content)):
        content[start:end] = stored[done : done + end - start]
        done += end - start
    for first, lender, source, pages in program.borrowed:
        found = lenders[lender] if lender < len(lenders) else None
        whole = memoryview(found.weights) if found else memoryview(b"")
        ranges = stored_ranges(found.borrowed, len(whole)) if found else []
        lent = b"".join(whole[start:end] for start, end in ranges)[source * PAGE : (source + pages) * PAGE]
        if len(lent) < pages * PAGE:
            raise IncompleteError("the program that has a part of its weights is missing")
        content[first * PAGE : (first + pages) * PAGE] = lent
    return memoryview(content)


def _stored(place: Place, name: str, opened: list[int]) -> Piece:
    """The weights in an entry's own file."""
    try:
        descriptor = place.open(name)
        opened.append(descriptor)
        nbytes = os.fstat(descriptor).st_size
        head = bytearray(HEADER_BYTES)
        os.preadv(descriptor, [head], 0)
        start = weights_start(head, nbytes)
    except FileNotFoundError as error:
        raise IncompleteError(f"{name}, which has a part of its weights, is missing") from error
    except (OSError, CacheError, ProgramError) as error:
        raise IncompleteError(f"{name}, which has a part of its weights, cannot be used: {error}") from error
    return descriptor, start, nbytes - start


def _check_loans(borrowed: Loans, stored: int, lenders: int) -> None:
    """
    Args:
        stored: bytes of the weights in the program's own file.
        lenders: number of other programs.
    Raises:
        ProgramError: the loans overlap, are not in order, or are out of bounds.
    """
    before = 0
    for first, lender, source, pages in borrowed:
        check_range("lender of weights", lender, lenders - 1)
        check_range("borrowed pages", pages, LARGEST_MEMORY // PAGE, 1)
        check_range("first borrowed page", first, LARGEST_MEMORY // PAGE, before)
        check_range("first page of a lender", source, LARGEST_MEMORY // PAGE)
        before = first + pages
    whole = stored + PAGE * sum(pages for *_, pages in borrowed)
    if before * PAGE > whole:
        raise ProgramError(f"borrowed pages end at {before * PAGE}, expected at most {whole}")
