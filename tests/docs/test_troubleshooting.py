"""Messages that the page on troubleshooting explains are those of the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
ROW = re.compile(r"^\| `([^|]+)` \| ([^|]+) \|$", re.MULTILINE)
HOLE = "…"
"""In place of a value, in the page and in the source's texts."""
FEWEST = 60


def _text(node: ast.expr) -> str:
    """The text of a string in the source, with `HOLE` for each value that is put into it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return ""


@pytest.fixture(scope="module")
def source_texts() -> set[str]:
    files = [path for folder in ("jitdelegate", "cache_tools") for path in (ROOT / folder).rglob("*.py")]
    return {text for path in files for text in _texts(path)}


def _texts(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {_text(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)}


def _is_of_source(message: str, texts: set[str]) -> bool:
    parts = message.split(HOLE)
    longest, pattern = max(parts, key=len), re.compile(".+".join(map(re.escape, parts)))
    return any(longest in text and pattern.search(text) for text in texts)


def test_each_quoted_message_is_one_of_the_source(source_texts: set[str]) -> None:
    messages = [message for message, _ in ROW.findall(PAGE.read_text())]
    assert len(messages) >= FEWEST
    assert [message for message in messages if not _is_of_source(message, source_texts)] == []


def test_each_row_quotes_one_message_and_gives_its_cause_and_cure() -> None:
    messages = PAGE.read_text().partition("| message |")[2]
    lines = [line for line in messages.splitlines() if line.startswith("| `")]
    assert [line for line in lines if not ROW.fullmatch(line)] == []
    assert [row for row, told in ROW.findall(PAGE.read_text()) if "**" not in told] == []


def test_a_message_that_is_nowhere_is_found_out(source_texts: set[str]) -> None:
    assert _is_of_source("the model is closed", source_texts)
    assert not _is_of_source("the model is … asleep", source_texts)
