"""What the continuous integration runs is what the README promises."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text().splitlines()
    commands = [line for line in readme if line.endswith("-m pytest")]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text().splitlines()
