"""What the continuous integration runs is what the README promises."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text().splitlines()
    commands = [line for line in readme if line.endswith("-m pytest")]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text().splitlines()


def test_ci_lints_formats_and_checks_types_once() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    for command in ("ruff check", "ruff format --check", "mypy"):
        assert len([line for line in lines if command in line]) == 1
    others = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert [path for path in others if "bin/ruff" in path.read_text() or "bin/mypy" in path.read_text()] == []


def test_ci_runs_some_tests_with_all_debug_output() -> None:
    assert "JITDELEGATE_DEBUG=4 .venv/bin/python -m pytest " in (ROOT / ".ci" / "run").read_text()
