"""Seconds per kernel over the last runs of a profiled session."""

from __future__ import annotations

ROWS = 64
"""Runs that are kept; a power of two."""


def medians(runs: list[list[float]], kernels: int) -> list[float | None]:
    """The median seconds of each kernel over `runs`, of which each has one entry per kernel; None without runs."""
    if not runs:
        return [None] * kernels
    return [sorted(run[kernel] for run in runs)[len(runs) // 2] for kernel in range(kernels)]
