"""A short run of the fault injection; longer ones by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "fault_injection.py"


def test_injected_faults_are_survived() -> None:
    found = subprocess.run([sys.executable, str(SCRIPT), "--rounds", "100"], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    assert found.stdout.count(": 0 not survived") == 4
