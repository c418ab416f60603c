"""The types that users see, under mypy's strict rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).with_name("typed_client.py")
ROOT = CLIENT.parents[2]


def check(client: Path, folder: Path) -> list[str]:
    """What mypy says of the client, from a folder without a configuration."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--cache-dir", str(folder), str(client)], cwd=folder, env=environment, capture_output=True, text=True
    )
    return [line for line in done.stdout.splitlines() if client.name in line]


MISSPELT = {"tuning=None": "tunning=None", "profile=True": "profil=True", "precision=None": "precison=None"}
"""Options in calls of CompiledModel.create, of GpuOptions and DelegateOptions, and of GpuDelegate."""


def test_a_client_passes_pyright_s_strict_rules(tmp_path: Path) -> None:
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "client.py").write_text(CLIENT.read_text())
    rules = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "reportMissingTypeStubs": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(rules))
    done = subprocess.run([pyright, "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True)
    assert "0 errors" in done.stdout, done.stdout


def test_a_client_with_strict_types_passes(tmp_path: Path) -> None:
    copy = tmp_path / "client.py"
    copy.write_text(CLIENT.read_text())
    assert check(copy, tmp_path) == []
    copy.write_text(CLIENT.read_text().replace("options.gpu_options.serialization_dir", "options.gpu_options.no_such"))
    assert [line.rpartition("[")[2] for line in check(copy, tmp_path)] == ["attr-defined]"]
    text = CLIENT.read_text().replace("num_threads=2", "num_threads=[]")
    for right, wrong in MISSPELT.items():
        text = text.replace(right, wrong)
    copy.write_text(text)
    errors = [line.partition(": error: ")[2] for line in check(copy, tmp_path) if ": error: " in line]
    meant = [error.rpartition("mean ")[2] for error in errors if error.endswith("[call-arg]")]
    assert meant == [f'"{name}"?  [call-arg]' for name in ("profile", "precision", "profile", "tuning")]
    assert [error.rpartition("[")[2] for error in errors if not error.endswith("[call-arg]")] == ["arg-type]"]
