"""The page of an analysis: whole in itself, true to the facts, and safe from the names in a model."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.analysis.colours import FIXED, PARTITIONS
from jitdelegate.analysis.facts import Analysis
from jitdelegate.analysis.html import page
from jitdelegate.analysis.picture import drawn
from jitdelegate.analysis.survey import analyze as survey
from jitdelegate.commands import analyze
from jitdelegate.options import Options
from tests.analysis import analyzed_models
from tests.api import small_models

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"' onload='x' &amp;]]>--></title></svg></style>"
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """What a browser would make of a page.

    Attributes:
        tags: (name, attributes) of every element, in order.
        scripts: the text of every script.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def analysis(content: bytes, folder: Path, **options: Any) -> Analysis:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return survey(str(path), Options(target="cpu", serialization_dir=False, **options))


def renamed(folder: Path, name: str) -> Analysis:
    """An analysis whose every name is this one, those of operators too."""
    found = analysis(analyzed_models.named(name), folder)
    nodes = tuple(replace(node, op=name, reason=name, custom=True) for node in found.main.nodes)
    main = replace(found.main, nodes=nodes, shape_inputs=(name,))
    suggestions = tuple(replace(each, change=name, why=name) for each in found.suggestions)
    return replace(found, model=name, notes=(name,), subgraphs=(main,), suggestions=suggestions)


def test_a_page_has_a_row_and_a_node_per_operator(tmp_path: Path) -> None:
    found = Page(page(analysis(small_models.flattened(), tmp_path)))
    rows = [attributes["id"] for attributes in found.all("tr") if "id" in attributes]
    assert rows == [f"n0-{index}" for index in range(5)]
    links = [str(attributes["href"])[1:] for attributes in found.all("a")]
    assert set(links) <= set(rows)
    assert len(links) == len(set(links)) > 0


def test_a_page_needs_no_network_and_no_script_but_its_own(tmp_path: Path) -> None:
    text = page(analysis(small_models.two_signatures(), tmp_path))
    found = Page(text)
    (script,) = found.scripts
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = (each["content"] for each in found.all("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'"
    assert {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "base", "form"} == set()
    assert re.findall(r"https?://[^\"'\s]+", text) == ["http://www.w3.org/2000/svg"] * 2
    assert not re.search(r"@import|url\(|\bsrc=", text)
    assert "prefers-color-scheme: dark" in text


def test_hostile_names_are_nothing_but_text(tmp_path: Path) -> None:
    text = page(renamed(tmp_path, HOSTILE))
    found, harmless = Page(text), Page(page(renamed(tmp_path, "name")))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert found.scripts == harmless.scripts
    assert not {"\x1b", "\u202e"} & set(text)
    assert "&lt;script&gt;alert(1)" in text


def test_partitions_have_colours_of_their_own_and_crossings_are_bold(tmp_path: Path) -> None:
    found = Page(page(analysis(analyzed_models.in_partitions(), tmp_path, only_ops="CONV_2D", partitioning="all")))
    fills = [attributes["fill"] for attributes in found.all("rect")]
    assert sorted(map(str, fills)) == sorted(
        [FIXED["input"], PARTITIONS[0], FIXED["litert"], PARTITIONS[2], FIXED["output"]]
    )
    kinds = [attributes["class"] for attributes in found.all("path")]
    assert sorted(map(str, kinds)) == ["crossing", "crossing", "edge", "edge"]


def test_nothing_crosses_where_all_is_compiled(tmp_path: Path) -> None:
    found = analysis(analyzed_models.reshaped(), tmp_path)
    assert [node.place for node in found.main.nodes] == ["cpu", "folded", "cpu"]
    drawing = Page(page(found))
    assert {attributes["class"] for attributes in drawing.all("path")} == {"edge"}
    assert FIXED["folded"] in {attributes["fill"] for attributes in drawing.all("rect")}


def test_what_is_folded_and_follows_from_constants_is_not_drawn(tmp_path: Path) -> None:
    found = analysis(analyzed_models.unpacked_weights(), tmp_path)
    assert [node.place for node in found.main.nodes] == ["folded", "cpu"]
    assert [node.index for node in drawn(found.main)] == [1]
    assert (found.main.nodes[0].multiply_adds, found.main.nodes[0].bytes) == (12, 12 * (2 + 4))
    assert found.main.totals.places["folded"].multiply_adds == 12
    assert found.main.totals.share_of_work_delegated == 1.0
    assert "not drawn: 1 folded" in page(found)


def test_the_command_writes_page_and_node_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, target, data = tmp_path / "model.tflite", tmp_path / "page.html", tmp_path / "data.json"
    model.write_bytes(small_models.two_outputs())
    written = ["--html", str(target), "--model-explorer", str(data)]
    assert analyze.main([str(model), "--target", "cpu", *written]) == 0
    assert "2 of 2 delegated" in capsys.readouterr().out
    assert Page(target.read_text()).scripts
    assert data.read_text().startswith("{")
