"""What the continuous integration runs is what the README promises."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ["checks", "release"]
"""Functions of `.ci/run`."""


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


@pytest.mark.parametrize(("checks", "release"), [("true", "true"), ("true", "false"), ("false", "true")])
def test_ci_fails_where_one_of_the_parts_does_that_run_side_by_side(checks: str, release: str) -> None:
    script = (ROOT / ".ci" / "run").read_text()
    parts = "".join(
        f"{name}() {{\n{status}\necho {name}\n}}\n" for name, status in zip(PARTS, (checks, release), strict=True)
    )
    ended = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{parts}" + script[script.index("\ntold=") :]],
        capture_output=True,
        text=True,
    )
    passed = [name for name, status in zip(PARTS, (checks, release), strict=True) if status == "true"]
    assert (ended.returncode == 0, ended.stdout.split()) == (passed == PARTS, passed)


def lowest(requirements: str) -> dict[str, str]:
    """Package to the lowest version that requirements allow."""
    found = {}
    for line in requirements.split("\n"):
        name, bound, version = re.match(r"([\w-]*)[^;<>=]*(>?=?)([\d.]*)", line).groups()  # type: ignore[union-attr]
        if name:
            assert bound == ">=", f"{line} has no lowest version"
            found[name] = version
    return found


def test_ci_runs_some_tests_with_the_lowest_versions_that_are_allowed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = lowest(setup["options"]["install_requires"]) | lowest(setup["options.extras_require"]["cuda"])
    lines = (ROOT / "scripts" / "lowest_versions.txt").read_text().splitlines()
    assert [line for line in lines if line[0] != "#"] == [f"{name}=={version}" for name, version in wanted.items()]
    assert "scripts/check_lowest.sh" in (ROOT / ".ci" / "run").read_text().splitlines()
    assert "-c scripts/lowest_versions.txt" in (ROOT / "scripts" / "check_lowest.sh").read_text()


def test_ci_says_in_one_line_why_nothing_is_tested_on_aarch64(tmp_path: Path) -> None:
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\necho 'no network' >&2\nexit 100\n")
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    ended = subprocess.run([ROOT / "scripts" / "check_arm.sh"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr == ""
    assert ended.stdout == "nothing is tested on AArch64, as its packages cannot be had: no network\n"
    assert "scripts/check_arm.sh" in (ROOT / ".ci" / "run").read_text()
