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


def begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """The seconds of the sections that are begun, in order, and the arguments of their processes."""
    seconds: dict[str, float] = {}
    commands: dict[str, list[str]] = {}

    def begin(some: list[Section], budget: float, command: Any, name: str) -> list[list[Row]]:
        seconds.update({one.name: one.seconds for one in some})
        commands.update({one.name: command(one, tmp_path / "rows")[3:] for one in some})
        return [MACHINE] if some == [DEVICE] else []

    results(monkeypatch, tmp_path, [])
    monkeypatch.setattr(__main__, "run_sections", begin)
    assert __main__.main([str(tmp_path), *arguments]) == 0
    return seconds, commands


def test_what_is_asked_for_by_name_is_run_after_the_machine_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, _ = begun(monkeypatch, tmp_path, "--only", "warm start", "--only", "latency", "--only", "device")
    assert list(seconds) == ["device", "weights", "latency", "warm start"]


def test_sections_get_no_more_seconds_than_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    which = ("--only", "warm start", "--only", "CompiledModel")
    seconds, _ = begun(monkeypatch, tmp_path, *which, "--most", "25")
    assert (seconds["warm start"], seconds["CompiledModel"]) == (25, 20)


def test_sections_get_the_arguments_of_their_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    _, commands = begun(monkeypatch, tmp_path, "--run", "first")
    *_, last = RUNS["first"]
    assert (commands["orders"][-1], commands[last.name][-1]) == ("100", QUICK)
    assert __main__.main(commands["orders"]) == 0
    runs = [json.loads(line)["note"] for line in (tmp_path / "rows").read_text().splitlines()]
    assert runs == ["100 runs in each of 1 orders"] * 2


def test_a_section_writes_its_rows_as_it_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    bundle(tmp_path)
    rows = tmp_path / "rows"
    assert __main__.main([str(tmp_path), "--section", "device", "--rows", str(rows)]) == 0
    assert json.loads(rows.read_text().splitlines()[0])["note"] == "Stub 9000"


def test_every_section_has_its_module_and_correctness_comes_before_speed() -> None:
    folder = Path(__main__.__file__).parent
    assert all((folder / f"{section.module}.py").exists() for section in SECTIONS.values())
    names = ["sanitizer", "correctness", "orders", "constants", "CompiledModel", "latency"]
    assert [section.name for section in RUNS["first"]][:-1] == names
    assert RUNS["first"][-1].module == "side_by_side"
