"""The count of what stays delegated without one operator type."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.ops import OPS
from scripts import refuse_operators
from tests.api import small_models


def test_all_others_stay_delegated_and_the_table_is_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.tflite").write_bytes(small_models.convolution())
    (tmp_path / "bad.tflite").write_bytes(b"no model")
    before = dict(OPS)
    assert refuse_operators.main([str(tmp_path), "--list"]) == 0
    assert before == OPS
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bad ")
    assert any(line.split()[0] == "CONV_2D" and "1 refused, 100.00% of the others" in line for line in lines)
    assert lines[-1].endswith("100.00% of the others delegated on average")
