"""Shared weights: parts of a program's weights that lie in entries of other programs of the model."""

from __future__ import annotations

import os

from jitdelegate.errors import CacheError, IncompleteError, ProgramError
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import HEADER_BYTES, LARGEST_MEMORY, check_range
from jitdelegate.program.read import weights_start
from jitdelegate.runtime.cache.key import stored_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.program.program import Program, SharedPages

    Piece = tuple[int, int, int]
    """Descriptor of a file, first byte, bytes."""


def whole_pieces(open_source: Callable[[str], int], program: Program, own: Piece, opened: list[int]) -> list[Piece]:
    """The parts of files that are the program's weights, one after another.

    Args:
        open_source: opens another entry by its name, as `CacheDirectory.open`.
        own: the weights in the program's own file.
        opened: receives the descriptors of further files, to be closed by the caller.
    Raises:
        IncompleteError: another entry is missing, untrusted, no program, or too short.
        ProgramError: the shared pages are out of bounds.
        MemoryError: out of memory.
    """
    names = [key.entry_name() for key in stored_key(program.key).weight_sources]
    descriptor, start, stored = own
    _check_shared(program.shared, stored, len(names))
    sources: dict[int, Piece] = {}
    pieces, at, end = list[tuple[int, int, int]](), 0, start + stored
    for first, number, there, pages in program.shared:
        if number not in sources:
            sources[number] = _stored(open_source, names[number], opened)
        file, begin, nbytes = sources[number]
        if (there + pages) * PAGE > nbytes:
            needed = (there + pages) * PAGE
            raise IncompleteError(f"{names[number]} stores {nbytes} bytes of weights, expected at least {needed}")
        if first * PAGE > at:
            pieces.append((descriptor, start, first * PAGE - at))
            start += first * PAGE - at
        pieces.append((file, begin + there * PAGE, pages * PAGE))
        at = (first + pages) * PAGE
    if end > start:
        pieces.append((descriptor, start, end - start))
    return pieces


def whole_weights(program: Program, stored: memoryview, sources: Sequence[Program | None]) -> memoryview:
    """The program's weights, put together from what its file stores and from open programs.

    Raises:
        ProgramError: a source is missing or too short.
    """
    from jitdelegate.program.shared_pages import stored_ranges  # not before: programs are put together from files

    content = bytearray(len(stored) + PAGE * sum(pages for *_, pages in program.shared))
    done = 0
    for start, end in stored_ranges(program.shared, len(content)):
        content[start:end] = stored[done : done + end - start]
        done += end - start
    for first, number, there, pages in program.shared:
        source = sources[number] if number < len(sources) else None
        whole = memoryview(source.weights) if source else memoryview(b"")
        ranges = stored_ranges(source.shared, len(whole)) if source else []
        part = b"".join(whole[start:end] for start, end in ranges)[there * PAGE : (there + pages) * PAGE]
        if len(part) < pages * PAGE:
            raise IncompleteError("the program that has a part of its weights is missing")
        content[first * PAGE : (first + pages) * PAGE] = part
    return memoryview(content)


def _stored(open_source: Callable[[str], int], name: str, opened: list[int]) -> Piece:
    """The weights in an entry's own file."""
    try:
        descriptor = open_source(name)
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


def _check_shared(shared: SharedPages, stored: int, sources: int) -> None:
    """
    Args:
        stored: bytes of the weights in the program's own file.
        sources: number of other programs.
    Raises:
        ProgramError: the pages overlap, are not in order, or are out of bounds.
    """
    before = 0
    for first, number, there, pages in shared:
        check_range("source of weights", number, sources - 1)
        check_range("shared pages", pages, LARGEST_MEMORY // PAGE, 1)
        check_range("first shared page", first, LARGEST_MEMORY // PAGE, before)
        check_range("first page of a source", there, LARGEST_MEMORY // PAGE)
        before = first + pages
    whole = stored + PAGE * sum(pages for *_, pages in shared)
    if before * PAGE > whole:
        raise ProgramError(f"shared pages end at {before * PAGE}, expected at most {whole}")
