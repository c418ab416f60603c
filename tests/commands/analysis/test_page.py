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

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import analyze
from jitdelegate.commands.analysis.columns import columns
from jitdelegate.commands.analysis.facts import Analysis
from jitdelegate.commands.analysis.html import page
from jitdelegate.commands.analysis.picture import TIMES, drawn
from jitdelegate.commands.analysis.survey import analyze as survey
from jitdelegate.commands.analysis.survey import refused
from tests.api import small_models
from tests.commands.analysis import analyzed_models

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"' onload='x' &amp;]]>--></title></svg></style>"
VOID = {"meta", "input", "col"}


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
    return survey(str(path), DelegateOptions(target="cpu", serialization_dir=False, **options))


def renamed(folder: Path, name: str) -> Analysis:
    """An analysis whose every name is this one, those of operators too."""
    found = analysis(analyzed_models.named(name), folder)
    nodes = tuple(replace(node, op=name, reason=name, custom=True) for node in found.main.nodes)
    main = replace(found.main, name=name, headline=name, nodes=nodes, shape_inputs=(name,))
    suggestions = tuple(replace(each, change=name, why=name) for each in found.suggestions)
    subgraphs = (main, replace(main, index=1, entry="signature"))
    told = {"model": name, "headline": name, "error": name, "notes": (name,)}
    return replace(found, **told, subgraphs=subgraphs, suggestions=suggestions)


def test_a_page_has_a_row_and_a_box_per_operator_that_link_to_each_other(tmp_path: Path) -> None:
    found = Page(page([analysis(small_models.flattened(), tmp_path)]))
    rows = [attributes["id"] for attributes in found.all("tr") if "id" in attributes]
    assert rows == [f"n0.0-{index}" for index in range(5)]
    boxes = {attributes["id"]: attributes["href"] for attributes in found.all("a") if "id" in attributes}
    assert boxes
    for box, target in boxes.items():
        assert (str(box)[1:], str(target)[:2]) == (str(target)[2:], "#n")
        assert str(target)[1:] in rows
    assert {attributes["href"] for attributes in found.all("a") if "id" not in attributes} == {
        f"#{box}" for box in boxes
    }


def test_a_box_has_shape_and_share(tmp_path: Path) -> None:
    found = page([analysis(analyzed_models.in_partitions(), tmp_path)])
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", found)
    shape = TIMES.join(("1", "80", "80", "64"))
    assert texts == [
        *("image", shape, "in"),
        *("CONV_2D", shape, "0", "50&nbsp;%"),
        *("RELU", shape, "1", "&lt; 0.1&nbsp;%"),
        *("CONV_2D", shape, "2", "50&nbsp;%"),
        *("features", shape, "out"),
    ]
    bars = re.findall(r'class="bar" d="M10 41h([\d.]+)"', found)
    assert [float(bar) for bar in bars] == [164, 1, 164]


def test_long_names_of_tensors_are_cut_and_shown_under_the_pointer(tmp_path: Path) -> None:
    name = "network/block_1/expanded_convolution/Relu6;network/block_1/batch_norm"
    found = page([analysis(analyzed_models.named(name), tmp_path)])
    assert f'<div title="{name}, float32">f32 2{TIMES}3 <span>…onvolution/Relu6</span></div>' in found


