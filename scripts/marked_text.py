"""Texts of which a script writes a part, between two marks."""

from __future__ import annotations

from collections.abc import Iterable


def with_lines(text: str, begin: str, lines: Iterable[str], end: str) -> str:
    """The text with these lines in place of those between its marks."""
    head, _, rest = text.partition(begin)
    return "\n".join([f"{head}{begin}", *lines, f"{end}{rest.partition(end)[2]}"])
