"""Modules are loaded and unloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.gpu_check import module_load
from scripts.gpu_check.bundle import EXAMPLE, MODEL
from tests.scripts.gpu_check.machine import bundle, library, use


def test_module_load_leaves_nothing_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    rows = list(module_load.rows(bundle(tmp_path, names=(EXAMPLE,), group=MODEL)))
    assert [row.quantity for row in rows] == ["driver", "context", *2 * ["modules", "open and close"]]
    assert driver.leaks() == []
