"""program.fbs says what the writer writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jitdelegate.program.program import HEADER, HEADER_BYTES
from jitdelegate.program.write import write
from tests.program.test_program import full_program

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "jitdelegate" / "program" / "program.fbs"


def test_the_schema_is_the_layouts() -> None:
    script = ROOT / "scripts" / "generate_program_schema.sh"
    subprocess.run(["sh", str(script), "--check"], env={**os.environ, "PYTHON": sys.executable}, check=True)


@pytest.mark.skipif(shutil.which("flatc") is None, reason="no flatc (Debian: flatbuffers-compiler)")
def test_flatc_reads_a_programs_table(tmp_path: Path) -> None:
    content = write(full_program())
    table = tmp_path / "table.bin"
    table.write_bytes(content[HEADER_BYTES : HEADER_BYTES + HEADER.unpack_from(content)[5]])
    command = ["flatc", "--json", "--strict-json", "--defaults-json", "--raw-binary", "-o", str(tmp_path)]
    subprocess.run([*command, str(SCHEMA), "--", str(table)], check=True, capture_output=True)
    found = json.loads((tmp_path / "table.json").read_text())
    assert found["target"] == "cpu" and found["arena_bytes"] == 1 << 33
    assert found["key"][:2] == ["model", "0123"]
    assert found["outputs"][0]["zero_points"] == [-3, 1 << 40]
    assert found["signatures"][0]["outputs"] == [{"name": "y", "at": 7}, {"name": "z", "at": 7}]
    assert [operator["kernel"] for operator in found["operators"]] == [0, -1]
