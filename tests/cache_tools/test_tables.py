"""The commands list tables of tuned kernels in the cache directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cache_tools.__main__ import main
from jitdelegate.runtime.cache.directory import open_cache_directory
from jitdelegate.runtime.cache.tuned import Winner, add_to_table

PROBLEM, NAME = "contract_mma float16 M196 N512", "sm_90-132.tuned"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    add_to_table(open_cache_directory(str(tmp_path)), "sm_90:132", {PROBLEM: Winner("64-64/2", "full", 3.25, 4.5)})
    return tmp_path


def test_a_table_is_listed_verified_and_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ls", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"{NAME}  1 tuned problems  ")
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out == f"{NAME}  good\n"
    monkeypatch.chdir(folder)
    for path in (str(folder / NAME), NAME):
        assert main(["show", path]) == 0
        line = capsys.readouterr().out.splitlines()[1]
        assert line == f"  {PROBLEM}: 64-64/2 3.25 us, the cost model's 4.50 us (full)"
    assert main(["show", str(folder / NAME), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["winners"][PROBLEM]["candidate"] == "64-64/2"


def test_damage_is_told_and_repaired(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:-4])
    for command in (["ls"], ["verify"]):
        assert main([*command, str(folder)]) == 1
        assert "its first line does not fit the others" in capsys.readouterr().out
    assert main(["repair", str(folder)]) == 0
    assert os.listdir(folder) == []


def test_tables_are_removed_by_name_and_by_age(folder: Path) -> None:
    assert main(["prune", str(folder), "--max-size=0", "--max-age=1d"]) == 0
    assert os.listdir(folder) == [NAME]
    assert main(["rm", "other", "--dir", str(folder)]) == 2
    assert main(["rm", NAME, "--dir", str(folder), "--dry-run"]) == 0
    os.utime(folder / NAME, (0, 0))
    assert main(["prune", str(folder), "--max-age=1d"]) == 0
    assert os.listdir(folder) == []
    add_to_table(open_cache_directory(str(folder)), "sm_90:132", {PROBLEM: Winner("x", "full", 3.25, 4.5)})
    assert main(["rm", NAME, "--dir", str(folder)]) == 0
    assert os.listdir(folder) == []
