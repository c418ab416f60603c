"""Tables of tuned kernels as the commands see them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from cache_tools.amounts import short_size
from cache_tools.entries import UNUSABLE, Stamp, open_directory, stamp, trouble_of, verdict
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.place import Place, close_quietly
from jitdelegate.runtime.cache.tuned import LARGEST_FILE, SUFFIX, Winner, parse_table


class Table:
    """One table, good or bad.

    Attributes:
        size: in bytes, 0 where there is no such file.
        written: seconds since 1970.
        winners: what it holds, by problem.
        trouble, is_unread, stamp, verdict: as of an entry.
    """

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.size = 0
        self.written = 0.0
        self.winners: dict[str, Winner] = {}
        self.trouble = ""
        self.is_unread = False
        self.stamp: Stamp | None = None
        try:
            known = place.stat(name)
            self.stamp, self.size, self.written = stamp(known), known.st_size, known.st_mtime
            self.winners = _parsed(_content(place, name))
        except UNUSABLE as error:
            self.trouble, self.is_unread = trouble_of(error)

    @property
    def verdict(self) -> str:
        """Good, bad or unread."""
        return verdict(self.trouble, is_unread=self.is_unread)

    def summary(self) -> dict[str, Any]:
        """One line's worth, as plain data."""
        known = {"name": self.name, "bytes": self.size, "written": self.written, "trouble": self.trouble}
        return known | {"verdict": self.verdict, "problems": len(self.winners)}

    def details(self) -> dict[str, Any]:
        """Everything, as plain data."""
        winners = {
            problem: {name: getattr(winner, name) for name in winner.__slots__}
            for problem, winner in self.winners.items()
        }
        return self.summary() | {"winners": winners}

    def line(self) -> str:
        """What `ls` prints."""
        return f"{self.name}  {self.trouble or f'{len(self.winners)} tuned problems'}  {short_size(self.size)}"

    def page(self) -> Iterable[str]:
        """Everything, in lines."""
        yield self.line()
        for problem, winner in self.winners.items():
            times = f"{winner.microseconds:.2f} us, the cost model's {winner.before:.2f} us"
            yield f"  {problem}: {winner.candidate} {times} ({winner.effort})"


def open_tables(path: str | None, names: Sequence[str] | None = None) -> list[Table]:
    """The tables of a directory, None for the user's cache directory: those with these names, or all.

    Raises:
        CacheError: the directory cannot be used.
    """
    place = open_directory(path)
    found = [name for name in place.names() if name.endswith(SUFFIX)] if place else []
    return [Table(place, name) for name in found if names is None or name in names] if place else []


def _parsed(content: bytes) -> dict[str, Winner]:
    try:
        return parse_table(content)
    except ValueError as error:
        raise CacheError(str(error)) from error


def _content(place: Place, name: str) -> bytes:
    descriptor = place.open(name)
    try:
        return os.read(descriptor, LARGEST_FILE)
    finally:
        close_quietly(descriptor)
