"""All findings as one JSON and as tables that a person reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jitdelegate.errors import ProgramError
from scripts.gpu_check.bundle import FORM
from scripts.gpu_check.row import LEFT_OUT, NRMSE, RATIO, SECONDS, Row, newest

JSON, TABLE = "gpu-results.json", "gpu-results.md"
HEAD = ("| what | quantity | median | quartiles | mark | |", "|---|---|---|---|---|---|")
INTRODUCTION = (
    "Written by `scripts/gpu_check.sh`. Times are medians with quartiles. *Kernels* and *device time* are times on the",
    "GPU, one CUDA graph per inference, inferences queued one after another; *a call* is one inference from values in",
    "the host's memory to values in the host's memory, by the wall clock. Ratios are our time over the other's, round",
    "by round in one process. A mark is the most that the median may be.",
)


def write_json(path: Path, date: str, rows: Sequence[Row]) -> None:
    """Every row, with the date and the names of the machine's parts."""
    values: dict[str, Any] = {"date": date, **facts(rows), "rows": [row.to_dict() for row in rows]}
    path.write_text(json.dumps(values, indent=1) + "\n")


def read_json(path: Path) -> list[Row]:
    """The rows that `write_json` wrote.

    Raises:
        ProgramError: the file holds none.
    """
    try:
        return [Row.from_dict(values) for values in json.loads(path.read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProgramError(f"{path} holds no results: {error}") from error


def joined(earlier: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The rows of two runs: the later one's count, and what the earlier one lacked is no longer left out."""
    there = {row.subject for row in rows if row.section == "correctness"}
    kept = [row for row in earlier if row.quantity != LEFT_OUT or row.subject not in there]
    return newest([*kept, *rows])


def facts(rows: Iterable[Row]) -> Mapping[str, str]:
    """What is known of the machine, in words."""
    return {row.quantity: row.note for row in rows if (row.section, row.subject) == ("device", "machine")}


def table(date: str, rows: Sequence[Row]) -> str:
    """The results as Markdown: the machine first, then a table per section."""
    known = facts(rows)
    lines = [f"# {known['GPU']}, {date}", "", *INTRODUCTION, "", "## Marks", "", *_marks(rows), "", "## Machine", ""]
    lines += [f"- {name}: {text}" for name, text in known.items()]
    others = [row for row in rows if (row.section, row.subject) != ("device", "machine")]
    order = list(dict.fromkeys(row.section for row in others))
    shown = sorted(_without_forms(others), key=lambda row: order.index(row.section))
    for section, found in groupby(shown, key=lambda row: row.section):
        lines += ["", f"## {section[0].upper()}{section[1:]}", "", *HEAD, *map(_line, found)]
    return "\n".join(lines) + "\n"


def _marks(rows: Iterable[Row]) -> list[str]:
    """One line that counts, and one for each mark that is not kept."""
    asked = [row for row in rows if row.holds is not None]
    kept = [row for row in asked if row.holds]
    missed = [f"- {row.section}, {row.subject}, {row.quantity}: {_verdict(row)}" for row in asked if not row.holds]
    return [f"{len(kept)} of {len(asked)} hold.", *missed]


def _without_forms(rows: Sequence[Row]) -> list[Row]:
    """Hundreds of small graphs become one row per precision: the worst; each one that fails keeps its own."""
    forms = [row for row in rows if row.quantity == FORM]
    precisions = dict.fromkeys(row.subject.rpartition(", ")[2] for row in forms)
    summaries = [_worst(each, [row for row in forms if row.subject.endswith(f", {each}")]) for each in precisions]
    shown = [row for row in rows if row.quantity != FORM or not row.holds]
    place = next((place for place, row in enumerate(shown) if row.section == "correctness"), len(shown))
    return [*shown[:place], *summaries, *shown[place:]]


def _worst(precision: str, rows: Sequence[Row]) -> Row:
    found = [row for row in rows if row.value is not None]
    kept = sum(bool(row.holds) for row in rows)
    if not found:
        return Row("correctness", f"forms, {precision}", "worst", unit=NRMSE, note=f"0 of {len(rows)} graphs ran")
    worst = max(found, key=lambda row: row.value or 0.0)
    note = f"{kept} of {len(rows)} graphs hold; worst is {worst.subject.rpartition(', ')[0]}"
    return Row("correctness", f"forms, {precision}", "worst", worst.value, NRMSE, limit=worst.limit, note=note)


def _line(row: Row) -> str:
    spread = "" if row.low is None or row.high is None else f"{_number(row.low, row)} to {_number(row.high, row)}"
    value = "" if row.value is None else _number(row.value, row)
    cells = (row.subject, row.quantity, value, spread, _verdict(row), row.note)
    return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in cells)} |"


def _verdict(row: Row) -> str:
    if row.limit is None:
        return ""
    word = "holds" if row.holds else "**missing**" if row.value is None else "**exceeded**"
    return f"{_number(row.limit, row)} {word}"


def _number(value: float, row: Row) -> str:
    if row.unit == SECONDS:
        return f"{value:.3f} s" if value >= 0.1 else f"{1e3 * value:.4g} ms"
    return f"{value:.1e}" if row.unit == NRMSE else f"{value:.3f}" if row.unit == RATIO else f"{value:g}"
