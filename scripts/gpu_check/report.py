"""All results as one JSON file and as tables."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jitdelegate.errors import ProgramError
from scripts.gpu_check.bundle import FORM
from scripts.gpu_check.launches import ALL, LAUNCH
from scripts.gpu_check.launches import SECTION as LAUNCHES
from scripts.gpu_check.orders import DIFFER
from scripts.gpu_check.orders import SECTION as ORDERS
from scripts.gpu_check.row import LEFT_OUT, NRMSE, RATIO, SECONDS, Row, measured, newest

JSON, TABLE, ARCHIVE = "gpu-results.json", "gpu-results.md", "gpu-results.tgz"
FAMILY = "measured / predicted"
HEAD = ("| what | quantity | median | quartiles | mark | |", "|---|---|---|---|---|---|")
INTRODUCTION = (
    "Written by `scripts/gpu_check.sh`. Times are medians with quartiles. *Kernels* and *device time* are times on the",
    "GPU: one CUDA graph per inference, 50 inferences queued one after another between two events. *A call* is one",
    "inference from values in the host's memory to values in the host's memory. Ratios are our time over the other's,",
    "round by round in one process. A mark is the most that the median may be.",
)


def write_json(path: Path, date: str, rows: Sequence[Row]) -> None:
    """Every row, with the date and the names of the machine's parts."""
    head = json.dumps({"date": date, **facts(rows)}, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(row.to_dict()) for row in rows)
    replace_file(path, f'{head},\n "rows": [\n  {lines}\n ]\n}}\n')


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: a command may be ended at any time."""
    passing = path.with_name(f".{path.name}")
    passing.write_text(text)
    passing.replace(path)


def write_archive(folder: Path) -> None:
    """The results and the logs of tools in one file, which names neither the machine nor its users."""

    def nameless(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uname = member.gname = ""
        return member

    passing = folder / f".{ARCHIVE}"
    with tarfile.open(passing, "w:gz") as archive:
        for path in (folder / JSON, folder / TABLE, *sorted(folder.glob("sanitizer-*.log"))):
            archive.add(path, path.name, filter=nameless)
    passing.replace(folder / ARCHIVE)


def read_json(path: Path) -> list[Row]:
    """The rows that `write_json` wrote, also from an archive.

    Raises:
        ProgramError: the file holds none.
    """
    try:
        values: Any = json.loads(_text(path))["rows"]
        return [Row.from_dict(row) for row in values]
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
        raise ProgramError(f"{path} holds no results: {error}") from error


def _text(path: Path) -> str:
    if path.suffix != Path(ARCHIVE).suffix:
        return path.read_text()
    with tarfile.open(path) as archive:
        member = archive.extractfile(JSON)
        assert member is not None
        return member.read().decode()


def joined(*runs: Sequence[Row]) -> list[Row]:
    """The rows of several runs on one GPU: the latest count, and what one lacked that another has is not left out. Of
    families there are the ratios of all launches of all runs.

    Raises:
        ProgramError: they are not of one GPU.
    """
    names = {facts(rows)["GPU"] for rows in runs if "GPU" in facts(rows)}
    if len(names) > 1:
        raise ProgramError(f"the results to be joined are of {len(names)} GPUs: {', '.join(sorted(names))}")
    rows = [row for run in runs for row in run]
    there = {row.subject for row in rows if row.section == "correctness"}
    kept = [row for row in newest(rows) if row.quantity != LEFT_OUT or row.subject not in there]
    kept = [row for row in kept if row.quantity != FAMILY]
    return [*kept, *_families(kept)]


def _families(rows: Sequence[Row]) -> Iterator[Row]:
    """By family of launches and precision, how far measurements are from predictions."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row.section == LAUNCHES and row.quantity.startswith(LAUNCH) and row.ratio is not None:
            subject = f"{row.quantity.split()[-1]}, {row.subject.rpartition(', ')[2]}"
            ratios.setdefault(subject, []).append(row.ratio)
    for subject, values in ratios.items():
        yield measured(LAUNCHES, subject, FAMILY, values, unit=RATIO, note=f"{len(values)} launches")


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
    shown = sorted(_without_parts(others), key=lambda row: order.index(row.section))
    for section, found in groupby(shown, key=lambda row: row.section):
        lines += ["", f"## {section[0].upper()}{section[1:]}", "", *HEAD, *map(_line, found)]
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row]) -> list[str]:
    """What a person wants to know first: which marks do not hold, and how far the cost model is off, by family."""
    families = [row for row in rows if (row.section, row.quantity) == (LAUNCHES, FAMILY)]
    lines = [f"{row.subject:32} {_number(row.value or 0.0, row):>7} {_spread(row):>16}  {row.note}" for row in families]
    return [*_marks(rows), *(["", "launches, measured over predicted (quartiles):"] if lines else []), *lines]


def _marks(rows: Iterable[Row]) -> list[str]:
    """One line that counts, and one for each mark that is not kept."""
    asked = [row for row in rows if row.holds is not None]
    kept = [row for row in asked if row.holds]
    missed = [row for row in asked if not row.holds]
    return [f"{len(kept)} of {len(asked)} hold.", *map(_missed, missed)]


def _missed(row: Row) -> str:
    found = _number(row.value, row) if row.value is not None else row.note
    return f"- {row.section}, {row.subject}, {row.quantity}: {' '.join(found.split())}, mark {_verdict(row)}"


def _without_parts(rows: Sequence[Row]) -> list[Row]:
    """Hundreds of small graphs become one row per precision: the worst; each one that fails keeps its own. Programs
    whose runs are equal become one row. Single launches are in the JSON alone."""
    forms = [row for row in rows if row.quantity == FORM]
    precisions = dict.fromkeys(row.subject.rpartition(", ")[2] for row in forms)
    summaries = [_worst(each, [row for row in forms if row.subject.endswith(f", {each}")]) for each in precisions]
    shown = [row for row in rows if row.quantity != FORM or not row.holds]
    shown = [row for row in shown if row.section != LAUNCHES or row.quantity in (ALL, FAMILY, "clock")]
    equal = sum(bool(row.holds) for row in shown if row.quantity == DIFFER)
    shown = [row for row in shown if row.quantity != DIFFER or not row.holds]
    summaries += [Row(ORDERS, "programs whose runs are equal", "count", float(equal))] if equal else []
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
    value = "" if row.value is None else _number(row.value, row)
    note = row.note
    if row.predicted is not None and row.ratio is not None:
        note = f"{row.ratio:.2f} of the predicted {_number(row.predicted, row)}; {note}"
    cells = (row.subject, row.quantity, value, _spread(row), _verdict(row), note)
    return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in cells)} |"


def _spread(row: Row) -> str:
    return "" if row.low is None or row.high is None else f"{_number(row.low, row)} to {_number(row.high, row)}"


def _verdict(row: Row) -> str:
    if row.limit is None:
        return ""
    word = "holds" if row.holds else "**missing**" if row.value is None else "**exceeded**"
    return f"{_number(row.limit, row)} {word}"


def _number(value: float, row: Row) -> str:
    if row.unit == SECONDS:
        return f"{value:.3f} s" if value >= 0.1 else f"{1e3 * value:.4g} ms"
    return f"{value:.1e}" if row.unit == NRMSE else f"{value:.3f}" if row.unit == RATIO else f"{value:g}"
