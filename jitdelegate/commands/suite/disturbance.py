"""Rows that a disturbed machine has spoilt: it multiplied slower than before, others ran on it, or rounds differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from math import inf

from jitdelegate.commands.measurement.sides import OURS
from jitdelegate.commands.suite.figures import Row

SLOWER = 0.05
"""More time of the calibrating loop than in the fastest row: the clock's steps are smaller, a hyperthread's work is
not."""
OTHERS = 0.05
"""Share of all CPUs."""
SPREAD = 0.2
"""Between the quartiles of our rounds, in their median; a quiet machine's are a few hundredths."""


def mark(rows: Sequence[Row]) -> None:
    """Give each row its list "disturbed", with a reason for each sign; without times there is nothing to spoil."""
    fastest: dict[int, float] = {}
    measured = [row for row in rows if any("ms" in side for side in row["sides"].values())]
    for row in measured:
        fastest[row["threads"]] = min(*_calibrated(row), fastest.get(row["threads"], inf))
    for row in rows:
        row["disturbed"] = []
    for row in measured:
        row["disturbed"] += _signs(row, fastest[row["threads"]])


def _calibrated(row: Row) -> tuple[float, ...]:
    """Seconds of the calibrating loop before, after, and, as their median, between the rounds."""
    before, after, *rounds = row["calibration"]
    return before, after, statistics.median(rounds)


def _signs(row: Row, fastest: float) -> Iterator[str]:
    slower = max(_calibrated(row)) / fastest - 1
    if slower > SLOWER:
        yield f"the calibrating loop took {slower:.0%} longer than at best"
    if (row["others"] or 0.0) > OTHERS:
        yield f"others took {row['others']:.0%} of the CPUs"
    own = row["sides"].get(OURS, {})
    if "ms" in own and (spread := (own["high_ms"] - own["low_ms"]) / own["ms"]) > SPREAD:
        yield f"half of our rounds spread over {spread:.0%}"
