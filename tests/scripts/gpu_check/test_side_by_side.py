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

    def __init__(self, seconds: float, *, has_events: bool = True) -> None:
        self.seconds = seconds
        self.has_events = has_events

    def device_seconds(self) -> float:
        assert self.has_events
        return self.seconds

    def queued_seconds(self) -> float:
        return 3 * self.seconds

    def call_seconds(self) -> float:
        return 2 * self.seconds


def broken(precision: str, batch: int) -> Constant:
    raise RuntimeError(f"no {precision} here for {batch}")


def test_each_side_is_compared_with_ours_round_by_round() -> None:
    makers = {
        side_by_side.COMPILED: lambda precision, batch: Constant(2.0),
        side_by_side.JAX: lambda precision, batch: Constant(4.0, has_events=False),
        "broken": broken,
    }
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("s", "float16", 8, sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.COMPILED}", side_by_side.DEVICE]
    assert (ratio.value, ratio.unit, ratio.limit, ratio.holds) == (1.5, RATIO, 1.0, False)
    assert rows[side_by_side.OURS, side_by_side.CALL].value == 6.0
    assert rows["broken", side_by_side.DEVICE].note == "RuntimeError: no float16 here for 8"


def test_what_gives_no_events_is_compared_by_the_hosts_clock_alone() -> None:
    makers = {side_by_side.JAX: lambda precision, batch: Constant(4.0, has_events=False)}
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("s", "float32", 1, sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.JAX}", side_by_side.QUEUED]
    assert (ratio.value, ratio.limit, ratio.holds) == (0.75, 1.0, True)
    assert (side_by_side.JAX, side_by_side.DEVICE) not in rows
    assert rows[f"{side_by_side.OURS} / {side_by_side.JAX}", side_by_side.CALL].limit is None


def test_sides_that_take_long_to_make_join_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    monkeypatch.setattr(side_by_side, "QUICK", {"JAX": broken})
    slow = {side_by_side.COMPILED_GRAPH: lambda precision, batch: Constant(1.0), side_by_side.COMPILED: broken}
    monkeypatch.setattr(side_by_side, "SLOW", slow)
    rows = list(side_by_side.rows(bundle(tmp_path, names=(named(EXAMPLE, 8),), group=MODEL), "float16", "8"))
    assert {row.section for row in rows} == {"side by side, float16, batch 8"}
    assert [row.subject for row in rows if row.note] == ["JAX", side_by_side.COMPILED]
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
