"""Loans: pages of a program's weights that another program of the model stores. Load path."""

from __future__ import annotations

from jitdelegate.program.program import ALIGNMENT as PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Loans


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
