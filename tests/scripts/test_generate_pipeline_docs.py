"""The pipeline in CONTRIBUTING.md is the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate import passes
from scripts import generate_pipeline_docs
from scripts.generate_pipeline_docs import BEGIN, COMMAND, END, TITLES, main, table
from scripts.marked_text import with_lines


def test_the_committed_table_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert status == 0, f"{capsys.readouterr().err}Write the table again: {COMMAND}"


def test_a_stale_table_is_reported_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "CONTRIBUTING.md"
    document.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    monkeypatch.setattr(generate_pipeline_docs, "TARGET", document)
    assert main(["--check"]) == 1 and COMMAND in capsys.readouterr().err
    assert main([]) == 0 and main(["--check"]) == 0
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| stage |") and text.endswith(f"|\n{END}\nafter\n")
    assert "stale" not in text


def test_writing_twice_changes_nothing() -> None:
    once = with_lines(f"{BEGIN}\n{END}\n", BEGIN, table(), END)
    assert with_lines(once, BEGIN, table(), END) == once


def test_every_pass_has_a_row_in_its_order() -> None:
    cells = [line.split(" | ") for line in table()]
    names = [cell[1].strip("`") for cell in cells if cell[0] in ("| infer", "| fold", "| rewrite")]
    assert names == [each.__name__ for each in passes.PIPELINE]
    assert {len(cell) for cell in cells} == {len(TITLES)}
