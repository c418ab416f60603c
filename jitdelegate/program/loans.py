"""Loans: pages of a program's weights that another program of the model stores. Load path."""

from __future__ import annotations

from jitdelegate.errors import ProgramError
from jitdelegate.program.layout import ALIGNMENT as PAGE
from jitdelegate.program.layout import LARGEST_MEMORY, check_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Loans


def whole_bytes(borrowed: Loans, stored: int) -> int:
    """Bytes of all weights where a file stores `stored` of them."""
    return stored + PAGE * sum(pages for *_, pages in borrowed)


def stored_ranges(borrowed: Loans, nbytes: int) -> list[tuple[int, int]]:
    """The (start, end) ranges of `nbytes` bytes of weights that the program's own file stores, one after another."""
    found, start = [], 0
    for first, _, _, pages in borrowed:
        if first * PAGE > start:
            found.append((start, first * PAGE))
        start = (first + pages) * PAGE
    if nbytes > start or not found:
        found.append((start, nbytes))
    return found


def check_loans(borrowed: Loans, stored: int, lenders: int) -> None:
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
    whole = whole_bytes(borrowed, stored)
    if before * PAGE > whole:
        raise ProgramError(f"borrowed pages end at {before * PAGE}, expected at most {whole}")
