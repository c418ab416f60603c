"""Where the system gives too little memory, "auto" ends on LiteRT, with the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.runtime.memory import machine

ROOT = Path(__file__).parents[2]
LITERT_S = ("XNNPACK", "Mmap of", "no memory", "MemoryError")
"""Words of LiteRT's errors, and of ours that say the same."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if not machine():
        pytest.skip("the limits are those of Linux")
    folder, environment = tmp_path_factory.mktemp("starved"), os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.api.starved", str(folder)]
    found = subprocess.run(command, stdout=subprocess.PIPE, env=environment, cwd=folder, check=True).stdout
    return list(map(json.loads, found.splitlines()))


@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("road", ["load", "interpreter", "delegate"])
def test_a_starved_process_answers_as_litert_or_fails_as_litert(
    answers: list[dict[str, Any]], road: str, start: str
) -> None:
    wanted = next(each["sum"] for each in answers if each["road"] == "litert" and each["limit"] == 600)
    # as often started: the parent of later children has mapped more already
    alone = {each["limit"]: each for each in answers if (each["road"], each["start"]) == ("litert", start)}
    found = [each for each in answers if (each["road"], each["start"]) == (road, start)]
    assert len(found) == len(alone)
    for each in found:
        assert "died" not in each, each
        if "sum" in each:
            assert each["sum"] == pytest.approx(wanted, rel=1e-5), each
            assert each["target"] == "cpu" or each["reason"], each
        else:
            assert each["is_litert_s"] and any(words in each["words"] for words in LITERT_S), each
            is_litert_itself = road == "delegate" and "XNNPACK" in each["words"]
            assert "error" in alone[each["limit"]] or is_litert_itself, each
    assert found[-1]["target"] == "cpu"
    assert start == "warm" or any(each.get("target") == "litert" for each in found)
