"""The sanitizer's section; no tool of NVIDIA's is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.gpu_check import child, run_once, sanitizer
from scripts.gpu_check.run_once import DONE
from tests.gpu.stub.sanitizer import RACE
from tests.scripts.gpu_check.machine import bundle, entry, library, of_families, tools, use

BOTH = f"{DONE} one\n{DONE} another"
CLEAN = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
UNPRINTED = "========= ERROR SUMMARY: 4 errors were not printed. Use --print-limit option to adjust the number."


@pytest.mark.parametrize(
    ("output", "end", "value", "note"),
    [
        (f"{BOTH}\n{CLEAN}", "", 0.0, "2 of 2 programs"),
        ("========= ERROR SUMMARY: 1 error", "exit 1", 1.0, "0 of 2 programs, failed with 1, ========= ERROR"),
        (f"{BOTH}\n========= ERROR SUMMARY: 104 errors\n{UNPRINTED}", "", 104.0, "2 of 2 programs"),
        (
            f"=========\n========= {RACE}\n=========     and Read access\n=========\n"
            "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)",
            "",
            2.0,
            f"0 of 2 programs, {RACE} and Read access",
        ),
        (CLEAN, "exit 139", None, "0 of 2 programs, failed with 139"),
        (f"{DONE} one\n{CLEAN}", "", None, "1 of 2 programs"),
        ("========= Error: Device not supported", "exit 255", None, "0 of 2 programs, failed with 255, Error: Device"),
        (f"{DONE} one", "exec sleep 60", None, "1 of 2 programs, ended after 0 s, done: one"),
    ],
)
def test_the_sanitizers_errors_are_counted(
    output: str, end: str, value: float | None, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    tools(monkeypatch, tmp_path, "compute-sanitizer", f"cat <<'END'\n{output}\nEND\n{end}")
    monkeypatch.setattr(sanitizer, "TOOLS", {"racecheck": 0.4 if "sleep" in end else 60.0})
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert (row.subject, row.value, row.limit, row.holds) == ("racecheck", value, 0.0, value == 0.0)
    assert row.note.startswith(note)


def test_the_sanitizer_sees_the_smallest_and_the_largest_graph_of_each_family(tmp_path: Path) -> None:
    families = [[(name, cycles)] for name, cycles in (("mma", 20.0), ("mma", 10.0), ("mma", 15.0), ("map", 1.0))]
    programs = of_families(tmp_path, entry(("mma", 9.0), ("scan", 1.0)), *(entry(*one) for one in families))
    assert [one.case.name[0] for one in sanitizer.chosen(programs)] == ["4", "0", "1"]


def test_no_program_begins_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, library())
    names = [one.name for one in bundle(tmp_path).prepared("sm_90")]
    for seconds, done in ((-1, 0), (60, len(names))):
        assert run_once.main([str(tmp_path), *names, "--seconds", str(seconds)]) == 0
        assert capsys.readouterr().out.count(DONE) == done


def test_a_missing_sanitizer_is_no_clean_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(child.shutil, "which", lambda name, path: None)
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert row.holds is False and "neither on PATH nor in a CUDA toolkit" in row.note
