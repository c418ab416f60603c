"""Facts about the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from scripts.gpu_check import device_facts, report
from scripts.gpu_check.row import Row
from tests.scripts.gpu_check.machine import bundle, library, tools, use


def test_facts_name_the_machine_and_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(name="Stub 9000", version=13010))
    tools(monkeypatch, tmp_path, "compute-sanitizer", "echo NVIDIA Compute Sanitizer; echo Version 2025.3.1")
    rows = list(device_facts.rows(bundle(tmp_path)))
    known = report.facts(rows)
    assert known["GPU"] == "Stub 9000" and known["kind"] == "sm_90:132" and known["CUDA of the driver"] == "13.1"
    assert {"ecc.mode.current", "mig.mode.current", "clocks.max.sm"} <= known.keys()
    assert known["compute-sanitizer"] == "NVIDIA Compute Sanitizer Version 2025.3.1"
    assert not any(platform.node() in fact or str(tmp_path) in fact for fact in known.values())
    assert Row("device", "large", "left out", note="no room") in rows


def test_the_ceilings_are_launches_products_and_bytes_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library(total_bytes=1 << 20))
    rows = {row.quantity: row.value for row in device_facts.rows(bundle(tmp_path)) if row.subject == "ceilings"}
    assert rows["a launch after another"] == pytest.approx(51e-3 / 50)  # a millisecond each, and an event
    added = 4 * 32 * 16 * 16 * 10  # to the sums of all threads, in rounds and iterations
    assert rows["multiply-adds a second, float32"] == pytest.approx(2 * added / 3e-3)
    assert rows["multiply-adds a second, float16"] == pytest.approx(16 * 2 * added / 3e-3)
    assert rows["clock"] == pytest.approx(2 * added / 3e-3 / (128 * 132))
    assert rows["bytes a second, memory"] == pytest.approx(2 * 20 * (1 << 17) / 21e-3)  # an eighth of the memory
    assert driver.leaks() == []
