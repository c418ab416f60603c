"""Draws the README's picture: start-up and speed of the demo's network, against LiteRT.

python -m scripts.bench.draw_figures            draws docs/images/figures-*.svg from docs/images/figures.json
python -m scripts.bench.draw_figures --measure  measures first, on a machine that does nothing else: half a minute

Starts are whole processes, from launching Python to the first output; the sides take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jitdelegate.commands.demo import write_inputs
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.measurement.machine_speed import processor
from jitdelegate.commands.measurement.svg import SCHEMES, Colours, picture, text
from scripts.bench.rounds import in_turns, medians, versus_litert
from scripts.bench.startup import start

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
FIGURES = IMAGES / "figures.json"
THREADS = 1
STARTS = {"LiteRT": "LiteRT", "jitdelegate, later starts": "warm", "jitdelegate, first start": "cold"}
"""Rows of the picture, and the roads of `bench.startup`."""
WIDTH, BAR, LEFT, ROW, MARGIN = 744, 420, 202, 30, 12
"""Of the picture, in pixels: itself, its longest bar, where bars begin, the height of a row, and the space around."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 drawn, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure, and write the figures")
    parser.add_argument(
        "--rounds", type=int, default=15, help="starts of each side, and a quarter of its runs (default: 15)"
    )
    arguments = parser.parse_args(argv)
    if arguments.measure:
        FIGURES.write_text(json.dumps(measure(arguments.rounds), indent=2) + "\n")
    figures = json.loads(FIGURES.read_text())
    for scheme in SCHEMES:
        (IMAGES / f"figures-{scheme}.svg").write_text(draw(figures, scheme))
    return 0


def measure(rounds: int) -> dict[str, Any]:
    """What the picture shows, in milliseconds, and where it was measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "mobilenet_v1.tflite"
        model.write_bytes(mobilenet_v1())
        write_inputs(model, folder)
        sides = {row: partial(start, road, model, folder, THREADS) for row, road in reversed(STARTS.items())}
        starts = list(in_turns(sides, 1 + rounds, shuffled=False))[1:]  # cold first: it stores what warm opens
        run = versus_litert(model, THREADS, 4 * rounds)
    return {
        "model": "MobileNet v1, 224 by 224 pixels, float32",
        "threads": THREADS,
        "rounds": rounds,
        "machine": f"{processor()}, {os.cpu_count()} CPUs",
        "versions": f"Python {platform.python_version()}, LiteRT {version('ai-edge-litert')}",
        "start_ms": {row: round(1e3 * medians([one[row] for one in starts])["wall"], 1) for row in STARTS},
        "run_ms": {"LiteRT": round(run["litert_ms"], 2), "jitdelegate": round(run["ours_ms"], 2)},
    }


def draw(figures: Mapping[str, Any], scheme: str) -> str:
    """An SVG of two groups of bars."""
    colours = SCHEMES[scheme]
    groups = (
        ("From launching Python to the first output", figures["start_ms"]),
        ("One inference", figures["run_ms"]),
    )
    parts, top = [], MARGIN
    for title, rows in groups:
        parts += [text(MARGIN, top + 16, title, colours.text, "600 15px")]
        top += 28
        longest = max(rows.values())
        for name, value in rows.items():
            parts += _row(top, name, value, value / longest, colours)
            top += ROW
        top += 14
    for line in (f"{figures['model']}; threads: {figures['threads']}", f"{figures['machine']}; {figures['versions']}"):
        parts.append(text(MARGIN, top + 10, line, colours.quiet, "12px"))
        top += 18
    told = "; ".join(f"{title}: {_listed(rows)}" for title, rows in groups)
    return picture(WIDTH, top + MARGIN // 2, told, parts, colours)


def _listed(rows: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_milliseconds(value)}" for name, value in rows.items())


def _row(top: int, name: str, value: float, share: float, colours: Colours) -> Iterator[str]:
    fill = colours.ours if name.startswith("jitdelegate") else colours.other
    length = max(2, round(BAR * share))
    yield text(MARGIN, top + 17, name, colours.text, "14px")
    yield f'<rect x="{LEFT}" y="{top + 3}" width="{length}" height="{ROW - 10}" rx="3" fill="{fill}"/>'
    yield text(LEFT + length + 8, top + 17, _milliseconds(value), colours.text, "600 14px")


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
