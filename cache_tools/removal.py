"""What is removed from the directory. Processes that run an entry keep its pages, and are not disturbed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from cache_tools.entries import Entry, stamp
from cache_tools.tables import Table
from jitdelegate.runtime.cache.place import LOCK_SUFFIX, TEMPORARY_SUFFIX, Place
from jitdelegate.runtime.cache.store import STALE_AFTER


def remove(place: Place, kept: Entry | Table) -> str:
    """Remove an entry or a table, unless its file was written again since it was read; "" or why it is still there."""
    try:
        found = stamp(place.stat(kept.name))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    return "it was written again meanwhile" if kept.stamp not in (None, found) else place.remove(kept.name)


def matching(entries: Sequence[Entry], names: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """The entries that any name means, and the names that mean none.

    A name is an entry's file name or path, 8 digits or more that its digest or its model's fingerprint begins with, a
    token, or the file name of a model.
    """
    found = {name: [entry for entry in entries if entry.is_called(name)] for name in names}
    chosen = {id(entry): entry for each in found.values() for entry in each}
    return list(chosen.values()), [name for name, each in found.items() if not each]


def surplus(entries: Sequence[Entry], *, most_bytes: int | None, oldest: float | None) -> list[Entry]:
    """The entries to remove: those last used before the time `oldest`, and then the least recently used ones until the
    rest takes at most `most_bytes`. Entries that borrow weights from a removed one are useless, and go with it. Those
    stay whose last use and size could not be read."""
    kept = sorted((entry for entry in entries if entry.stamp), key=lambda entry: entry.used)
    removed: list[Entry] = []
    while kept and ((oldest is not None and kept[0].used < oldest) or _exceeds(kept, most_bytes)):
        gone = with_borrowers(kept[:1], kept)
        removed += gone
        kept = [entry for entry in kept if entry not in gone]
    return removed


def _exceeds(entries: Iterable[Entry], most_bytes: int | None) -> bool:
    return most_bytes is not None and sum(entry.size for entry in entries) > most_bytes


def with_borrowers(removed: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """The entries, and those that borrow weights from them."""
    found = list(removed)
    names = {entry.name for entry in found}
    while more := [each for each in entries if each not in found and names.intersection(each.lenders)]:
        found += more
        names |= {entry.name for entry in more}
    return found


def leftovers(place: Place) -> list[str]:
    """Files of processes that died while they compiled or wrote."""
    oldest = time.time() - STALE_AFTER
    hidden = [name for name in place.names() if name.startswith(".")]
    passing = [name for name in hidden if name.endswith((TEMPORARY_SUFFIX, LOCK_SUFFIX))]
    return [name for name in passing if _written(place, name) < oldest]


def _written(place: Place, name: str) -> float:
    try:
        return place.stat(name).st_mtime
    except (OSError, MemoryError):
        return float("inf")
