"""A subgraph's operators as a table of HTML, one row each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jitdelegate.commands.analysis.amounts import percent, short, shortened
from jitdelegate.commands.analysis.colours import label, style_class
from jitdelegate.commands.analysis.facts import NodeFact, SubgraphFacts, TensorFact
from jitdelegate.commands.analysis.picture import box_id, drawn, row_id, safe, shape_text
from jitdelegate.commands.analysis.text import ALONE

LONGEST_NAME = 16
"""Most characters of a tensor's name; the pointer shows the whole name."""


HEADS = (
    ("number", "#"),
    ("op", "operator"),
    ("place", "place, and kernel or reason"),
    ("amount number", "work"),
    ("amount number", "mult-adds"),
    ("amount number", "bytes"),
    ("tensors", "reads"),
    ("tensors", "writes"),
)
"""(class, heading) of each column."""


def operator_table(facts: SubgraphFacts, key: str) -> Iterator[str]:
    """The table.

    Args:
        key: names the subgraph in the ids of the page.
    """
    yield '<div class="scroll" role="region" aria-label="operators" tabindex="0">'
    yield f'<table id="t{key}" class="operators">'
    yield "".join(f'<col class="{name}">' for name, _ in HEADS)
    yield "<thead><tr>"
    yield "".join(f'<th scope="col" class="{name}">{head}</th>' for name, head in HEADS)
    yield "</tr></thead><tbody>"
    boxes = {node.index for node in drawn(facts)}
    for node in facts.nodes:
        cells = (
            _number(node, key, is_drawn=node.index in boxes),
            _operator(node),
            f"<td>{mark(facts, node)} {safe(_kernel(node) or _reason(node))}</td>",
            _share(facts.share(node)),
            _amount(node.multiply_adds),
            _amount(node.bytes),
            _tensors(node.inputs),
            _tensors(node.outputs),
        )
        yield f'<tr id="{row_id(key, node)}">{"".join(cells)}</tr>'
    yield "</tbody></table></div>"


def mark(facts: SubgraphFacts, node: NodeFact) -> str:
    """An operator's place in its colour; with the partition, if there are several."""
    text = label(node) if len(facts.partitions) > 1 else node.place
    return f'<span class="mark {style_class(node)}">{safe(text)}</span>'


def _kernel(node: NodeFact) -> str:
    return ", ".join(filter(None, (node.kernel, node.execution)))


def _reason(node: NodeFact) -> str:
    return (node.reason or ALONE).removeprefix(f"{node.op}: ") if node.place == "litert" else node.reason


def _number(node: NodeFact, key: str, *, is_drawn: bool) -> str:
    number = f'<a href="#{box_id(key, node)}">{node.index}</a>' if is_drawn else str(node.index)
    return f'<td class="number">{number}</td>'


def _operator(node: NodeFact) -> str:
    custom = "custom operator, " if node.custom else ""
    return f'<td class="op" title="{safe(node.op)}, {custom}version {node.version}">{safe(node.op)}</td>'


def _share(share: float | None) -> str:
    return f'<td class="number">{percent(share) if share else ""}</td>'


def _amount(amount: int | None) -> str:
    if amount is None:
        return '<td class="number" title="not known">?</td>'
    return (
        f'<td class="number" title="{amount:,}">{short(amount)}</td>'
        if amount >= 1000
        else f'<td class="number">{amount}</td>'
    )


def _tensors(tensors: Iterable[TensorFact | None]) -> str:
    return f'<td class="tensors">{"".join(map(_tensor, tensors))}</td>'


def _tensor(tensor: TensorFact | None) -> str:
    if tensor is None:
        return "<div>not given</div>"
    kinds = [name for name in ("constant", "quantized", "variable") if getattr(tensor, name)]
    whole = ", ".join([tensor.name, tensor.type, *kinds])
    short_type = tensor.type.replace("float", "f").replace("int", "i").replace("ui", "u")
    about = f"{short_type} {shape_text(tensor)}{' const' if tensor.constant else ''}"
    name = safe(shortened(tensor.name, LONGEST_NAME))
    return f'<div title="{safe(whole)}"{" class=constant" if tensor.constant else ""}>{about} <span>{name}</span></div>'
