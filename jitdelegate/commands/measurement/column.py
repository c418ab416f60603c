"""Columns of a table whose rows are printed as soon as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        key: of the row's value.
        form: its format with a width, for instance "9.3f"; values that are no numbers are written as text. "<40" is
            text.
        title: the key where it is "".
    """

    key: str
    form: str
    title: str = ""

    @property
    def width(self) -> int:
        """Characters, never fewer than the title's."""
        digits = self.form.lstrip("<").partition(".")[0].rstrip("f%deg,")
        return max(int(digits), len(self.title or self.key))

    def head(self) -> str:
        """The title above the column."""
        return self._aligned(self.title or self.key)

    def cell(self, value: object) -> str:
        """A value of the column; nothing for None."""
        if value is None:
            return self._aligned("")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._aligned(str(value))
        return self._aligned(format(value, self.form))

    def _aligned(self, text: str) -> str:
        return format(text, f"{'<' if self.form.startswith('<') else '>'}{self.width}")


def head(columns: Sequence[Column]) -> str:
    """The titles of a table."""
    return "  ".join(column.head() for column in columns).rstrip()


def line(columns: Sequence[Column], row: Mapping[str, object]) -> str:
    """A row of a table; what it lacks is empty."""
    return "  ".join(column.cell(row.get(column.key)) for column in columns).rstrip()
