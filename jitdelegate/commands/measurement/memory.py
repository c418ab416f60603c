"""Memory of this process, as the operating system counts it."""

from __future__ import annotations

import resource
import sys

PAGES, STATUS = "/proc/self/statm", "/proc/self/status"
PEAK = b"VmHWM:"
MEGABYTE = 1 << 20


def peak_bytes() -> int:
    """The most memory that this process ever had (maximum resident set size)."""
    try:
        with open(STATUS, "rb") as file:  # `getrusage` would count the process that started this one
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(PEAK))
    except (OSError, ValueError, StopIteration):
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found << 10


def resident_bytes() -> tuple[int, int] | None:
    """(memory of this process, the part of it that files or other processes share); None off Linux."""
    try:
        with open(PAGES, "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    return resident * resource.getpagesize(), shared * resource.getpagesize()