def test_edges_go_on_in_other_columns_by_tags(tmp_path: Path) -> None:
    count = 40
    found = analysis(analyzed_models.chain(*["RELU", "ABS"] * (count // 2)), tmp_path)
    drawing = page([found])
    cuts = len(columns(count + 2, {(vertex, vertex + 1) for vertex in range(count + 1)})) - 1
    assert cuts > 0
    assert len(Page(drawing).all("svg")) == cuts + 1
    tags = re.findall(r'<a href="#(\S+)"[^>]* class="tag">.*?>(from|to) (\d+)</text>', drawing)
    assert [kind for _, kind, _ in tags] == ["to", "from"] * cuts
    assert all(target == f"b0.0-{number}" for target, _, number in tags)
    for column in drawing.split("<svg")[1:]:
        heights = [int(height) for height in re.findall(r'id="b0.0-[^>]*translate\(\d+ (\d+)\)', column)]
        assert heights == sorted(heights) and heights
    for (_, _, there), (_, _, here) in zip(tags[::2], tags[1::2], strict=True):
        assert int(there) == int(here) + 1


def test_a_page_needs_no_network_and_no_script_but_its_own(tmp_path: Path) -> None:
    text = page([analysis(small_models.two_signatures(), tmp_path)])
    found = Page(text)
    (script,) = found.scripts
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = (each["content"] for each in found.all("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'"
    assert {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "base", "form"} == set()
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"@import|url\(|\bsrc=", text)
    assert "prefers-color-scheme: dark" in text


def test_hostile_names_are_nothing_but_text(tmp_path: Path) -> None:
    text = page([renamed(tmp_path, HOSTILE)] * 2)
    found, harmless = Page(text), Page(page([renamed(tmp_path, "name")] * 2))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert found.scripts == harmless.scripts
    assert not {"\x1b", "\u202e"} & set(text)
    assert "&lt;script&gt;alert(1)" in text


def test_partitions_have_colours_of_their_own_and_crossings_are_bold(tmp_path: Path) -> None:
    text = page([analysis(analyzed_models.in_partitions(), tmp_path, only_ops="CONV_2D", partitioning="all")])
    found = Page(text)
    assert [each["class"] for each in found.all("a") if "id" in each] == ["p0", "litert", "p2"]
    assert text.count('class="mark p2">cpu #2<') == 2  # in the table of places, and in the operator's row
    lines = {each["class"]: str(each["d"]) for each in found.all("path")}
    assert (lines["edge"].count("M"), lines["crossing"].count("M")) == (2, 2)
    assert re.findall(r'<i class="(\w+)" style="flex-grow:([\d.]+)">', text) == [
        *(("p0", "0.4996"), ("p2", "0.4996")),
        ("litert", "0.0009"),
    ]


def test_nothing_crosses_where_all_is_compiled(tmp_path: Path) -> None:
    found = analysis(analyzed_models.reshaped(), tmp_path)
    assert [node.place for node in found.main.nodes] == ["cpu", "folded", "cpu"]
    drawing = Page(page([found]))
    assert {each["class"] for each in drawing.all("path")} == {"edge", "bar"}
    assert [each["class"] for each in drawing.all("a") if "id" in each] == ["p0", "folded", "p0"]


def test_what_is_folded_and_follows_from_constants_is_not_drawn(tmp_path: Path) -> None:
    found = analysis(analyzed_models.unpacked_weights(), tmp_path)
    assert [node.place for node in found.main.nodes] == ["folded", "cpu"]
    assert [node.index for node in drawn(found.main)] == [1]
    assert (found.main.nodes[0].multiply_adds, found.main.nodes[0].bytes) == (12, 12 * (2 + 4))
    assert found.main.totals.places["folded"].multiply_adds == 12
    assert found.main.totals.share_of_work_delegated == 1.0
    assert "Not drawn: 1 operator " in page([found])


def test_several_models_have_a_section_each_and_an_index(tmp_path: Path) -> None:
    found = [analysis(make(), tmp_path) for make in (small_models.two_outputs, small_models.quantized)]
    text = page(found)
    drawing = Page(text)
    sections = [each["id"] for each in drawing.all("section")]
    assert sections == ["m0", "m1"]
    ids = [each["id"] for _, each in drawing.tags if "id" in each]
    assert len(ids) == len(set(ids))
    links = [str(each["href"])[1:] for each in drawing.all("a")]
    assert links[:2] == sections
    assert set(links) <= set(ids)
    assert all(text.count(each.headline.rstrip(".")) == 2 for each in found)


def test_a_refused_model_shows_the_reason_and_where_its_operators_would_run(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.custom())
    found = refused(
        str(path),
        DelegateOptions(target="cpu", serialization_dir=False),
        "LiteRT has no Nonesuch: Node number 0 fails.",
    )
    text = page([found])
    assert Page(text).all("svg")
    assert 'LiteRT has no Nonesuch:  <a href="#n0.0-0">Node number 0</a> fails.' in text
    for told in ("The model is refused.", "Where it would run", "If it ran: "):
        assert told in text


def test_the_command_writes_page_and_node_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, target, data = tmp_path / "model.tflite", tmp_path / "page.html", tmp_path / "data.json"
    model.write_bytes(small_models.two_outputs())
    written = ["--html", str(target), "--model-explorer", str(data)]
    assert analyze.main([str(model), "--target", "cpu", *written]) == 0
    assert "2 of 2 delegated" in capsys.readouterr().out
    assert Page(target.read_text()).scripts
    assert data.read_text().startswith("{")
