"""What commands print: lines, and tables as wide as the terminal, or as the longest row where there is none."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 1 << 12
"""Characters of a line that no terminal shows."""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows under headings.

    Args:
        right: columns of numbers, aligned to the right.
    """
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    is_terminal, text = sys.stdout.isatty(), io.StringIO()
    width = Console().width if is_terminal else WIDE
    Console(file=text, width=width, force_terminal=is_terminal, legacy_windows=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def short_number(number: int, units: Sequence[str]) -> str:
    """A number of three figures and a unit; each unit is a thousand of the one before it.

    Args:
        units: written behind the number as they are.
    """
    scaled, unit = float(number), 0
    while scaled >= 999.5 and unit < len(units) - 1:
        scaled, unit = scaled / 1000, unit + 1
    return f"{scaled:.{0 if unit == 0 or scaled >= 99.95 else 1}f}{units[unit]}"


def printable(text: str, keep: str = "") -> str:
    """The text with control characters, which could harm a terminal, escaped, but for those to `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


_LAYOUT = "\n\t"


def complain(text: str) -> None:
    """Print to stderr; control characters that a model brought along are escaped."""
    print(printable(text, _LAYOUT), file=sys.stderr)  # noqa: T201


def print_line(text: str, *, is_safe: bool = False) -> None:
    """Print to stdout, in the characters that it accepts; a closed pipe is no error.

    Args:
        is_safe: the text is for terminals, as that of a table; else control characters are escaped.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = text if is_safe else printable(text, _LAYOUT)
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows under headings, as `table`."""
    print_line(table(headings, rows, right), is_safe=True)
