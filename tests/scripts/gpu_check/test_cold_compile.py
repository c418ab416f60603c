"""Sections whose software is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.gpu_check import cold_compile, webgpu
from tests.scripts.gpu_check.machine import bundle, library, use


def test_what_is_not_installed_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(cold_compile, "find_spec", lambda name: None)
    (row,) = cold_compile.rows(bundle(tmp_path))
    assert row.value is None and row.note == "numba-cuda is not installed"
    monkeypatch.setitem(sys.modules, "ai_edge_litert.compiled_model", None)
    (row,) = webgpu.rows(bundle(tmp_path))
    assert row.value is None and "ai_edge_litert" in row.note
