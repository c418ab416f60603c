"""Analyses as one self-contained page: no network, and no script but its own."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files

from jitdelegate.commands.analysis.amounts import operators, percent, positions, short
from jitdelegate.commands.analysis.colours import FIXED, label, style_class, style_rules
from jitdelegate.commands.analysis.comparison import comparison, headings
from jitdelegate.commands.analysis.facts import Analysis, NodeFact, SubgraphFacts, Suggestion
from jitdelegate.commands.analysis.operator_table import mark, operator_table
from jitdelegate.commands.analysis.picture import drawn, picture, row_id, safe
from jitdelegate.commands.analysis.text import costs

MOST_POSITIONS = 12
"""How many positions, or ranges of them, a suggestion names."""


def page(analyses: Sequence[Analysis], *, compared: bool = False) -> str:
    """The page, with a section for each model. The models' names are escaped; the browser refuses other scripts.

    Args:
        compared: whether a table with both of two models comes first.
    """
    style, script = (files(__package__).joinpath(name).read_text() for name in ("page.css", "page.js"))
    allowed = f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    title = os.path.basename(analyses[0].model) if len(analyses) == 1 else f"{len(analyses)} models"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{safe(title)}: where it runs</title><style>{style}{style_rules()}</style></head><body>",
        *(_index(analyses) if len(analyses) > 1 else ()),
        *(_comparison(analyses) if compared else ()),
        *(part for number, analysis in enumerate(analyses) for part in _model(analysis, number)),
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _index(analyses: Sequence[Analysis]) -> Iterator[str]:
    yield f'<h1>{len(analyses)} models</h1><table class="index"><tbody>'
    for number, each in enumerate(analyses):
        link = f'<a href="#m{number}">{safe(os.path.basename(each.model))}</a>'
        bar = _bar(each.main) if each.subgraphs and not each.error else ""
        yield f'<tr><th scope="row">{link}</th><td>{bar}</td><td>{safe(each.headline)}</td></tr>'
    yield "</tbody></table>"


def _comparison(analyses: Sequence[Analysis]) -> Iterator[str]:
    yield '<h2>Side by side</h2><div class="scroll" role="region" aria-label="comparison" tabindex="0">'
    yield '<table class="comparison"><thead><tr>'
    yield "".join(f'<th scope="col" class="number">{safe(heading)}</th>' for heading in headings(analyses))
    yield "</tr></thead><tbody>"
    for name, *cells in comparison(*analyses):
        row = "".join(f'<td class="number">{safe(cell)}</td>' for cell in cells)
        yield f'<tr><th scope="row">{safe(name)}</th>{row}</tr>'
    yield "</tbody></table></div>"


def _model(analysis: Analysis, number: int) -> Iterator[str]:
    yield f'<section class="model" id="m{number}"><h1>{safe(os.path.basename(analysis.model))}</h1>'
    first, _, rest = analysis.headline.partition(": " if analysis.error else ". ")
    yield f'<div class="headline{" refused" if analysis.error else ""}"><p><b>{safe(first.rstrip("."))}.</b></p>'
    yield f"{f'<p>{_linked(rest, analysis, number)}</p>' if rest else ''}</div>"
    facts = [
        f"{short(analysis.bytes)}{'B' if analysis.bytes >= 1000 else ' bytes'}",
        f"target {analysis.asked}",
        *analysis.notes,
        analysis.model,
    ]
    yield f'<p class="quiet">{safe(" · ".join(facts))}</p>'
    yield from _suggestions(analysis.suggestions)
    for subgraph in analysis.subgraphs:
        if len(analysis.subgraphs) > 1:
            yield f'<h2 class="subgraph">{safe(_title(subgraph))}</h2>'
        yield f"<h2>{'Where it would run' if analysis.error else 'Where it runs'}</h2>"
        if subgraph.headline != analysis.headline:
            yield f"<p>{safe(subgraph.headline)}</p>"
        if subgraph.nodes:
            yield from _subgraph(subgraph, f"{number}.{subgraph.index}")
    yield "</section>"


def _linked(text: str, analysis: Analysis, number: int) -> str:
    """The text, in which the operator that LiteRT stops at links to its row."""

    def link(found: re.Match[str]) -> str:
        nodes = analysis.main.nodes if analysis.error and analysis.subgraphs else ()
        position = int(found[1])
        where = f"#{row_id(f'{number}.0', nodes[position])}" if position < len(nodes) else ""
        return f' <a href="{where}">{found[0]}</a>' if where else found[0]

    return re.sub(r"Node number (\d{1,9})", link, safe(text))


def _title(facts: SubgraphFacts) -> str:
    names = ", ".join(facts.signatures)
    return f"Subgraph {facts.index} {facts.name} ({facts.entry}{': ' + names if names else ''})"


def _suggestions(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    if suggestions:
        yield "<h2>What to change</h2>"
    for suggestion in suggestions:
        where = f"operators {positions(suggestion.nodes, MOST_POSITIONS)}" if suggestion.nodes else "the model"
        subgraph = f" of subgraph {suggestion.subgraph}" if suggestion.subgraph else ""
        yield (
            f'<div class="suggestion"><p><b>{safe(suggestion.change)}</b></p>'
            f"<p>{safe(suggestion.why)} {safe(suggestion.gain)}</p>"
            f'<p class="quiet">{safe(suggestion.rule)}: {where}{subgraph}</p></div>'
        )


def _subgraph(facts: SubgraphFacts, key: str) -> Iterator[str]:
    if len({node.place for node in facts.nodes} - {"folded"}) > 1:
        yield _bar(facts)
    yield from _places(facts)
    yield f'<p class="quiet">{safe(" ".join(_remarks(facts)))}</p>'
    yield "<h2>Graph</h2>"
    yield f'<p class="quiet">{" ".join(_legend(facts))}</p>'
    yield f'<div class="picture" role="group" aria-label="Graph of subgraph {facts.index}">'
    yield from picture(facts, key)
    yield "</div><h2>Operators</h2>"
    yield f'<input data-table="t{key}" placeholder="Show only operators with these words" aria-label="filter" hidden>'
    yield from operator_table(facts, key)


def _remarks(facts: SubgraphFacts) -> Iterator[str]:
    yield f"{facts.target} {facts.features}: {facts.how}." if facts.features else f"{facts.how}."
    yield "Amounts are estimates for one run."
    if facts.totals.unknown_work:
        yield f"The work of {facts.totals.unknown_work} is not known."
    if facts.partitions:
        yield "Saved is time against LiteRT."
    yield from (f"{name.capitalize()}: {words}." for name, words in costs(facts))
    if facts.shape_inputs:
        yield f"Compiled when these values are known: {', '.join(facts.shape_inputs)}."


def _legend(facts: SubgraphFacts) -> Iterator[str]:
    yield "In each box: the operator and its number, the shape that it writes, its share of the multiply-adds."
    if len(facts.partitions) > 1:
        yield "Bold lines cross from one partition to another."
    if left_out := len(facts.nodes) - len(drawn(facts)):
        yield f"Not drawn: {operators(range(left_out))} that only unpack or compute constants."


def _held(facts: SubgraphFacts) -> list[list[NodeFact]]:
    """The operators of each place and partition, LiteRT's and the folded ones last."""
    held: dict[str, list[NodeFact]] = {}
    for node in facts.nodes:
        held.setdefault(label(node), []).append(node)
    order = ["", *FIXED]
    return sorted(held.values(), key=lambda nodes: order.index(nodes[0].place if nodes[0].place in FIXED else ""))


