"""The limit of a directory: after a program was stored, those go that were not used for longest, until the rest fits.

One process at a time stores a program and makes room, so that a directory has at most one program more than its limit
allows. Processes that run a removed program keep its pages. A program goes together with those that share its weights,
or after them: a use of theirs is a use of it.
"""

from __future__ import annotations

import heapq
import os

from jitdelegate.errors import CacheError, ProgramError
from jitdelegate.runtime.cache.directory import READ_ONLY_FILE
from jitdelegate.runtime.cache.key import SUFFIX, stored_key
from jitdelegate.runtime.cache.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from _typeshed import ReadableBuffer

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.cache.key import Key

    OpenFront = Callable[[CacheDirectory, str], Program]
    Uses = Callable[[], Mapping[str, float]]
    Rank = tuple[float, int]

LONGEST_WAIT = 30.0
"""Seconds to wait for another process that stores a program: one that is stopped is not waited for any longer."""


def write_within(
    directory: CacheDirectory,
    most_bytes: int,
    key: Key,
    parts: Iterable[ReadableBuffer],
    uses: Uses,
    open_front: OpenFront,
) -> int:
    """Write the entry for `key`, and remove others beyond the limit; returns how many.

    Args:
        parts: of the entry's file.
        uses: gives names of entries to the time of their last use; the file system may not keep it.
        open_front: reads the program of an entry, as far as its key.
    Raises:
        CacheError: the limit is too small for the program and those whose weights it shares; it is not stored.
        OSError: as `CacheDirectory.write`.
    """
    views = [memoryview(part) for part in parts]
    name, nbytes = key.entry_name(), sum(view.nbytes for view in views)
    if nbytes > most_bytes:
        raise _too_small(nbytes, most_bytes)
    lock = Lock(directory, "limit")
    lock.acquire(LONGEST_WAIT)
    try:
        directory.write(name, *views, mode=READ_ONLY_FILE)
        try:
            return _make_room(directory, most_bytes, name, uses, open_front)
        except (OSError, MemoryError):
            return 0  # the next one that is stored makes room
    finally:
        lock.release()


def make_room(directory: CacheDirectory, most_bytes: int, name: str, uses: Uses, open_front: OpenFront) -> int:
    """Remove entries beyond the limit after the entry `name` came from elsewhere; returns how many.

    Raises:
        CacheError, OSError: as `write_within`; an entry that does not fit is removed.
    """
    lock = Lock(directory, "limit")
    lock.acquire(LONGEST_WAIT)
    try:
        return _make_room(directory, most_bytes, name, uses, open_front)
    finally:
        lock.release()


def _make_room(directory: CacheDirectory, most_bytes: int, name: str, uses: Uses, open_front: OpenFront) -> int:
    """Remove entries other than the new one beyond the limit; returns how many.

    Raises:
        CacheError: as `write_within`.
        OSError: the directory cannot be read.
    """
    entries = _Entries(directory, open_front)
    if entries.nbytes <= most_bytes:
        return 0
    kept = entries.with_sources(name)
    needed = sum(entries.files[each].st_size for each in kept)
    if needed > most_bytes:
        directory.remove(name)
        raise _too_small(needed, most_bytes)
    return entries.remove_beyond(most_bytes, kept, uses())


class _Entries:
    """The entries of a directory.

    Attributes:
        files: name of each to its file's status.
        nbytes: of all of them.
    """

    def __init__(self, directory: CacheDirectory, open_front: OpenFront) -> None:
        self.files: dict[str, os.stat_result] = {}
        for name in directory.names():
            try:
                if name.endswith(SUFFIX):
                    self.files[name] = directory.stat(name)
            except OSError:
                continue  # it was removed meanwhile
        self.nbytes = sum(file.st_size for file in self.files.values())
        self._directory, self._looking = directory, directory.looking()
        self._open_front = open_front
        self._sources: dict[str, list[str]] = {}

    def with_sources(self, name: str) -> list[str]:
        """An entry, and those that have a part of its weights, or of theirs."""
        found = [name]
        for each in found:
            found += [source for source in self._direct_sources(each) if source not in found]
        return [each for each in found if each in self.files]

    def remove_beyond(self, most_bytes: int, kept: Iterable[str], uses: Mapping[str, float]) -> int:
        """Remove entries other than `kept`, the least recently used first, until the rest fits; returns how many."""
        used = {
            name: max(file.st_atime, file.st_mtime, uses.get(name, 0.0))
            for name, file in self.files.items()
            if name not in kept
        }
        waiting: list[tuple[Rank, str]] = [((when, 0), name) for name, when in used.items()]
        ranks: dict[str, Rank] = {}
        heapq.heapify(waiting)
        removed = 0
        while waiting and self.nbytes > most_bytes:
            rank, name = heapq.heappop(waiting)
            if name not in ranks:
                ranks |= self._ranks(_relatives(name, used), used)
            if rank < ranks[name]:
                heapq.heappush(waiting, (ranks[name], name))  # others depend on it
            else:
                removed += self._remove(name)
        return removed

    def _direct_sources(self, name: str) -> list[str]:
        if name not in self._sources:
            try:
                program = self._open_front(self._looking, name)
                keys = stored_key(program.key).weight_sources
                self._sources[name] = [keys[number].entry_name() for number in {run[1] for run in program.shared}]
            except (OSError, ValueError, IndexError, OverflowError, CacheError, ProgramError):
                self._sources[name] = []  # whoever looks for it finds out
        return self._sources[name]

    def _ranks(self, names: list[str], used: Mapping[str, float]) -> dict[str, Rank]:
        """The order in which entries go: by the last use of them or of one that depends on them, dependent ones first.

        Args:
            names: of entries that may share weights.
        """
        whole = {name: self.with_sources(name) for name in names}
        ranks = {name: (used[name], 0) for name in names}
        for name, sources in whole.items():
            for source in sources[1:]:
                if source in ranks:
                    users = sum(source in others for others in whole.values())
                    ranks[source] = max(ranks[source][0], used[name]), users
        return ranks

    def _remove(self, name: str) -> bool:
        """Remove an entry that is still the one that was looked at."""
        try:
            if os.path.samestat(self._directory.stat(name), self.files[name]) and not self._directory.remove(name):
                self.nbytes -= self.files[name].st_size
                return True
        except OSError:
            pass  # it is gone, or cannot be looked at
        return False


def _relatives(name: str, names: Iterable[str]) -> list[str]:
    """The entries of the same model or token, which alone may share weights."""
    beginning = name.rpartition("-")[0]
    return [other for other in names if other.rpartition("-")[0] == beginning]


def _too_small(needed: int, most_bytes: int) -> CacheError:
    return CacheError(
        f"it needs {needed} bytes, but cache_max_bytes allows {most_bytes}", "a larger cache_max_bytes or none"
    )
