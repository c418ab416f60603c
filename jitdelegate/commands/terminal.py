"""Tables and progress bars on a terminal; plain text where there is none."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from jitdelegate.analysis.text import printable
from jitdelegate.commands.arguments import print_line

WIDE = 1 << 12
"""Characters of a line that no terminal shows."""
REFRESH = 0.25
"""Seconds between two pictures of a bar that is drawn between runs."""


class Bar(Protocol):
    """A progress bar. Its methods draw; nothing draws in between, so that measurements are not disturbed."""

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
        self._progress.update(self._task, description=Text(printable(text)).plain)
        self._progress.refresh()

    def done(self) -> None:
        self._progress.advance(self._task)
        if time.perf_counter() - self._drawn > REFRESH:
            self._progress.refresh()
            self._drawn = time.perf_counter()


@contextmanager
def progress(total: int) -> Iterator[Bar]:
    """A bar of `total` steps on stderr, which vanishes at the end; invisible where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _Hidden()
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as shown:
        yield _Shown(shown, total)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows under headings as text: as wide as the terminal, or as the longest row where there is none.

    Args:
        right: columns of numbers, which end at the same place.
    """
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if place in right else "left", overflow="fold", no_wrap=False)
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    is_terminal, text = sys.stdout.isatty(), io.StringIO()
    width = Console().width if is_terminal else WIDE
    Console(file=text, width=width, force_terminal=is_terminal, legacy_windows=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print what `table` returns."""
    print_line(table(headings, rows, right))
