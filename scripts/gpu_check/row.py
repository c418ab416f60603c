"""Row: one result, a number with its spread and its goal, or the reason why there is none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LEFT_OUT = "left out"
SECONDS, RATIO, NRMSE = "s", "ratio", "NRMSE"


@dataclass(frozen=True, slots=True)
class Row:
    """One finding; a later one of the same section, subject and quantity takes its place.

    Attributes:
        section: that found it.
        subject: what was looked at, such as a model with its precision.
        quantity: what of it.
        value: the median where it was measured repeatedly; None where there is no number.
        unit: "s", "ratio", "NRMSE" or "" for plain numbers.
        low, high: quartiles of the repetitions.
        limit: the most that the value may be; None for a number that nothing is asked of.
        predicted: the value that the cost model expected; None where it says nothing.
        note: a fact in words, or why there is no value.
    """

    section: str
    subject: str
    quantity: str
    value: float | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    predicted: float | None = None
    note: str = ""

    @property
    def name(self) -> tuple[str, str, str]:
        """What a later finding has to share to take this one's place."""
        return self.section, self.subject, self.quantity

    @property
    def holds(self) -> bool | None:
        """Whether the value keeps its limit, None where nothing is asked; a value that is missing or NaN does not."""
        if self.limit is None:
            return None
        return self.value is not None and self.value <= self.limit

    @property
    def ratio(self) -> float | None:
        """The value over the one that was predicted, None where either is missing."""
        return None if self.value is None or not self.predicted else self.value / self.predicted

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON's types, without what is empty, with `holds` and `ratio` where there are any."""
        values = {**asdict(self), "holds": self.holds, "ratio": self.ratio}
        return {name: value for name, value in values.items() if value is not None and value != ""}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Row:
        """The row that `to_dict` described."""
        return cls(**{name: value for name, value in values.items() if name not in ("holds", "ratio")})


def measured(
    section: str,
    subject: str,
    quantity: str,
    values: Sequence[float],
    *,
    unit: str = SECONDS,
    limit: float | None = None,
    predicted: float | None = None,
    note: str = "",
) -> Row:
    """The median of repeated measurements with its quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * [values[0]]
    return Row(section, subject, quantity, middle, unit, low, high, limit, predicted, note)


def newest(rows: Sequence[Row]) -> list[Row]:
    """The rows that no later one took the place of."""
    return list({row.name: row for row in rows}.values())
