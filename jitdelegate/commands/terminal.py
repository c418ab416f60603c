"""Progress bars on a terminal, invisible where there is none, and tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jitdelegate.base.tables import printable, table
from jitdelegate.commands.arguments import print_line

REFRESH = 0.25
"""Seconds between two pictures of a bar that is drawn between runs."""


class Bar(Protocol):
    """A progress bar."""

    def begin(self, text: str) -> None:
        """Name the step that begins now."""

    def done(self) -> None:
        """Count one step."""


class _Hidden:
    def begin(self, text: str) -> None:
        pass

    def done(self) -> None:
        pass


class _Shown:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._drawn = 0.0

    def begin(self, text: str) -> None:
        self._progress.update(self._task, description=printable(text))
        self._progress.refresh()

    def done(self) -> None:
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
    if not sys.stderr.isatty():
        yield _Hidden()
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(
        *columns,
        console=Console(stderr=True),
        auto_refresh=not still,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else lines for a file would go to the terminal
    ) as shown:
        yield _Shown(shown, total)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows under headings, as `jitdelegate.base.tables.table`."""
    print_line(table(headings, rows, right), is_safe=True)
