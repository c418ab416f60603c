"""Seconds per kernel over the last runs of a profiled session, and the table of them in the debug log."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jitdelegate.program.program import Kernel

ROWS = 64
"""Number of runs that are kept; a power of two."""


def medians(runs: list[list[float]], kernels: int) -> list[float | None]:
    """The median seconds of each kernel over `runs`, each with one entry per kernel; None without runs."""
    if not runs:
        return [None] * kernels
    return [sorted(run[kernel] for run in runs)[len(runs) // 2] for kernel in range(kernels)]


def kernel_rows(kernels: Iterable[tuple[float | None, str, str]]) -> list[tuple[str, str, str, str]]:
    """Of (seconds, form, further text): microseconds, the share of all kernels, form, text."""
    rows = list(kernels)
    total = sum(seconds or 0.0 for seconds, _, _ in rows) or 1.0
    return [(_time(seconds), f"{(seconds or 0.0) / total:.1%}", form, text) for seconds, form, text in rows]


def _time(seconds: float | None) -> str:
    return "not run" if seconds is None else f"{1e6 * seconds:,.2f} us"


def kernel_lines(rows: Iterable[tuple[str, str, str, str]]) -> list[str]:
    """`kernel_rows` as lines."""
    return [f"{time:>12}{share:>7} {form:<20} {text}".rstrip() for time, share, form, text in rows]


def log_times(seconds: Sequence[float | None], kernels: Sequence[Kernel]) -> None:
    """Log the table of a session that is being closed, if it ran."""
    from jitdelegate.base.debug import log

    if any(duration is not None for duration in seconds):
        pairs = zip(seconds, kernels, strict=True)
        rows = kernel_rows((duration, kernel.form, kernel.name) for duration, kernel in pairs)
        log("\n".join(["time per kernel", *kernel_lines(rows)]))


def log_times_at_exit(measure: Callable[[], Sequence[float | None]], kernels: Sequence[Kernel]) -> None:
    """Log the table of a session that is still open when Python exits.

    Args:
        measure: the session's method; the session is not kept alive.
    """
    import atexit
    from weakref import WeakMethod

    reference = WeakMethod(measure)

    def log_open() -> None:
        times = reference()
        if times is not None:
            log_times(times(), kernels)

    atexit.register(log_open)
