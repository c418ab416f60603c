"""Sections in processes of their own: how they end, and what is kept of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu_check import run_sections as run_sections_module
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import Section
from tests.child import command_of, in_child
from tests.scripts.gpu_check import section_programs as programs
from tests.scripts.gpu_check.machine import wait_for_end


def code(act: Callable[..., None], *arguments: object) -> Any:
    """What runs a section as a function in a process of its own, which gets the file for its rows first."""
    return lambda section, path: command_of(act, path, *arguments)


def sections(*names: str, seconds: float = 60) -> list[Section]:
    return [Section(name, "nowhere", seconds) for name in names]


def run(some: list[Section], budget: float, command: Any) -> list[Row]:
    """All that the sections found on a bundle of no importance."""
    return [row for found in run_sections(some, budget, command, "first") for row in found]


def test_what_sections_wrote_is_collected() -> None:
    *found, ended = run(sections("a"), 60, code(programs.write, "x", "y"))
    assert [row.subject for row in found] == ["x", "y"]
    assert (ended.section, ended.subject, ended.quantity, ended.limit, ended.holds) == (
        "a",
        "first",
        "seconds",
        60,
        True,
    )


def test_what_a_section_found_is_there_before_the_next_one_begins(tmp_path: Path) -> None:
    command = code(programs.write_and_count, tmp_path / "runs")
    for number, found in enumerate(run_sections(sections("a", "b", "c"), 60, command, "first"), 1):
        assert [row.subject for row in found] == ["x", "first"]
        assert len((tmp_path / "runs").read_text()) == number


def test_of_many_findings_those_that_exceed_their_marks_are_printed_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(run(sections("a"), 60, code(programs.write_many))) == 102
    _, first, *_, more, _ = capsys.readouterr().out.splitlines()
    assert first.strip() == "late: q 3  EXCEEDS 2" and more.strip() == "and 61 more"


def test_a_section_that_fails_keeps_what_it_found_and_says_how_it_ended() -> None:
    found, ended = run(sections("a"), 60, code(programs.write_and_fail))
    assert found.subject == "x"
    assert (ended.section, ended.note) == ("a", "failed with 1: ValueError: gone")
    assert ended.holds is False


def test_a_section_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    command = code(programs.write_and_hang_with_a_child, tmp_path / "child")
    found, ended = run(sections("a", seconds=5), 60, command)
    assert found.subject == "x" and ended.note == "ended after 5 s" and ended.holds is False
    wait_for_end(int((tmp_path / "child").read_text()))


def test_a_process_that_cannot_be_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = os.killpg
    monkeypatch.setattr(run_sections_module.os, "killpg", lambda group, number: None)  # as where the driver hangs
    monkeypatch.setattr(run_sections_module, "LEAVE", 0.1)
    command = code(programs.write_and_hang, tmp_path / "child")
    try:
        found, ended = run(sections("a", seconds=3), 60, command)
    finally:
        kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert found.subject == "x" and ended.note == "ended after 3 s"


def test_an_end_that_comes_while_a_section_is_started_is_not_lost() -> None:
    done = in_child(programs.end_while_a_section_is_started)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_half_a_line_of_a_section_that_was_ended_does_not_count() -> None:
    found, _ = run(sections("a"), 60, code(programs.write_half_a_line))
    assert found.subject == "x"


def test_sections_that_the_time_did_not_suffice_for_are_named() -> None:
    rows = run(sections("a", "b"), 0, code(programs.write, "x"))
    assert [(row.section, row.value) for row in rows] == [("a", None), ("b", None)]
    assert all("not begun" in row.note and row.holds is False for row in rows)
