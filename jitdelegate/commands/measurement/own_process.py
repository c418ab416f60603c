"""Time and memory of this process; for processes that time their own start, it imports next to nothing."""

from __future__ import annotations

import sys
import time

PAGES, STATUS = "/proc/self/statm", "/proc/self/status"
PEAK = b"VmHWM:"
MEGABYTE = 1 << 20


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


def peak_bytes() -> int:
    """The most memory that this process ever had (maximum resident set size)."""
    try:
        with open(STATUS, "rb") as file:  # `getrusage` would count the process that started this one
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(PEAK))
    except (OSError, ValueError, StopIteration):
        import resource  # not before: `Clock` has to cost a start next to nothing

        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found << 10


def resident_bytes() -> tuple[int, int] | None:
    """(memory of this process, the part of it that files or other processes share); None off Linux."""
    try:
        with open(PAGES, "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    import resource  # not before: see peak_bytes

    return resident * resource.getpagesize(), shared * resource.getpagesize()
