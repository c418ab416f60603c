"""Programs compared between commits: equal generators compare equal, and a change is named with its part."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from jitdelegate.targets.cpu import plan
from jitdelegate.targets.planning.buffer_plan import plan_memory
from scripts.compare_programs import hashes, main, report
from tests.api import small_models


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    return path


def test_equal_generators_compare_equal(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hashes([model]), hashes([model])) == 0
    assert capsys.readouterr().out == "1 of 1 models, 16 programs, 0 failed, 0 differ\n"


def test_a_change_is_named_with_its_part(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes([model])
    with patch.object(plan, "plan_memory", lambda lives, _: plan_memory(lives, 4096)):
        after = hashes([model])
    assert report(before, after) == 1
    assert "model.tflite cpu:x86-64-v4: arena_bytes" in capsys.readouterr().out


def test_a_failing_generator_is_a_difference(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes([model])
    with patch.object(plan, "plan_memory", side_effect=ValueError("no plan")):
        after = hashes([model])
    assert report(before, after) == 1
    assert "ValueError('no plan')" in capsys.readouterr().out


def test_commits_are_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["programs", "HEAD"])
    assert ended.value.code == 2
