"""An analysis as one self-contained page: no network, and no script but its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256

from jitdelegate.analysis.colours import colour, label
from jitdelegate.analysis.facts import Analysis, NodeFact, SubgraphFacts, Suggestion, TensorFact
from jitdelegate.analysis.picture import drawn, picture, row_id, safe, tensor_text
from jitdelegate.analysis.text import ALONE, numbers, totals_lines

STYLE = """
:root { color-scheme: light dark; --back: #fff; --front: #1b1f24; --quiet: #57606a; --line: #d0d7de; --row: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171c; --front: #e6edf3; --quiet: #9aa4af; --line: #343b44; --row: #1c2128; }
}
body { margin: 1.5rem; background: var(--back); color: var(--front); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { margin-top: 2rem; font-size: 1.1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.picture { max-height: 80vh; overflow: auto; border: 1px solid var(--line); border-radius: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: .6rem 0; padding: 0; list-style: none; }
.mark { display: inline-block; padding: 0 .4em; border-radius: 4px; color: #111; }
svg text { font-size: 12px; text-anchor: middle; fill: #111; pointer-events: none; }
svg rect { stroke: #0004; } svg a:hover rect, svg a:focus rect { stroke: var(--front); stroke-width: 2; }
.edge, .crossing { fill: none; stroke: var(--quiet); } .crossing { stroke: #d1495b; stroke-width: 2.5; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; position: sticky; top: 0; background: var(--back); }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
tr:target { outline: 2px solid #d1495b; } tbody tr:nth-child(even) { background: var(--row); }
td.number { text-align: right; white-space: nowrap; } td.tensors { color: var(--quiet); font-size: 12px; }
input { width: 100%; max-width: 30rem; padding: .4rem; margin: .5rem 0; font: inherit; }
.suggestion { border-left: 4px solid #f4a261; padding: .1rem .8rem; margin: .8rem 0; } .quiet { color: var(--quiet); }
"""
SCRIPT = """
for (const field of document.querySelectorAll("input[data-table]")) {
  const rows = document.getElementById(field.dataset.table).tBodies[0].rows;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
"""


def page(analysis: Analysis) -> str:
    """The page. The model's names are escaped; the browser refuses any script but the page's own."""
    allowed = f"'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{safe(analysis.model)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{safe(analysis.model)}</h1>",
        f"<p>{analysis.bytes:,} bytes; analysed for <b>{safe(analysis.asked)}</b>.</p>",
        *(f"<p>{safe(note)}</p>" for note in analysis.notes),
        *_suggestions(analysis.suggestions),
        *(part for facts in analysis.subgraphs for part in _subgraph(facts)),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _suggestions(suggestions: Iterable[Suggestion]) -> Iterator[str]:
    found = list(suggestions)
    if found:
        yield "<h2>Suggestions</h2>"
    for each in found:
        where = f"operators {numbers(each.nodes)}" if each.nodes else "the model"
        subgraph = f" of subgraph {each.subgraph}" if each.subgraph else ""
        yield (
            f'<div class="suggestion"><p><b>{safe(each.change)}</b></p><p>{safe(each.why)} {safe(each.gain)}</p>'
            f'<p class="quiet">{safe(each.rule)}: {where}{subgraph}</p></div>'
        )


def _subgraph(facts: SubgraphFacts) -> Iterator[str]:
    names = ", ".join(safe(key) for key in facts.signatures)
    target = " ".join(filter(None, (facts.target, facts.features)))
    yield f"<h2>Subgraph {facts.index} {safe(facts.name)} ({facts.entry}{': ' + names if names else ''})</h2>"
    yield f"<p><b>{safe(target)}</b>, {safe(facts.how)}.</p>"
    yield f"<pre>{safe_lines(totals_lines(facts.totals))}</pre>"
    if facts.shape_inputs:
        yield f"<p>Compiled when these values are known: {', '.join(safe(name) for name in facts.shape_inputs)}.</p>"
    yield f'<ul class="legend">{"".join(_legend(facts))}</ul>'
    yield f'<div class="picture">{picture(facts)}</div>'
    yield from _table(facts)


def safe_lines(lines: Iterable[str]) -> str:
    return "\n".join(safe(line) for line in lines)


def _legend(facts: SubgraphFacts) -> Iterator[str]:
    """One entry per colour and partition, with what it holds."""
    held: dict[str, list[NodeFact]] = {}
    for node in facts.nodes:
        held.setdefault(label(node), []).append(node)
    for nodes in held.values():
        yield f"<li>{_mark(nodes[0])} {len(nodes)} operator{'s' if len(nodes) != 1 else ''}</li>"
    if left_out := len(facts.nodes) - len(drawn(facts)):
        yield f'<li class="quiet">not drawn: {left_out} folded that follow from constants</li>'
    yield '<li class="quiet">bold lines cross from one partition to another</li>'


def _mark(node: NodeFact) -> str:
    return f'<span class="mark" style="background:{colour(node)}">{safe(label(node))}</span>'


def _table(facts: SubgraphFacts) -> Iterator[str]:
    table = f"nodes{facts.index}"
    yield f'<input data-table="{table}" placeholder="Show only operators with these words" aria-label="filter">'
    heads = ("#", "operator", "place", "reason", "kernel", "multiply-adds", "bytes", "inputs", "outputs")
    yield f'<table id="{table}"><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>'
    yield from (_row(facts, node) for node in facts.nodes)
    yield "</tbody></table>"


def _row(facts: SubgraphFacts, node: NodeFact) -> str:
    work = "?" if node.multiply_adds is None else f"{node.multiply_adds:,}"
    reason = node.reason or (ALONE if node.place == "litert" else "")
    custom = " custom" if node.custom else ""
    cells = (
        f'<td class="number">{node.index}</td>',
        f'<td>{safe(node.op)} <span class="quiet">v{node.version}{custom}</span></td>',
        f"<td>{_mark(node)}</td>",
        f"<td>{safe(reason)}</td>",
        f"<td>{safe(node.kernel or '')}</td>",
        f'<td class="number">{work}</td><td class="number">{node.bytes:,}</td>',
        f'<td class="tensors">{_tensors(node.inputs)}</td><td class="tensors">{_tensors(node.outputs)}</td>',
    )
    return f'<tr id="{row_id(facts, node)}">{"".join(cells)}</tr>'


def _tensors(tensors: Iterable[TensorFact | None]) -> str:
    return "<br>".join("not given" if tensor is None else safe(tensor_text(tensor)) for tensor in tensors)
