"""Pages of a program's weights that other programs of the model store: found before a program is written, so that its
file lacks them (`Program.shared`)."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from jitdelegate.program.program import ALIGNMENT as PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Bytes, Program, SharedPages

LEAST_PAGES = 16
"""Shortest run of pages to share: a shorter one is rather stored again than mapped."""


def find_shared(weights: Bytes, sources: Sequence[Program | None]) -> SharedPages:
    """The longest runs of pages that begin where a page of a source begins, for `Program.shared`.

    Args:
        sources: programs whose weights have been verified; None for one that does not exist.
    """
    stored = [_pages(source) for source in sources]
    known: dict[int, tuple[int, int]] = {}
    for number, pages in enumerate(stored):
        for start, page in enumerate(pages):
            known.setdefault(xxh3_64_intdigest(page), (number, start))
    own = _whole_pages(memoryview(weights).cast("B"))
    runs, first = [], 0
    while first < len(own):
        number, start = known.get(xxh3_64_intdigest(own[first]), (-1, 0))
        length = _equal(own, first, stored[number], start) if number >= 0 else 0
        if length >= LEAST_PAGES:
            runs.append((first, number, start, length))
            first += length
        else:
            first += 1
    return tuple(runs)


def stored_ranges(shared: SharedPages, nbytes: int) -> list[tuple[int, int]]:
    """The (start, end) ranges of `nbytes` bytes of weights that the program's own file stores, one after another."""
    ranges, start = [], 0
    for first, _, _, pages in shared:
        if first * PAGE > start:
            ranges.append((start, first * PAGE))
        start = (first + pages) * PAGE
    if nbytes > start or not ranges:
        ranges.append((start, nbytes))
    return ranges


def _pages(source: Program | None) -> list[memoryview]:
    """The whole pages that a program's own file stores."""
    if source is None:
        return []
    weights = memoryview(source.weights).cast("B")
    ranges = stored_ranges(source.shared, len(weights))
    return [page for start, end in ranges for page in _whole_pages(weights[start:end])]


def _whole_pages(content: memoryview) -> list[memoryview]:
    return [content[at : at + PAGE] for at in range(0, len(content) - PAGE + 1, PAGE)]


def _equal(own: list[memoryview], first: int, pages: list[memoryview], start: int) -> int:
    """Number of equal pages from there on."""
    count = 0
    while first + count < len(own) and start + count < len(pages) and own[first + count] == pages[start + count]:
        count += 1
    return count
