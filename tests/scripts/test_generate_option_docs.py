"""The types of options and the page about them are those of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.base.options import FIELDS, DelegateOptions
from scripts import generate_option_docs
from scripts.generate_option_docs import BEGIN, COMMAND, END, descriptions, main, table, types
from scripts.marked_text import with_lines


def test_the_committed_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert status == 0, f"{capsys.readouterr().err}Write the files again: {COMMAND}"


def test_stale_files_are_reported_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "options.md"
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    monkeypatch.setattr(generate_option_docs, "PAGE", page)
    monkeypatch.setattr(generate_option_docs, "TYPES", tmp_path / "option_types.py")
    assert main(["--check"]) == 1 and capsys.readouterr().err.count(COMMAND) == 2
    assert main([]) == 0 and main(["--check"]) == 0
    text = page.read_text()
    assert text == with_lines(text, BEGIN, table(), END)
    assert text.startswith(f"before\n{BEGIN}\n| option |") and text.endswith(f"\n{END}\nafter\n")


def test_every_option_is_described_in_the_order_of_the_table() -> None:
    assert list(descriptions()) == list(FIELDS)
    assert all(descriptions().values())


def test_the_types_of_a_table_are_classes_with_each_option() -> None:
    classes: dict[str, dict[str, object]] = {}
    exec(types(), classes)
    assert set(classes["Checked"].__annotations__) == set(DelegateOptions.__slots__)
    assert set(classes["Arguments"].__annotations__) == {*FIELDS, "backend", "experimental_enable_quant"}
    assert set(classes["Keywords"].__annotations__) < set(classes["Arguments"].__annotations__)
