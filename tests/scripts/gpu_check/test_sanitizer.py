"""The sanitizer's section; no tool of NVIDIA's is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.gpu_check import child, ncu, sanitizer
from tests.scripts.gpu_check.machine import bundle, entry, library, of_families, tools, use


@pytest.mark.parametrize(
    ("script", "value", "note"),
    [
        ("echo '========= ERROR SUMMARY: 0 errors'", 0.0, "1 programs"),
        ("echo '========= ERROR SUMMARY: 3 errors'; exit 1", 3.0, "1 programs, failed with 1"),
        ("echo '========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)'", 2.0, "1 programs"),
        ("echo '========= Error: Device not supported'; exit 255", None, "failed with 255: ========= Error: Device"),
    ],
)
def test_the_sanitizers_errors_are_counted(
    script: str, value: float | None, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    tools(monkeypatch, tmp_path, "compute-sanitizer", script)
    rows = list(sanitizer.rows(bundle(tmp_path)))
    assert [(row.subject, row.value, row.limit) for row in rows] == [(name, value, 0.0) for name in sanitizer.TOOLS]
    assert all(row.note.startswith(note) and row.holds is (value == 0.0) for row in rows)


def test_the_sanitizer_sees_the_smallest_program_of_each_family(tmp_path: Path) -> None:
    small, large = entry(("contract_mma", 10.0), ("map", 1.0)), entry(("contract_mma", 20.0), ("map", 5.0))
    programs = of_families(tmp_path, large, small, entry(("map", 1.0)), entry(("softmax", 5.0)))
    assert [one.case.name[0] for one in sanitizer.chosen(programs)] == ["1", "3"]


def test_what_nvidia_did_not_install_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(child.shutil, "which", lambda name, path: None)
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert row.note == "it is not installed"
    (row,) = ncu.rows(bundle(tmp_path))
    assert row.note == "it is not installed"
