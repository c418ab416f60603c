"""What is removed from the directory. Processes that run an entry keep its pages, and are not disturbed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cache_tools.entries import Entry, Kept, stamp
from jitdelegate.runtime.cache.directory import CacheDirectory


def remove(directory: CacheDirectory, kept: Kept) -> str:
    """Remove an entry or a table, unless its file was written again since it was read; "" or why it is still there."""
    try:
        now = stamp(directory.stat(kept.name))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    return "it was written again meanwhile" if kept.stamp not in (None, now) else directory.remove(kept.name)


def matching(entries: Sequence[Entry], names: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """The entries that any name means, and the names that mean none.

    A name is an entry's file name or path, 8 digits or more that its digest or its model's fingerprint begins with, a
    token, or the file name of a model.
    """
    meant = {name: [entry for entry in entries if entry.is_called(name)] for name in names}
    chosen = {id(entry): entry for some in meant.values() for entry in some}
    return list(chosen.values()), [name for name, some in meant.items() if not some]


def surplus(entries: Sequence[Entry], *, most_bytes: int | None, oldest: float | None) -> list[Entry]:
    """The entries to remove: those last used before the time `oldest`, and then the least recently used ones until the
    rest takes at most `most_bytes`. Entries that share weights of a removed one are useless, and go with it. Those
    stay whose last use and size could not be read."""
    kept = sorted((entry for entry in entries if entry.stamp), key=lambda entry: entry.used)
    removed: list[Entry] = []
    while kept and ((oldest is not None and kept[0].used < oldest) or _exceeds(kept, most_bytes)):
        gone = with_dependents(kept[:1], kept)
        removed += gone
        kept = [entry for entry in kept if entry not in gone]
    return removed


def _exceeds(entries: Iterable[Entry], most_bytes: int | None) -> bool:
    return most_bytes is not None and sum(entry.size for entry in entries) > most_bytes


def with_dependents(removed: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """The entries, and those that share their weights."""
    gone = list(removed)
    names = {entry.name for entry in gone}
    while more := [entry for entry in entries if entry not in gone and names.intersection(entry.weight_sources)]:
        gone += more
        names |= {entry.name for entry in more}
    return gone
