"""Constants that other programs of the model store, by name. A program that is compiled later neither makes nor stores
them."""

from __future__ import annotations

from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.shared_pages import stored_ranges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jitdelegate.program.program import Program, SharedPages

    KnownConstant = tuple[int, int, int]
    Known = Mapping[tuple[int, int], KnownConstant]

NO_CONSTANTS: Known = {}


def known_constants(sources: Sequence[Program | None]) -> Known:
    """By name, where a constant is stored: the number of a source, its first page in what that program's own file
    stores, and its bytes. Zeros follow it up to the end of its last page.

    Args:
        sources: the programs of `Key.weight_sources`, verified; None for one that does not exist.
    """
    known: dict[tuple[int, int], KnownConstant] = {}
    for number, source in enumerate(sources):
        if source is None:
            continue
        ranges = stored_ranges(source.shared, len(source.weights))
        stored = sum(end - start for start, end in ranges)
        for start, end, first, nbytes in source.named_constants:
            owner, page = _stored_at(source.shared, number, first, -(-nbytes // PAGE))
            if owner < number or (owner == number and page >= 0 and 0 < nbytes <= stored - page * PAGE):
                known.setdefault((start, end), (owner, page, nbytes))
    return known


def _stored_at(shared: SharedPages, number: int, first: int, pages: int) -> tuple[int, int]:
    """Which source stores these pages of the weights of source `number`, and from which page on; a number that no
    source has where several do."""
    lacking = 0
    for start, source, there, length in shared:
        if start <= first and first + pages <= start + length:
            return source, there + first - start
        if start < first + pages and first < start + length:
            return number + 1, 0
        if start < first:
            lacking += length
    return number, first - lacking
