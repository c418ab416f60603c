"""The sanitizer's section; no tool of NVIDIA's is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.gpu_check import child, sanitizer
from tests.gpu.stub.sanitizer import RACE
from tests.scripts.gpu_check.machine import bundle, entry, library, of_families, tools, use


@pytest.mark.parametrize(
    ("script", "value", "note"),
    [
        ("echo 'done: one'; echo '========= ERROR SUMMARY: 0 errors'", 0.0, "1 of 1 programs"),
        ("echo '========= ERROR SUMMARY: 3 errors'; exit 1", 3.0, "0 of 1 programs, failed with 1, ========= ERROR"),
        (f"echo '========= {RACE}'; echo '========= RACECHECK SUMMARY: 2 hazards'", 2.0, f"0 of 1 programs, {RACE}"),
        (
            "echo '========= Error: Device not supported'; exit 255",
            None,
            "0 of 1 programs, failed with 255, Error: Dev",
        ),
        ("echo 'done: one'; exec sleep 60", None, "1 of 1 programs, ended after 0 s, done: one"),
    ],
)
def test_the_sanitizers_errors_are_counted(
    script: str, value: float | None, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    tools(monkeypatch, tmp_path, "compute-sanitizer", script)
    monkeypatch.setattr(sanitizer, "TOOLS", {"racecheck": 0.4 if "sleep" in script else 60.0})
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert (row.subject, row.value, row.limit, row.holds) == ("racecheck", value, 0.0, value == 0.0)
    assert row.note.startswith(note)


def test_the_sanitizer_sees_the_smallest_program_of_each_family(tmp_path: Path) -> None:
    small, large = entry(("contract_mma", 10.0), ("map", 1.0)), entry(("contract_mma", 20.0), ("map", 5.0))
    programs = of_families(tmp_path, large, small, entry(("map", 1.0)), entry(("softmax", 5.0)), entry(("scan", 9.0)))
    assert {one.case.name[0] for one in sanitizer.chosen(programs)} == {"1", "2", "3", "4"}


def test_a_missing_sanitizer_is_no_clean_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(child.shutil, "which", lambda name, path: None)
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert row.holds is False and "neither on PATH nor in a CUDA toolkit" in row.note
