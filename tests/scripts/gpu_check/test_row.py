"""One finding."""

from __future__ import annotations

import json
import math

import pytest

from scripts.gpu_check.row import Row, measured, newest


def test_a_later_row_takes_the_place_of_an_earlier_one() -> None:
    first, other, second = Row("s", "a", "q", 1.0), Row("s", "b", "q", 2.0), Row("s", "a", "q", 3.0)
    assert newest([first, other, second]) == [second, other]


def test_rows_survive_json() -> None:
    row = measured("s", "a", "q", [1.0, 2.0, 3.0, 4.0], limit=2.0, predicted=5.0)
    assert (row.low, row.value, row.high, row.holds, row.ratio) == (1.25, 2.5, 3.75, False, 0.5)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row
    assert Row("s", "a", "q", note="why").to_dict() == {"section": "s", "subject": "a", "quantity": "q", "note": "why"}
    assert Row("s", "a", "q", 1.0).ratio is None and Row("s", "a", "q", predicted=2.0).ratio is None


@pytest.mark.parametrize(
    ("value", "limit", "holds"),
    [(1.0, 1.0, True), (2.0, 1.0, False), (math.nan, 1.0, False), (None, 1.0, False), (5.0, None, None)],
)
def test_a_mark_holds_only_for_a_number_within_it(value: float | None, limit: float | None, holds: bool | None) -> None:
    assert Row("s", "a", "q", value, limit=limit).holds is holds
