"""Sections in processes of their own: how they end, and what is kept of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu_check import run_sections as run_sections_module
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import Section
from tests.gpu.stub.processes import ROOT
from tests.scripts.gpu_check.machine import wait_for_end


def code(text: str) -> Any:
    """What runs a section as Python code, with the file for its rows in `path`."""
    return lambda section, path: [sys.executable, "-c", f"path = {str(path)!r}\n{text}"]


def line(name: str) -> str:
    """Code that writes a row."""
    return f"print({json.dumps(Row('s', name, 'q', 1.0).to_dict())!r}, file=open(path, 'a'), flush=True)\n"


def sections(*names: str, seconds: float = 60) -> list[Section]:
    return [Section(name, "nowhere", seconds) for name in names]


def run(some: list[Section], budget: float, command: Any) -> list[Row]:
    """All that the sections found on a bundle of no importance."""
    return [row for found in run_sections(some, budget, command, "first") for row in found]


def test_what_sections_wrote_is_collected() -> None:
    *found, ended = run(sections("a"), 60, code(line("x") + line("y")))
    assert [row.subject for row in found] == ["x", "y"]
    assert (ended.section, ended.subject, ended.quantity, ended.limit, ended.holds) == (
        "a",
        "first",
        "seconds",
        60,
        True,
    )


def test_what_a_section_found_is_there_before_the_next_one_begins(tmp_path: Path) -> None:
    text = f"{line('x')}open({str(tmp_path / 'runs')!r}, 'a').write('.')"
    for number, found in enumerate(run_sections(sections("a", "b", "c"), 60, code(text), "first"), 1):
        assert [row.subject for row in found] == ["x", "first"]
        assert len((tmp_path / "runs").read_text()) == number


def test_of_many_findings_those_that_exceed_their_marks_are_printed_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("s", f"{number}", "q", 1.0, limit=2.0).to_dict() for number in range(100)]
    rows.append(Row("s", "late", "q", 3.0, limit=2.0).to_dict())
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    text = f"open(path, 'a').write({lines!r})"
    assert len(run(sections("a"), 60, code(text))) == 102
    _, first, *_, more, _ = capsys.readouterr().out.splitlines()
    assert first.strip() == "late: q 3  EXCEEDS 2" and more.strip() == "and 61 more"


def test_a_section_that_fails_keeps_what_it_found_and_says_how_it_ended() -> None:
    found, ended = run(sections("a"), 60, code(line("x") + "raise ValueError('gone')"))
    assert found.subject == "x"
    assert (ended.section, ended.note) == ("a", "failed with 1: ValueError: gone")
    assert ended.holds is False


def test_a_section_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n{line('x')}time.sleep(600)\n"
    )
    found, ended = run(sections("a", seconds=5), 60, code(text))
    assert found.subject == "x" and ended.note == "ended after 5 s" and ended.holds is False
    wait_for_end(int((tmp_path / "child").read_text()))


def test_a_process_that_cannot_be_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = os.killpg
    monkeypatch.setattr(run_sections_module.os, "killpg", lambda group, number: None)  # as where the driver hangs
    monkeypatch.setattr(run_sections_module, "LEAVE", 0.1)
    text = (
        f"import os, time\nopen({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n{line('x')}time.sleep(600)\n"
    )
    try:
        found, ended = run(sections("a", seconds=3), 60, code(text))
    finally:
        kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert found.subject == "x" and ended.note == "ended after 3 s"


def test_an_end_that_comes_while_a_section_is_started_is_not_lost() -> None:
    text = """
import os, signal, sys
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import DEVICE
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))  # where Python ignores exceptions
list(run_sections([DEVICE], 5, lambda section, path: ["sleep", "30"], "first"))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_half_a_line_of_a_section_that_was_ended_does_not_count() -> None:
    found, _ = run(sections("a"), 60, code(line("x") + "open(path, 'a').write('{\"sect')"))
    assert found.subject == "x"


def test_sections_that_the_time_did_not_suffice_for_are_named() -> None:
    rows = run(sections("a", "b"), 0, code(line("x")))
    assert [(row.section, row.value) for row in rows] == [("a", None), ("b", None)]
    assert all("not begun" in row.note and row.holds is False for row in rows)
