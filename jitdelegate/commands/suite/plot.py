"""A picture of a suite: for each model a dot for each other runtime, at its time over ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor, log2

from jitdelegate.commands.measurement.sides import OURS
from jitdelegate.commands.measurement.svg import SCHEMES, Colours, picture, text
from jitdelegate.commands.suite.figures import Row
from jitdelegate.commands.suite.report import ratio_of

WIDTH, LEFT, RIGHT, LINE, MARGIN = 744, 320, 720, 18, 12
"""In pixels: the picture, where the axis begins and ends, the height of a row, and the space around."""
RADIUS, LETTERS = 4.5, 44
"""Of a dot, and the most of a model's name."""
FAINT = ' opacity="0.35"'
"""Of disturbed rows."""


def plot(rows: Sequence[Row], title: str, scheme: str) -> str:
    """An SVG. The axis is logarithmic; to the right of 1, ours is faster.

    Args:
        scheme: one of SCHEMES.
    """
    colours = SCHEMES[scheme]
    names = [*dict.fromkeys(name for row in rows for name in row["sides"] if name != OURS)]
    ratios = [ratio for row in rows for name in names if (ratio := ratio_of(row, name))]
    low, high = floor(log2(min(ratios, default=1))), ceil(log2(max(ratios, default=2)))
    low, high = min(low, -1), max(high, 1)

    def place(ratio: float) -> float:
        return LEFT + (RIGHT - LEFT) * (log2(ratio) - low) / (high - low)

    parts = [text(MARGIN, MARGIN + 16, title, colours.text, "600 15px")]
    for number, name in enumerate(names):
        parts += [_dot(LEFT + 110 * number, MARGIN + 34, colours.series[number % len(colours.series)])]
        parts += [text(LEFT + 110 * number + 10, MARGIN + 38, name, colours.text, "13px")]
    top = MARGIN + 54
    for threads in sorted({row["threads"] for row in rows}):
        parts.append(text(MARGIN, top + 14, f"threads: {threads}; their time over ours", colours.quiet, "13px"))
        top += 24
        own = [row for row in rows if row["threads"] == threads]
        parts += _axis(top, len(own), range(low, high + 1), place, colours)
        for row in own:
            name = row["model"].removesuffix(".tflite")
            short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
            parts.append(text(MARGIN, top + 13, short, colours.text, "12px"))
            for number, name in enumerate(names):
                if ratio := ratio_of(row, name):
                    faint = FAINT if row["disturbed"] else ""
                    colour = colours.series[number % len(colours.series)]
                    parts.append(_dot(place(ratio), top + LINE // 2, colour, faint))
            top += LINE
        top += 28
    if any(row["disturbed"] for row in rows):
        parts.append(text(MARGIN, top + 4, "faint: the machine was disturbed", colours.quiet, "12px"))
        top += MARGIN
    told = "; ".join(f"{row['model']}, threads {row['threads']}: {_listed(row, names)}" for row in rows)
    return picture(WIDTH, top, f"{title}. {told}", parts, colours)


def _listed(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name in names if (ratio := ratio_of(row, name)))


def _axis(top: int, count: int, powers: range, place: Callable[[float], float], colours: Colours) -> Iterator[str]:
    bottom = top + LINE * count
    for power in powers:
        x = round(place(2.0**power))
        colour, width = (colours.ours, 2) if power == 0 else (colours.other, 0.5)
        yield f'<path stroke="{colour}" stroke-width="{width}" d="M{x} {top}V{bottom}"/>'
        yield text(x - 6, bottom + 13, f"{2.0**power:g}", colours.quiet, "11px")


def _dot(x: float, y: float, fill: str, more: str = "") -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="{RADIUS}" fill="{fill}"{more}/>'
