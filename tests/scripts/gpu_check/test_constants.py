"""Constants of the cost model: measured, and written to the package."""

from __future__ import annotations

import runpy
from dataclasses import fields
from math import nan
from pathlib import Path

import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.targets.cuda.code.gpu import Costs
from jitdelegate.targets.cuda.code.tuned import measured
from scripts import update_generator_digest
from scripts.gpu_check import constants
from scripts.gpu_check.apply_constants import apply
from scripts.gpu_check.bundle import MODEL
from scripts.gpu_check.row import Row
from tests.scripts.gpu_check.machine import bundle, library, use


def test_constants_are_measured_beside_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    rows = {row.subject: row for row in constants.rows(bundle(tmp_path, group=MODEL))}
    assert rows.keys() == {"clock", "full_edge", "saved_edge", "cluster"} <= {field.name for field in fields(Costs)}
    assert {row.quantity for row in rows.values()} == {"sm_90"} and rows["full_edge"].predicted == 900
    assert rows["full_edge"].value == pytest.approx(51e6 / 50)  # nanoseconds of the stub's launches, and an event
    assert rows["saved_edge"].value == pytest.approx(1e6, rel=1e-3)
    assert driver.calls["cuLaunchKernelEx"] > 0 and driver.leaks() == []


def row(name: str, value: float, architecture: str = "sm_90") -> Row:
    return Row(constants.SECTION, name, architecture, value, predicted=1.0)


def test_measured_constants_are_written_over_those_of_their_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, updated = tmp_path / "measured.py", list[object]()
    table.write_text(Path(measured.__file__).read_text())
    monkeypatch.setattr(measured, "MEASURED", {"sm_80": {"clock": 1.4}, "sm_90": {"cluster": 2.0}})
    monkeypatch.setattr(update_generator_digest, "main", updated.append)
    apply([row("full_edge", 812.34567), row("dependent_edge", -90.0), Row("latency", "a", "kernels", 1.0)], table)
    assert '    "sm_90": {\n        "full_edge": 812.3,\n' in table.read_text()
    written = runpy.run_path(str(table))["MEASURED"]
    assert written == {"sm_80": {"clock": 1.4}, "sm_90": {"full_edge": 812.3, "dependent_edge": -90.0}}
    assert updated == [[]] and "sm_90 full_edge: 1 -> 812.3" in capsys.readouterr().out
    assert Costs(**written["sm_90"]) == Costs(full_edge=812.3, dependent_edge=-90.0)


@pytest.mark.parametrize("rows", [[], [row("clock", nan)], [row("clock", -1.0)], [row("another", 1.0)]])
def test_what_no_gpu_can_have_is_not_written(rows: list[Row], tmp_path: Path) -> None:
    with pytest.raises(ProgramError):
        apply(rows, tmp_path / "measured.py")
