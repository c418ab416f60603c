"""Pictures as SVG, in light and dark colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Colours(NamedTuple):
    """Of one scheme; `series` are apart for most of those who cannot tell red from green."""

    ground: str
    text: str
    quiet: str
    ours: str
    other: str
    series: tuple[str, ...]


SCHEMES = {
    "light": Colours("#ffffff", "#1f2328", "#59636e", "#3f51b5", "#b3bac5", ("#b35900", "#0b7a75", "#8250df")),
    "dark": Colours("#0d1117", "#e6edf3", "#9198a1", "#8c9eff", "#59616b", ("#ffa657", "#39c5bb", "#d2a8ff")),
}


def picture(width: int, height: int, told: str, parts: Sequence[str], colours: Colours) -> str:
    """An SVG of elements.

    Args:
        told: the same in words.
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img" font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">'
    )
    # readers of Markdown that know no <picture> show the light one on a dark page
    ground = f'<path fill="{colours.ground}" d="M0 0H{width}V{height}H0z"/>'
    return "\n".join([head, f"<title>{escape(told)}</title>", ground, *parts, "</svg>", ""])


def text(x: int, y: int, words: str, fill: str, font: str) -> str:
    """A line of text; its font is a size, which a weight may precede."""
    weight, _, size = font.rpartition(" ")
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{bold} fill="{fill}">{escape(words)}</text>'
