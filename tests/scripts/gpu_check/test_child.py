"""Processes that a section starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jitdelegate.errors import DeviceError
from scripts.gpu_check import child
from scripts.gpu_check.child import output_of, run_tool
from tests.scripts.gpu_check.machine import tools, wait_for_end


def test_what_a_tool_watches_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(600)' & echo $! > {tmp_path / 'watched'}; wait"
    tools(monkeypatch, tmp_path, "slow", script)
    assert run_tool([str(tmp_path / "slow")], "slow.log", 1)[0] is None
    wait_for_end(int((tmp_path / "watched").read_text()))


def test_a_tool_is_ended_in_time_and_its_output_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tools(monkeypatch, tmp_path, "slow", "echo begun; exec sleep 60")
    assert child.tool("slow") == str(folder / "slow") and child.tool("nonesuch-tool") is None
    assert run_tool([str(folder / "slow")], "slow.log", 2) == (None, "begun\n")
    assert (folder / "slow.log").read_text() == "begun\n"


def test_tools_are_found_beside_cuda_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cuda-13.0" / "compute-sanitizer"
    folder.mkdir(parents=True)
    tools(monkeypatch, folder, "compute-sanitizer", "exit 0")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(child, "TOOLKITS", (f"{tmp_path}/cuda*",))
    assert child.tool("compute-sanitizer") == str(folder / "compute-sanitizer")
    monkeypatch.setattr(child, "TOOLKITS", ())
    assert child.tool("compute-sanitizer") is None
    monkeypatch.setenv("CUDA_HOME", str(folder.parent))
    assert child.tool("compute-sanitizer") == str(folder / "compute-sanitizer")


def test_a_process_that_fails_is_told_by_its_last_words() -> None:
    assert output_of(["-c", "print(1)"]) == "1\n"
    with pytest.raises(DeviceError, match=r"^ValueError: gone$"):
        output_of(["-c", "raise ValueError('gone')"])
    with pytest.raises(DeviceError, match="exit status 3"):
        output_of(["-c", "raise SystemExit(3)"])
