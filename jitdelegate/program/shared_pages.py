"""Pages of a program's weights that other programs of the model store: found before a program is written, so that its
file lacks them (`Program.shared`)."""

from __future__ import annotations

from xxhash import xxh3_128, xxh3_128_intdigest

from jitdelegate.program.program import ALIGNMENT as PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jitdelegate.program.program import Bytes, Program, SharedPages

LEAST_PAGES = 16
"""Shortest run of pages to share: a shorter one is rather stored again than mapped."""
HASHED_AT_ONCE = 1 << 24
"""Bytes of a mapped file that are resident while its pages are hashed."""


def find_shared(weights: Bytes, sources: Sequence[Program | None], lacking: SharedPages = ()) -> SharedPages:
    """The longest runs of pages that begin where a page of a source begins, for `Program.shared`. Pages of one hash of
    128 bits are the same, as contents of models are.

    Args:
        weights: what is not `lacking`.
        sources: programs whose weights have been verified; None for one that does not exist.
        lacking: runs of pages that are known already, in order.
    """
    own = memoryview(weights).cast("B")
    ranges = stored_ranges(lacking, whole_bytes(own, lacking))
    if all(end - start < LEAST_PAGES * PAGE for start, end in ranges):
        return lacking
    stored = [_stored_hashes(source) for source in sources]
    known: dict[int, tuple[int, int]] = {}
    for number, hashes in enumerate(stored):
        for start, page in enumerate(hashes):
            known.setdefault(page, (number, start))
    runs, before = [*lacking], 0
    for start, end in ranges:
        part = list(_hashes(own[before : before + end - start]))
        before += end - start
        runs += [(start // PAGE + first, *there) for first, there in _runs(part, known, stored)]
    return tuple(sorted(runs))


def whole_bytes(stored: Bytes, shared: Sequence[tuple[int, int, int, int]]) -> int:
    """Bytes of a program's weights, of which those without the `shared` pages are stored."""
    return len(stored) + PAGE * sum(pages for *_, pages in shared)


def stored_pages(source: Program, first: int, pages: int) -> list[memoryview]:
    """So many pages of what a program's own file stores, one part after another."""
    weights, parts, before = memoryview(source.weights).cast("B"), [], 0
    for start, end in stored_ranges(source.shared, len(weights)):
        begin, stop = max(first * PAGE, before), min((first + pages) * PAGE, before + end - start)
        if begin < stop:
            parts.append(weights[start + begin - before : start + stop - before])
        before += end - start
    return parts


def whole_parts(stored: Bytes, sources: Sequence[Program | None], shared: SharedPages) -> list[Bytes]:
    """A program's weights, one part after another: the stored ones, and the `shared` pages of the sources."""
    own, before, at = memoryview(stored).cast("B"), 0, 0
    parts: list[Bytes] = []
    for first, number, there, pages in shared:
        end = before + first * PAGE - at
        source = sources[number]
        assert source is not None
        parts += [own[before:end], *stored_pages(source, there, pages)]
        before, at = end, (first + pages) * PAGE
    return [*parts, own[before:]]


def hash_of(parts: Sequence[Bytes]) -> str:
    """The hash of a program's weights, one part after another, of which few are resident at a time."""
    state = xxh3_128()
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), HASHED_AT_ONCE):
            some = view[start : start + HASHED_AT_ONCE]
            state.update(some)
            unload(some)
    return state.hexdigest()


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


def _stored_hashes(source: Program | None) -> list[int]:
    """The hashes of the whole pages that a program's own file stores."""
    if source is None:
        return []
    weights = memoryview(source.weights).cast("B")
    ranges = stored_ranges(source.shared, len(weights))
    return [page for start, end in ranges for page in _hashes(weights[start:end])]


def _hashes(content: memoryview) -> Iterator[int]:
    """The hash of each whole page."""
    for start in range(0, len(content), HASHED_AT_ONCE):
        part = content[start : start + HASHED_AT_ONCE]
        for at in range(0, len(part) - PAGE + 1, PAGE):
            yield xxh3_128_intdigest(part[at : at + PAGE])
        unload(part)


def unload(view: memoryview) -> None:
    """Let the system take what a view shows from the memory of this process, where a mapped file has it."""
    from_file = getattr(view.obj, "unload", None)  # `runtime.shared_file.SharedFile`
    if from_file is not None:
        from_file(view)


def _runs(
    own: list[int], known: Mapping[int, tuple[int, int]], stored: Sequence[list[int]]
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The runs among these pages of its own: the first page, and (source, first page there, pages)."""
    first = 0
    while first < len(own):
        number, start = known.get(own[first], (-1, 0))
        length = _equal(own, first, stored[number], start) if number >= 0 else 0
        if length >= LEAST_PAGES:
            yield first, (number, start, length)
            first += length
        else:
            first += 1


def _equal(own: list[int], first: int, pages: list[int], start: int) -> int:
    """Number of equal pages from there on."""
    count = 0
    while first + count < len(own) and start + count < len(pages) and own[first + count] == pages[start + count]:
        count += 1
    return count
