"""Counts of the cache's hits and misses in this process."""

from __future__ import annotations


class Counts:
    """Running totals.

    Attributes:
        hits: entries that were used.
        misses: by the kind of reason (`Lookup.kind`).
        writes: entries that were written.
        write_failures: entries that could not be written.
        lock_timeouts: compilations that gave up waiting for another process.
    """

    __slots__ = ("hits", "lock_timeouts", "misses", "write_failures", "writes")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set all to zero."""
        self.hits = 0
        self.misses: dict[str, int] = {}
        self.writes = 0
        self.write_failures = 0
        self.lock_timeouts = 0

    def miss(self, kind: str) -> None:
        """Count one miss."""
        self.misses[kind] = self.misses.get(kind, 0) + 1


counts = Counts()
