"""Launches compared with their predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu_check import ceilings, correctness, latency, launches
from scripts.gpu_check.bundle import MODEL, Entry
from tests.gpu.stub.programs import KERNELS
from tests.scripts.gpu_check.machine import CYCLES, bundle, library, once, use


@pytest.mark.parametrize(("section", "quantity"), [(latency, "kernels"), (launches, "all launches")])
def test_a_kernel_that_fails_costs_no_other_model_its_times(
    section: Any, quantity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = once(tmp_path / "ran", lambda memory: memory.read(4, 4))
    use(monkeypatch, library({**KERNELS, "scale": crash}))
    rows = [row for row in section.rows(bundle(tmp_path, group=MODEL)) if row.quantity == quantity]
    assert [row.value is None for row in rows] == [True, False]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in rows[0].note


def test_each_launch_stands_beside_its_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(launches.rows(bundle(tmp_path, names=("net", "other"), group=MODEL)))
    found = {row.name[1:]: row for row in rows}
    clock = found["ceilings", "clock"].value
    first = found["net, float32", "launch 0 map"]
    assert first.value == pytest.approx(0.0, abs=1e-9)  # a kernel takes as long as one that does nothing
    assert first.predicted == pytest.approx(2000 / clock) and first.ratio == pytest.approx(0.0, abs=1e-6)
    whole = found["net, float32", "all launches"]
    assert whole.predicted == pytest.approx(2500 / clock) and whole.note.startswith("2 launches")


def test_measuring_programs_leaves_nothing_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    found = bundle(tmp_path, group=MODEL)
    limits = ceilings.measure(found)
    for prepared in found.prepared("sm_90"):
        assert correctness.compare(prepared) and latency.measure(prepared)
        assert launches.measure(prepared, limits=limits)
    assert driver.leaks() == []


def test_a_model_whose_launches_cannot_be_timed_costs_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path, names=("net", "other"), group=MODEL)
    wrong = replace(found.cases[0], programs={"sm_90 float32": Entry("x", "0" * 32, CYCLES)})
    rows = list(launches.rows(replace(found, cases=[wrong, found.cases[1]])))
    assert rows[1].name[1:] == ("net, float32", "all launches") and rows[1].value is None and rows[1].note
    assert {row.subject for row in rows[2:]} >= {"other, float32", "other, float16"}
