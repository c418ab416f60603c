"""A short run of the stress of a directory with a limit; longer ones by hand."""

from __future__ import annotations

import pytest

from jitdelegate.runtime.cache import limit
from scripts.stress_cache import main

SHORT = ["--processes", "4", "--models", "6", "--limit", "4M", "--starts", "12"]


def test_processes_that_share_too_small_a_directory_get_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SHORT) == 0
    out = capsys.readouterr().out
    assert out.startswith("48 starts: ") and " 0 bad" in out and "left over: nothing" in out


def test_a_directory_beyond_its_limit_is_found_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "_make_room", lambda *_: 0)
    assert main(SHORT) == 1
    assert " 0 bad" in capsys.readouterr().out
