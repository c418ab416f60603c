"""Finds the pages of a program's weights that other programs of the model store already. Compile path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from jitdelegate.program.loans import stored_ranges
from jitdelegate.program.program import ALIGNMENT as PAGE

if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes, Loans, Program

LEAST_PAGES = 16
"""Shortest run of pages to borrow: a shorter one is rather stored again than mapped."""


def borrow(weights: Bytes, lenders: Sequence[Program | None]) -> Loans:
    """The longest runs of pages that begin where a page of a lender begins, for `Program.borrowed`.

    Args:
        lenders: programs whose weights have been verified; None for one that does not exist.
    """
    stored = [_pages(lender) for lender in lenders]
    places: dict[int, tuple[int, int]] = {}
    for number, pages in enumerate(stored):
        for source, page in enumerate(pages):
            places.setdefault(xxh3_64_intdigest(page), (number, source))
    own = _whole_pages(memoryview(weights).cast("B"))
    found, first = [], 0
    while first < len(own):
        lender, source = places.get(xxh3_64_intdigest(own[first]), (-1, 0))
        length = _equal(own, first, stored[lender], source) if lender >= 0 else 0
        if length >= LEAST_PAGES:
            found.append((first, lender, source, length))
            first += length
        else:
            first += 1
    return tuple(found)


def _pages(lender: Program | None) -> list[memoryview]:
    """The whole pages that a program's own file stores."""
    if lender is None:
        return []
    weights = memoryview(lender.weights).cast("B")
    ranges = stored_ranges(lender.borrowed, len(weights))
    return [page for start, end in ranges for page in _whole_pages(weights[start:end])]


def _whole_pages(content: memoryview) -> list[memoryview]:
    return [content[at : at + PAGE] for at in range(0, len(content) - PAGE + 1, PAGE)]


def _equal(own: list[memoryview], first: int, pages: list[memoryview], source: int) -> int:
    """Number of equal pages from two places on."""
    count = 0
    while first + count < len(own) and source + count < len(pages) and own[first + count] == pages[source + count]:
        count += 1
    return count
