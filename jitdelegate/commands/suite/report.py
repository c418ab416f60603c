"""What is printed: lines of a row as soon as it is measured, means over all rows, and what to know about them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.sides import OURS
from jitdelegate.commands.suite.figures import Row

COLUMNS = (
    *(Column("model", "<44"), Column("threads", "7"), Column("side", "<12")),
    *(Column("ms", "9.3f"), Column("low_ms", "9.3f", "25%"), Column("high_ms", "9.3f", "75%")),
    *(Column("ratio", "6.2f"), Column("ratio_low", "6.2f", "25%"), Column("ratio_high", "6.2f", "75%")),
    *(Column("error", "<15", "against LiteRT"), Column("note", "<1")),
)
TOP = 3
"""Kernels that a line names, those that take the most time."""
REASON = 120
"""Most characters of a reason; the JSON file has the rest."""
BETTER = "the better one"
SMALL_MS = 0.1
GROUPS: Mapping[str, Callable[[float], bool]] = {
    "all": lambda ms: True,
    f"under {SMALL_MS:g} ms": lambda ms: ms < SMALL_MS,
    f"from {SMALL_MS:g} ms on": lambda ms: ms >= SMALL_MS,
}
"""Of models by our time."""
HEADINGS = ("threads", "against", "models", "number", "geometric mean", "without *", "least", "of")


def lines(row: Row) -> Iterator[dict[str, Any]]:
    """One of COLUMNS for each side; that of ours has the ratio to the fastest other side. "*" marks a disturbed row."""
    for name, side in row["sides"].items():
        about = {"model": row["model"] + " *" * bool(row["disturbed"]), "threads": row["threads"], "side": name}
        if name == OURS:
            about |= {**(row["against_better"] or {}), "note": _note(row)}
        yield {**about, **side, "error": error_of(side.get("differences", ())), **_reason(side)}


def _reason(side: Mapping[str, Any]) -> dict[str, str]:
    return {"note": shorten(side["reason"], REASON)} if "reason" in side else {}


def _note(row: Row) -> str:
    parts = [f"ratio: against {row['better']}"] if row["better"] else []
    if "peak_share" in row:
        parts.append(f"{row['peak_share']:.0%} of peak, {row['memory_share']:.0%} of memory speed")
        total = sum(kernel["ms"] for kernel in row["kernels"])
        parts += [
            f"{kernel['ms'] / total:.0%} {kernel['kind']}:{kernel['number']} ({kernel['peak_share']:.0%})"
            for kernel in row["kernels"][:TOP]
            if "peak_share" in kernel
        ]
    if row["unprofiled"]:
        parts.append(shorten(f"no profile: {row['unprofiled']}", REASON))
    return "; ".join(parts)


def error_of(differences: Sequence[Mapping[str, Any]]) -> str:
    """The largest NRMSE of outputs of floats, and how many elements of others differ."""
    floats = [each["nrmse"] for each in differences if each["type"].startswith("float")]
    if None in floats or any(each["mismatch"] for each in differences):
        return "not comparable"
    others = [each for each in differences if not each["type"].startswith("float")]
    parts = [f"{max(floats):.1e}"] if floats else []
    if others:
        parts.append(f"{sum(each['differing'] for each in others)}/{sum(each['elements'] for each in others)}")
    return ", ".join(parts)


def means(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Rows below HEADINGS: for each number of threads, side and group of models, the ratios' mean and the least."""
    found = []
    for threads in sorted({row["threads"] for row in rows}):
        names = [BETTER, *dict.fromkeys(name for row in rows for name in row["sides"] if name != OURS)]
        for name in names:
            compared = [row for row in rows if row["threads"] == threads and ratio_of(row, name) is not None]
            for group, holds in GROUPS.items():
                if chosen := [row for row in compared if holds(row["sides"][OURS]["ms"])]:
                    found.append((str(threads), name, group, str(len(chosen)), *_mean(chosen, name)))
    return found


def ratio_of(row: Row, name: str) -> float | None:
    """A side's time over ours, or that of the fastest one; None where one of them is missing."""
    side = row["against_better"] if name == BETTER else row["sides"].get(name)
    return (side or {}).get("ratio")


def _mean(rows: Sequence[Row], name: str) -> tuple[str, ...]:
    ratios = {row["model"]: ratio_of(row, name) or 0.0 for row in rows}
    quiet = [ratios[row["model"]] for row in rows if not row["disturbed"]]
    worst = min(ratios, key=lambda model: ratios[model])
    without = f"{statistics.geometric_mean(quiet):.3f}" if quiet else ""
    return f"{statistics.geometric_mean(ratios.values()):.3f}", without, f"{ratios[worst]:.3f}", worst


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """What failed, and which rows are disturbed."""
    if failed := [(row, name) for row in rows for name, side in row["sides"].items() if "reason" in side]:
        yield f"not measured: {len(failed)} sides of rows, whose lines have the reason"
    if disturbed := [row for row in rows if row["disturbed"]]:
        yield f"disturbed, and marked *: {len(disturbed)} of {len(rows)} rows; measure them again on a quiet machine"
        for row in disturbed:
            yield f"  {row['model']}, threads {row['threads']}: {'; '.join(row['disturbed'])}"
