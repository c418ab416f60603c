"""docs/ops.md is what the operators' declarations say."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.registry import ANY, NUMBERS, Op
from scripts import generate_op_docs
from scripts.generate_op_docs import COLUMNS, COMMAND, TITLES, document, inputs_of, main, row, shapes_of, types_of


class Family(Op):
    """What its operators
    have in common.
    """

    most = 3
    parameters = (1, 2)
    types = (*NUMBERS, "bool")
    kinds: ClassVar = {2: ("int32",)}
    results: ClassVar = {0: ("string", *ANY)}


class Member(Family):
    """|x|."""

    name = "MEMBER"


class Explained(Member):
    """Another.

    More
    about it.
    """

    name = "EXPLAINED"
    least = most = 2
    parameters = ()


def test_the_committed_table_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert status == 0, f"{capsys.readouterr().err}Regenerate docs/ops.md: {COMMAND}"


def test_a_stale_table_is_told_with_the_command_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_op_docs, "TARGET", tmp_path / "ops.md")
    assert main(["--check"]) == 1 and COMMAND in capsys.readouterr().err
    assert main([]) == 0 and main(["--check"]) == 0
    text = (tmp_path / "ops.md").read_text()
    (tmp_path / "ops.md").write_text(text.replace("| ADD |", "| ODD |"))
    assert main(["--check"]) == 1


def test_every_operator_has_a_row_that_says_all_that_is_known_of_it() -> None:
    text = document(OPS)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0][2:].removesuffix(" (custom)") for line in lines[2:]] == sorted(OPS)
    assert {line.replace(r"\|", "").count("|") for line in lines} == {len(COLUMNS) + 1}
    known = [cell for name, op in OPS.items() for cell in row(name, op)[:6]]
    assert [cell for cell in known if cell.replace("|", r"\|") not in text] == []


def test_a_row_is_taken_from_the_declaration() -> None:
    assert row("MEMBER", Member())[:3] == ["MEMBER", "|x|.", "What its operators have in common."]
    assert row("EXPLAINED", Explained())[:3] == ["EXPLAINED", "Another.", "More about it."]
    assert (inputs_of(Member()), inputs_of(Explained())) == ("1 to 3, constant: 1, 2", "2")
    assert types_of(Member()).startswith("numbers, bool; input 2: int32; output 0: string, float32")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ADD", "Operands broadcast as in numpy."),
        ("SELECT_V2", "Operands broadcast as in numpy."),
        ("ATAN2", "Operands have one shape."),
        *((name, "") for name in ("PRELU", "SELECT", "RELU", "CONV_2D")),
    ],
)
def test_the_check_says_whether_operands_broadcast(name: str, expected: str) -> None:
    assert shapes_of(OPS[name]) == expected
    assert row(name, OPS[name])[TITLES.index("constraints")].endswith(expected)


@pytest.mark.parametrize(("name", "forms"), [("MAX_POOL_2D", "Pool"), ("RESHAPE", "View")])
def test_forms_are_found_by_lowering_the_cases(name: str, forms: str) -> None:
    cells = dict(zip(TITLES, row(name, OPS[name]), strict=True))
    assert (cells["forms"], cells["cases"]) == (forms, str(len(OPS[name].cases)))
