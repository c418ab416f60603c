"""What is measured side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.gpu_check import side_by_side
from scripts.gpu_check.bundle import EXAMPLE, MODEL, named
from scripts.gpu_check.row import RATIO
from scripts.gpu_check.sides import interleave
from tests.scripts.gpu_check.machine import bundle, library, use


class Constant:
    """A side that takes no time, and says that it takes some."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def device_seconds(self) -> float:
        return self.seconds

    def call_seconds(self) -> float:
        return 2 * self.seconds


def broken(precision: str, batch: int) -> Constant:
    raise RuntimeError(f"no {precision} here for {batch}")


def test_each_side_is_compared_with_ours_round_by_round() -> None:
    makers = {
        side_by_side.COMPILED: lambda precision, batch: Constant(2.0),
        "another": lambda precision, batch: Constant(4.0),
        "broken": broken,
    }
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("s", "float16", 8, sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.COMPILED}", side_by_side.DEVICE]
    assert (ratio.value, ratio.unit, ratio.limit, ratio.holds) == (1.5, RATIO, 1.0, False)
    assert rows[side_by_side.OURS, side_by_side.CALL].value == 6.0
    assert rows["broken", side_by_side.DEVICE].note == "RuntimeError: no float16 here for 8"


def test_sides_that_take_long_to_make_join_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    graph, compiled = side_by_side.COMPILED_GRAPH, side_by_side.COMPILED
    others = {"eager": broken, graph: lambda precision, batch: Constant(1.0), compiled: broken}
    monkeypatch.setattr(side_by_side, "OTHERS", others)
    found = bundle(tmp_path, names=(named(EXAMPLE, 8),), group=MODEL)
    assert {row.subject for row in side_by_side.rows(found, "float16", "8", compiled)} == {"jitdelegate", compiled}
    rows = list(side_by_side.rows(found, "float16", "8", *others))
    assert {row.section for row in rows} == {"side by side, float16, batch 8"}
    assert [row.subject for row in rows if row.note] == ["eager", compiled]
    (*_, ratio) = [row for row in rows if row.unit == RATIO and row.quantity == side_by_side.DEVICE]
    assert (
        ratio.value == pytest.approx(0.00202) and ratio.holds
    )  # the clock of the stub: fifty times two kernels, an event
    assert driver.calls["cuGraphLaunch"] > 0


def test_every_round_measures_every_side_and_the_first_does_not_count() -> None:
    calls: list[str] = []

    def measure(name: str) -> Any:
        return lambda: float(calls.append(name) or len(calls))

    found = interleave({"a": measure("a"), "b": measure("b")}, rounds=3)
    assert [sorted(calls[k : k + 2]) for k in range(0, 8, 2)] == [["a", "b"]] * 4
    assert sorted(found["a"] + found["b"]) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
