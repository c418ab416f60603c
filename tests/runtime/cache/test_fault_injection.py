"""A short run of the fault injection; longer ones by hand."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def injected(*arguments: str) -> str:
    """What the script prints; nothing else may be printed, and no fault may be more than it survives."""
    command = [sys.executable, "-m", "scripts.fault_injection", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    return found.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_injected_faults_are_survived() -> None:
    found = injected("--rounds", "8")
    assert found.startswith("calls fail by: preloaded library\n")
    assert found.count(", 0 not survived") == 9


def test_injected_faults_are_survived_where_there_is_no_c_compiler() -> None:
    found = injected("--rounds", "5", "--patched", "--only", "cold_calls", "--only", "warm_calls", "--only", "kills")
    assert found.startswith("calls fail by: patched functions of Python\n")
    assert found.count(", 0 not survived") == 3
