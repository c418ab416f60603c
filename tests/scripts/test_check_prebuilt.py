"""The check of prebuilt folders on a small model; larger ones by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.targets.host import levels
from scripts import check_prebuilt
from tests.api import small_models

OFFERED = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
needs_levels = pytest.mark.skipif(not OFFERED, reason="this machine has no named instruction set")


@needs_levels
def test_all_look_ups_of_all_starts_hit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.tflite").write_bytes(small_models.two_signatures())
    assert check_prebuilt.main([str(tmp_path), "--gpus", ""]) == 0
    starts = len(OFFERED)
    assert capsys.readouterr().out.endswith(f"{starts} of {starts} starts hit in all look-ups\n")


@needs_levels
def test_a_program_that_is_not_there_is_found_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.tflite").write_bytes(small_models.convolution())
    warmed = warm.main

    def lose_one(arguments: list[str]) -> int:
        status = warmed(arguments)
        next(Path(arguments[-1]).glob("*.jitd")).unlink()
        return status

    monkeypatch.setattr(warm, "main", lose_one)
    assert check_prebuilt.main([str(tmp_path), "--gpus", ""]) == 1
    assert f"{len(OFFERED) - 1} of {len(OFFERED)} starts hit in all look-ups\n" in capsys.readouterr().out