def _bar(facts: SubgraphFacts) -> str:
    """The shares of the work by place and partition, as a bar; the table of places says the same in numbers."""
    shares = [(nodes[0], sum(facts.share(node) or 0 for node in nodes)) for nodes in _held(facts)]
    parts = [f'<i class="{style_class(node)}" style="flex-grow:{share:.4f}"></i>' for node, share in shares if share]
    return f'<div class="share" aria-hidden="true">{"".join(parts)}</div>'


def _places(facts: SubgraphFacts) -> Iterator[str]:
    """A row for each place and partition."""
    heads = ["place", "operators", "work", "mult-adds", "bytes"]
    heads += ["bytes crossing", "saved"] if len(facts.partitions) > 1 else ["saved"] if facts.partitions else []
    yield '<div class="scroll" role="region" aria-label="places" tabindex="0"><table class="places"><thead><tr>'
    yield "".join(f'<th scope="col"{" class=number" if head != "place" else ""}>{head}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for nodes in _held(facts):
        work = sum(facts.share(node) or 0 for node in nodes)
        amounts = (sum(node.multiply_adds or 0 for node in nodes), sum(node.bytes for node in nodes))
        cells = [f"{len(nodes):,}", percent(work) if work else "", *map(short, amounts)]
        if nodes[0].partition is not None:
            partition = facts.partitions[nodes[0].partition]
            seconds = partition.saved_seconds_estimate
            cells += [short(partition.crossing_bytes)] if len(facts.partitions) > 1 else []
            cells += ["" if seconds is None else f"{1e6 * seconds:,.0f} µs"]
        cells += [""] * (len(heads) - 1 - len(cells))
        row = "".join(f'<td class="number">{safe(cell)}</td>' for cell in cells)
        yield f'<tr><th scope="row">{mark(facts, nodes[0])}</th>{row}</tr>'
    yield "</tbody></table></div>"
