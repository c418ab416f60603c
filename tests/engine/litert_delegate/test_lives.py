"""Interpreters with delegates end in any order, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    *("view_outlives_everything", "process_ends_first", "fork", "threads", "nested", "machine_code"),
    *("machine_code_fails", "interrupt_before_the_callback", "two_kinds"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_process_survives(name: str) -> None:
    command = [sys.executable, "-m", "tests.engine.litert_delegate.lives", name]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "survived\n"), ended.stderr
