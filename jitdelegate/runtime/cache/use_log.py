"""The log of a directory's use: hits, misses and evictions, and when each entry was used last, which many file systems
tell only by the day.

A process appends one line as it ends, or after it stored a program, so that no run waits for it. Nothing depends on it:
a line that is damaged does not count, and a process that is killed writes none. Lines are merged into one when the file
has become large; what others append at that moment is lost.
"""

from __future__ import annotations

import os

from xxhash import xxh3_64_hexdigest

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import CacheDirectory, close_quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = ".uses"
LARGEST = 1 << 18
"""Bytes from which on the lines are merged into one."""
_LARGEST_READ = 1 << 22
MOST_USES = 1024
"""Entries whose last use a merged log keeps."""
_FIELDS = 6


class Log:
    """What processes did in a directory.

    Attributes:
        since: seconds since 1970 of the first count; None where nothing was counted.
        hits: entries that were used.
        misses: by the kind of reason, as `store.Lookup.kind`.
        evictions: entries that were removed because there were too many.
        limit: in bytes, of the last process that had one; None where none had.
        uses: names of entries to the seconds since 1970 of their last use.
    """

    __slots__ = ("evictions", "hits", "limit", "misses", "since", "uses")

    def __init__(
        self,
        since: float | None = None,
        hits: int = 0,
        misses: Mapping[str, int] | None = None,
        evictions: int = 0,
        limit: int | None = None,
        uses: Mapping[str, float] | None = None,
    ) -> None:
        self.since = since
        self.hits = hits
        self.misses = dict(misses or {})
        self.evictions = evictions
        self.limit = limit
        self.uses = dict(uses or {})

    def add(self, other: Log) -> None:
        """Add what others counted."""
        self.since = min(filter(None, (self.since, other.since)), default=None)
        self.hits += other.hits
        self.evictions += other.evictions
        self.limit = other.limit or self.limit
        for kind, count in other.misses.items():
            self.misses[kind] = self.misses.get(kind, 0) + count
        for name, when in other.uses.items():
            self.uses[name] = max(when, self.uses.get(name, 0.0))

    def line(self) -> bytes:
        """The same as a line of the file, which begins with a hash of the rest."""
        numbers = [int(number or 0) for number in (self.since, self.hits, self.evictions, self.limit)]
        fields = *map(str, numbers), _pairs(self.misses), _pairs(self.uses)
        rest = "\t".join(fields).encode("ascii", "replace")
        return xxh3_64_hexdigest(rest).encode() + b"\t" + rest + b"\n"


def append(directory: CacheDirectory, log: Log) -> None:
    """Append a line; merge all if there are many.

    Raises:
        OSError, MemoryError: it cannot be written.
    """
    if directory.append(NAME, log.line()) > LARGEST:
        _merge(directory)


def read_log(directory: CacheDirectory) -> Log:
    """All lines together; an empty log where the file cannot be read."""
    found = Log()
    for line in _content(directory).splitlines():
        log = _parsed(line)
        if log is not None:
            found.add(log)
    return found


def _merge(directory: CacheDirectory) -> None:
    """Replace the lines by one, of entries that are there.

    Raises:
        OSError, MemoryError: it cannot be written.
    """
    from jitdelegate.runtime.cache.lock import Lock  # not before: most lines are only appended

    lock = Lock(directory, NAME)
    if not lock.acquire(0.0):
        return  # another process does it
    try:
        log, names = read_log(directory), set(directory.names())
        latest = sorted((when, name) for name, when in log.uses.items() if name in names)[-MOST_USES:]
        log.uses = {name: when for when, name in latest}
        directory.write(NAME, log.line(), flush=False)
    finally:
        lock.release()


def _content(directory: CacheDirectory) -> bytes:
    try:
        descriptor = directory.open(NAME)
    except (OSError, CacheError):
        return b""
    try:
        return os.read(descriptor, _LARGEST_READ)
    except (OSError, MemoryError):
        return b""
    finally:
        close_quietly(descriptor)


def _parsed(line: bytes) -> Log | None:
    """What a line says; None for a damaged one."""
    digest, _, rest = line.partition(b"\t")
    fields = rest.decode("ascii", "replace").split("\t")
    if digest != xxh3_64_hexdigest(rest).encode() or len(fields) != _FIELDS:
        return None
    *numbers, misses, uses = fields
    try:
        since, hits, evictions, limit = map(int, numbers)
        counted = {kind: int(count) for kind, count in _parsed_pairs(misses)}
        used = {name: float(when) for name, when in _parsed_pairs(uses)}
        return Log(since or None, hits, counted, evictions, limit or None, used)
    except ValueError:
        return None


def _pairs(numbers: Mapping[str, float]) -> str:
    return ";".join(f"{_plain(name)}={round(number, 3)}" for name, number in numbers.items())


def _parsed_pairs(text: str) -> Iterable[tuple[str, str]]:
    for pair in filter(None, text.split(";")):
        name, _, number = pair.partition("=")
        yield name, number


def _plain(name: str) -> str:
    """A name without letters that separate: a miss may be called by a part of the key that a file names as it likes."""
    return "".join(letter if letter.isalnum() or letter in " -_." else "_" for letter in name)
