"""The types that users see, under mypy's strict rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_client_with_strict_types_passes(tmp_path: Path) -> None:
    copy = tmp_path / "client.py"
    copy.write_text(CLIENT.read_text())
    assert check(copy, tmp_path) == []
    copy.write_text(CLIENT.read_text().replace("options.gpu_options.serialization_dir", "options.gpu_options.no_such"))
    assert [line.rpartition("[")[2] for line in check(copy, tmp_path)] == ["attr-defined]"]
    copy.write_text(CLIENT.read_text().replace("precision=None", "precison=None").replace("profile=True", "profile=[]"))
    errors = [line for line in check(copy, tmp_path) if ": error: " in line]
    assert [line.rpartition("[")[2] for line in errors] == ["arg-type]", "call-arg]"]
