"""The command: which sections it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu_check import __main__
from scripts.gpu_check.row import Row
from scripts.gpu_check.sections import DEVICE, RUNS, SECTIONS, Section
from scripts.gpu_check.side_by_side import QUICK
from tests.scripts.gpu_check.machine import MACHINE, bundle, library, results, use


def test_sections_that_may_take_longer_than_there_is_time_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [word for name in SECTIONS for word in ("--only", name)]
    with pytest.raises(SystemExit) as ended:
        __main__.main([str(tmp_path), *every])
    assert ended.value.code == 2
    assert "seconds, expected at most 520: run some of them" in capsys.readouterr().err


def test_what_is_asked_for_by_name_is_run_after_the_machine_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    _, _ = results(monkeypatch, tmp_path, [])

    def note(some: list[Section], *rest: Any) -> list[list[Row]]:
        ran.extend(section.name for section in some)
        return [MACHINE] if some == [DEVICE] else []

    monkeypatch.setattr(__main__, "run_sections", note)
    assert __main__.main([str(tmp_path), "--only", "warm start", "--only", "latency", "--only", "device"]) == 0
    assert ran == ["device", "weights", "latency", "warm start"]


def test_a_section_writes_its_rows_as_it_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    bundle(tmp_path)
    rows = tmp_path / "rows"
    assert __main__.main([str(tmp_path), "--section", "device", "--rows", str(rows)]) == 0
    assert json.loads(rows.read_text().splitlines()[0])["note"] == "Stub 9000"


def test_sections_get_the_arguments_of_their_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    results(monkeypatch, tmp_path, [])
    commands: dict[str, list[str]] = {}

    def note(some: list[Section], budget: float, command: Any, name: str) -> list[list[Row]]:
        commands.update({one.name: command(one, tmp_path / "rows") for one in some})
        return [MACHINE] if some == [DEVICE] else []

    monkeypatch.setattr(__main__, "run_sections", note)
    __main__.main([str(tmp_path), "--run", "first"])
    assert {one.name: tuple(commands[one.name][-1:]) for one in RUNS["first"] if one.arguments} == {
        "orders": ("100",),
        RUNS["first"][-1].name: (QUICK,),
    }
    assert __main__.main(commands["orders"][3:]) == 0
    runs = [json.loads(line)["note"] for line in (tmp_path / "rows").read_text().splitlines()]
    assert runs == ["100 runs in each of 1 orders"] * 2 and driver.leaks() == []


def test_every_section_has_its_module_and_correctness_comes_before_speed() -> None:
    folder = Path(__main__.__file__).parent
    assert all((folder / f"{section.module}.py").exists() for section in SECTIONS.values())
    names = ["sanitizer", "correctness", "orders", "constants", "CompiledModel", "latency"]
    assert [section.name for section in RUNS["first"]][:-1] == names
    assert RUNS["first"][-1].module == "side_by_side"


def test_sections_get_no_more_seconds_than_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    results(monkeypatch, tmp_path, [])

    def note(some: list[Section], *rest: Any) -> list[list[Row]]:
        given.extend(section.seconds for section in some)
        return [MACHINE] if some == [DEVICE] else []

    monkeypatch.setattr(__main__, "run_sections", note)
    assert __main__.main([str(tmp_path), "--only", "warm start", "--only", "CompiledModel", "--most", "25"]) == 0
    assert sorted(given[2:]) == [20, 25]
