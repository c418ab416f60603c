"""Tables for notebooks: what objects of ours show as a cell's result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from jitdelegate.base.tables import printable

_CELL = 'style="text-align: left; vertical-align: top; white-space: pre-wrap"'
Row = Sequence[object]


def html_table(title: str, rows: Iterable[Row], headings: Row = ()) -> str:
    """A title and rows as HTML. Names that a model brought along are escaped; each row begins with its own heading."""
    head = "".join(f'<th scope="col" {_CELL}>{_safe(each)}</th>' for each in headings)
    lines = [f"<table><caption {_CELL}>{_safe(title)}</caption>", *([f"<thead><tr>{head}</tr></thead>"] * bool(head))]
    for first, *others in rows:
        cells = "".join(f"<td {_CELL}>{_safe(each)}</td>" for each in others)
        lines.append(f'<tr><th scope="row" {_CELL}>{_safe(first)}</th>{cells}</tr>')
    return "\n".join([*lines, "</table>"])


def array_rows(array: object) -> list[Row]:
    """What there is to say about the numbers of an output."""
    import numpy as np

    values = np.asarray(array)
    rows: list[Row] = []
    if values.size and values.dtype.kind in "iufb":
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if finite.size:
            wide = finite.astype(np.float64)
            amounts = f"{wide.min():g} to {wide.max():g}, {wide.mean():g} in the mean"
            rows.append(("values", amounts))
        if finite.size < values.size:
            rows.append(("not finite", f"{values.size - finite.size:,} of {values.size:,}"))
    shown = np.array2string(values, threshold=_MOST_SHOWN, edgeitems=_EDGE, precision=4)
    return [*rows, ("elements", shown)]


_MOST_SHOWN, _EDGE = 60, 2
"""Elements up to which all are shown; else so many at each end of an axis."""


def _safe(text: object) -> str:
    return escape(printable(str(text), "\n"))
