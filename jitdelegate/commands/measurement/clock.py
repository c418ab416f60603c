"""A clock for processes that time their own start; it imports next to nothing."""

from __future__ import annotations

import time


class Clock:
    """Seconds by stage, each counted from the end of the stage before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stage(self, name: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
