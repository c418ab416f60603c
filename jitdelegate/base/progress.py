"""Progress bars, on a terminal and in a notebook; invisible elsewhere."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jitdelegate.base.tables import printable

REFRESH = 0.25
"""Seconds between two pictures of a bar that is drawn between steps."""


class Bar:
    """A progress bar; this one is invisible."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self.text = ""
        self._drawn = 0.0

    def more(self, steps: int) -> None:
        """Expect further steps."""
        self.total += steps

    def begin(self, text: str) -> None:
        """Name the step that begins now."""
        self.text = printable(text)
        self.draw()

    def done(self) -> None:
        """Count one step."""
        self.count += 1
        if time.perf_counter() - self._drawn > REFRESH:
            self.draw()
            self._drawn = time.perf_counter()

    def draw(self) -> None:
        """Show the state."""


class _TerminalBar(Bar):
    def __init__(self, total: int, progress: Progress) -> None:
        super().__init__(total)
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def draw(self) -> None:
        self._progress.update(self._task, description=self.text, total=self.total, completed=self.count)
        self._progress.refresh()


class _NotebookBar(Bar):
    """One output of a cell, which is written again."""

    def __init__(self, total: int, display: ModuleType) -> None:
        super().__init__(total)
        self._html = display.HTML
        self._shown: Any = display.display(self._html(""), display_id=True)

    def draw(self) -> None:
        bar = f'<progress value="{self.count}" max="{max(self.total, 1)}"></progress>'
        self._shown.update(self._html(f"{bar} {self.count}/{self.total} {html.escape(self.text)}"))

    def clear(self) -> None:
        self._shown.update(self._html(""))


@contextmanager
def progress(total: int, *, still: bool = False) -> Iterator[Bar]:
    """A bar of `total` steps, on stderr or in the notebook whose cell runs; it vanishes at the end.

    Args:
        still: draw between steps only, so that nothing disturbs what is timed.
    """
    if display := _notebook():
        notebook = _NotebookBar(total, display)
        try:
            yield notebook
        finally:
            notebook.clear()
        return
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
        yield _TerminalBar(total, shown) if is_visible else Bar(total)


def _notebook() -> ModuleType | None:
    """IPython's module `display` in a notebook's kernel; None elsewhere, and in IPython on a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython import display  # type: ignore[import-not-found, unused-ignore]

    return display  # type: ignore[no-any-return, unused-ignore]
