"""The latency of models; no time is asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.errors import DeviceError
from scripts.gpu_check import latency
from scripts.gpu_check.bundle import MODEL
from tests.scripts.gpu_check.machine import bundle, library, use


def test_latency_is_measured_of_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(latency.rows(bundle(tmp_path, group=MODEL)))
    assert [row.quantity for row in rows[:4]] == ["kernels", "kernels and copies", "a call", "launches"]
    assert rows[0].value == pytest.approx(101e-3 / 50)  # fifty times two kernels, between two events
    assert all(row.value for row in rows)
    assert list(latency.rows(bundle(tmp_path))) == []


def test_a_model_without_a_session_says_why_it_has_no_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library(total_bytes=100))
    found = bundle(tmp_path, group=MODEL)
    rows = list(latency.rows(found))
    assert [row.value for row in rows] == [None, None] and "no GPU memory" in rows[0].note
    with pytest.raises(DeviceError):
        latency.measure(next(found.prepared("sm_90")))
    assert driver.leaks() == []
