"""Users without a home directory, variables or a directory for temporary files have no cache, but models run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import platformdirs
import pytest

import jitdelegate
from cache_tools.__main__ import main as cache_tools
from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache import trouble
from jitdelegate.runtime.cache.directory import user_directory
from tests.api import programs, small_models
from tests.child import OPEN_TO_OTHERS, ROOT, command_of


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_told", set())


def no_home(*_: object, **__: object) -> str:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("answer", [no_home, lambda *_, **__: "~/.cache/jitdelegate", lambda *_, **__: ""])
def test_an_unknown_home_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_dir", answer)
    with pytest.warns(
        jitdelegate.CacheWarning, match=r"no cache directory.*What helps: set HOME or XDG_CACHE_HOME, or"
    ):
        with jitdelegate.load(small_models.convolution()) as model:
            assert len(bytes(model(bytes(768)))) == 256
        assert "the user has no cache directory" in model.report().cache.reason
    with pytest.raises(CacheError, match="the user has no cache directory"):
        user_directory()


def test_the_cache_tools_say_it_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_dir", no_home)
    assert cache_tools(["ls"]) == 2
    assert capsys.readouterr().err == "the user has no cache directory: Could not determine home directory.\n"


@pytest.mark.skipif(os.geteuid() == 0 and not OPEN_TO_OTHERS, reason="others may not enter the checkout of root")
def test_a_process_without_user_variables_and_temporary_files_runs_models(tmp_path: Path) -> None:
    model, empty = tmp_path / "model.tflite", tmp_path / "empty"
    model.write_bytes(small_models.convolution())
    empty.mkdir()
    for folder in (empty, *empty.parents[:4]):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "nowhere")}
    command = command_of(programs.run_as_nobody, model, empty, flags=["-W", "ignore"])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    if os.geteuid() == 0:
        assert "the user has no cache directory" in done.stdout
