"""A LiteRT whose structures differ anywhere is refused: by a check, by a wrong value, or by the probe's death."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.litert_delegate.c_structures import DECLARATIONS, changes

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = 2
LONGEST = 240


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    """All changes, judged in children of two processes."""
    command = [sys.executable, "-m", "tests.engine.litert_delegate.judge_layouts"]
    running = [
        subprocess.Popen([*command, str(first), str(PROCESSES)], cwd=ROOT, stdout=subprocess.PIPE)
        for first in range(PROCESSES)
    ]
    found: dict[str, str] = {}
    for process in running:
        output, _ = process.communicate(timeout=LONGEST)
        assert process.returncode == 0
        found |= json.loads(output)
    return found


def test_the_known_layout_is_accepted(verdicts: dict[str, str]) -> None:
    assert verdicts.pop("unchanged") == "accepted"


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_change_of_a_structure_is_refused(verdicts: dict[str, str], name: str) -> None:
    changed = [change for change, _ in changes() if change.startswith(f"{name}: ")]
    assert changed
    assert [change for change in changed if verdicts[change] == "accepted"] == []
