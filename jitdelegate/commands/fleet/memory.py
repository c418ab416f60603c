"""How many workers the memory allows: each needs BASE and PER_BYTE times the largest model's bytes.

These bound the measured peaks of compilations: for GPUs 300 to 360 MiB and 2.1 times the bytes; for CPUs 120 to 175 MiB
and once the bytes, or four times where filters are stored as Winograd's algorithm multiplies them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

BASE = 384 << 20
PER_BYTE = 4
_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def allowed_workers(models: Iterable[str]) -> int:
    """At least 1, so that a lack of memory shows by a model's error; many where the system does not tell its memory.

    Args:
        models: paths of files, which may be missing.
    """
    largest = max((_size(model) for model in models), default=0)
    return max(1, free_bytes() // (BASE + PER_BYTE * largest))


def free_bytes() -> int:
    """Memory that new processes may take: of the system, or less of this process's control group."""
    return min(_system_bytes(), _group_bytes())


def _system_bytes() -> int:
    try:
        rows = dict(line.split(":", 1) for line in _SYSTEM.read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        return 1 << 62


def _group_bytes() -> int:
    """Up to the limit of a container; files that the system could drop count as free."""
    try:
        limit = int((_GROUP / "memory.max").read_text())  # "max" where there is none
        rows = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - int((_GROUP / "memory.current").read_text()) + int(rows["inactive_file"]))
    except (OSError, ValueError, KeyError):
        return 1 << 62


def _size(model: str) -> int:
    try:
        return os.path.getsize(model)
    except OSError:
        return 0
