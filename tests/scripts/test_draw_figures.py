"""The README's picture shows the figures that were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.bench import draw_figures
from scripts.bench.draw_figures import BAR, FIGURES, IMAGES, LEFT, SCHEMES, STARTS, WIDTH, draw

FACTS = {
    "model": "a <net>",
    "threads": 1,
    "machine": "a machine",
    "versions": "Python 3",
    "start_ms": {"LiteRT": 400.0, "jitdelegate, later starts": 100.0, "jitdelegate, first start": 2000.0},
    "run_ms": {"LiteRT": 20.0, "jitdelegate": 10.0},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_committed_picture_is_drawn_from_the_committed_figures(scheme: str) -> None:
    figures = json.loads(FIGURES.read_text())
    assert (IMAGES / f"figures-{scheme}.svg").read_text() == draw(figures, scheme)
    assert list(figures["start_ms"]) == list(STARTS)


def test_the_command_draws_the_committed_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw_figures, "IMAGES", tmp_path)
    assert draw_figures.main([]) == 0
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert drawn == {name: (IMAGES / name).read_text() for name in ("figures-light.svg", "figures-dark.svg")}


def test_bars_are_as_long_as_their_figures() -> None:
    root = ElementTree.fromstring(draw(FACTS, "light"))
    lengths = [int(bar.attrib["width"]) for bar in root.findall("{*}rect")]
    assert lengths == [BAR * 400 // 2000, BAR * 100 // 2000, BAR, BAR, BAR // 2]


def test_the_picture_says_its_figures_and_where_they_were_measured() -> None:
    root = ElementTree.fromstring(draw(FACTS, "dark"))
    texts = [text.text for text in root.findall("{*}text")]
    assert {"2,000 ms", "100 ms", "20.0 ms", "10.0 ms", "a <net>; threads: 1", "a machine; Python 3"} <= set(texts)
    places = [int(text.attrib["x"]) for text in root.findall("{*}text")]
    assert max(places) == LEFT + BAR + 8 < WIDTH - 80  # room for the longest bar's figure


def test_the_schemes_differ_in_their_colours_only() -> None:
    plain = {re.sub(r"#[0-9a-f]{6}", "", draw(FACTS, scheme)) for scheme in SCHEMES}
    assert len(plain) == 1
