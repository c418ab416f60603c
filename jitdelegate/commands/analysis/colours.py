"""Colours of places and partitions, for the page and for Model Explorer; dark text is legible on all of them."""

from __future__ import annotations

from jitdelegate.commands.analysis.facts import NodeFact

FIXED = {"litert": "#f4a261", "folded": "#c9ced6"}
PARTITIONS = (
    "#8ecae6",
    "#95d5b2",
    "#cdb4f6",
    "#ffd166",
    "#f7aef8",
    "#80ded9",
    "#b8c0ff",
    "#d9ed92",
    "#ffafcc",
    "#a5b4fc",
)
"""Colours of compiled partitions, by number; repeated if there are more."""


def colour(node: NodeFact) -> str:
    """An operator's colour, as #rrggbb."""
    return FIXED.get(node.place) or PARTITIONS[(node.partition or 0) % len(PARTITIONS)]


def label(node: NodeFact) -> str:
    """The meaning of an operator's colour."""
    return node.place if node.partition is None else f"{node.place} #{node.partition}"


def style_class(node: NodeFact) -> str:
    """The class of an operator's colour in the page's style."""
    return node.place if node.place in FIXED else f"p{(node.partition or 0) % len(PARTITIONS)}"


def style_rules() -> str:
    """CSS: the colour of each class as the variable --c."""
    rules = {**FIXED, **{f"p{number}": colour for number, colour in enumerate(PARTITIONS)}}
    return "\n".join(f".{name} {{ --c: {colour}; }}" for name, colour in rules.items())
