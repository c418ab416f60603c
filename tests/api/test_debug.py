"""JITDELEGATE_DUMP: readable files of every stage, for people."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import jitdelegate
from jitdelegate.compiler.dump import VARIABLE
from jitdelegate.errors import OptionError
from tests.api import small_models


def test_every_stage_is_written_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "dumps"))
    jitdelegate.load(small_models.convolution(), serialization_dir=False)
    names = sorted(os.listdir(tmp_path / "dumps"))
    assert names[0] == "00_read.txt"
    assert [int(name.split("_")[0]) for name in names] == list(range(len(names)))


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_place_that_takes_no_files_is_refused_by_the_variable_s_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / name))
    with pytest.raises(OptionError, match=r"JITDELEGATE_DUMP is .*, expected a folder"):
        jitdelegate.load(small_models.convolution(), serialization_dir=False)
