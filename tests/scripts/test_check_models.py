"""Models checked against LiteRT: folders in folders count, and nothing is no success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jitdelegate.commands.analysis.survey import analyze
from scripts.check_models import check, main
from tests.api import small_models


def test_models_in_folders_of_folders_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "first.tflite").write_bytes(small_models.two_outputs())
    (tmp_path / "a" / "b" / "second.tflite").write_bytes(small_models.two_outputs())
    assert main([str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["model"], row["verdict"]) for row in rows) == [("first.tflite", "ok"), ("second.tflite", "ok")]


def test_what_the_analyzer_says_otherwise_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "model.tflite", tmp_path / "other.tflite"
    path.write_bytes(small_models.two_outputs())
    other.write_bytes(small_models.convolution())
    assert check(path, "load", 1)["verdict"] == "ok"
    monkeypatch.setattr("scripts.check_models.analyze", lambda _, options: analyze(str(other), options))
    assert check(path, "load", 1)["verdict"] == "ANALYZED OTHERWISE"


@pytest.mark.parametrize("name", ["empty", "mistyped", "mistyped.tflite"])
def test_a_check_of_nothing_fails(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also beside a path with models: who names a folder means it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.tflite").write_bytes(small_models.two_outputs())
    for others in ([], [str(tmp_path / "model.tflite")]):
        with pytest.raises(SystemExit) as exit:
            main([*others, str(tmp_path / name)])
        assert exit.value.code == 2
        assert f"nothing to check, no .tflite file: {tmp_path / name}\n" in capsys.readouterr().err
