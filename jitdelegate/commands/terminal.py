"""Progress bars on a terminal, invisible where there is none, and tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jitdelegate.base.tables import print_line, printable, table

REFRESH = 0.25
"""Seconds between two pictures of a bar that is drawn between runs."""


class Bar:
    """A progress bar."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._drawn = 0.0

    def begin(self, text: str) -> None:
        """Name the step that begins now."""
        self._progress.update(self._task, description=printable(text))
        self._progress.refresh()

    def done(self) -> None:
        """Count one step."""
        self._progress.advance(self._task)
        if time.perf_counter() - self._drawn > REFRESH:
            self._progress.refresh()
            self._drawn = time.perf_counter()


@contextmanager
def progress(total: int, *, still: bool = False) -> Iterator[Bar]:
    """A bar of `total` steps on stderr, which vanishes at the end; invisible where stderr is no terminal.

    Args:
        still: draw between steps only, so that nothing disturbs what is timed.
    """
    is_visible = sys.stderr.isatty()
    shown = Progress(
        *(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        console=Console(stderr=True),
        auto_refresh=not still,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else lines for a file would go to the terminal
        disable=not is_visible,
    )
    with shown if is_visible else nullcontext():  # old versions of rich end an invisible bar with an empty line
        yield Bar(shown, total)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows under headings, as `jitdelegate.base.tables.table`."""
    print_line(table(headings, rows, right), is_safe=True)
