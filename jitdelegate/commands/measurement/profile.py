"""Time per kernel of a run, in the tables that benchmark_model prints of its operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jitdelegate.api.kernel_times import KernelTime
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Operator

LITERT = "LITERT"
TOP = 10
"""Rows of the table of the longest."""
_TITLE = "=" * 30
_HEADINGS = ("[node type]", "[first]", "[avg ms]", "[%]", "[cdf%]", "[mem KB]", "[times called]", "[Name]")
_CSV_HEADINGS = "node type, first, avg_ms, %, cdf%, mem KB, times called, name"
_TYPE_HEADINGS = ("[Node type]", "[count]", "[avg ms]", "[avg %]", "[cdf %]", "[mem KB]", "[times called]")
_CSV_TYPE_HEADINGS = "node type, count, avg_ms, avg %, cdf %, mem KB, times called"
_WIDTHS = (24, 9, 9, 8, 8, 10, 9)
_TYPE_WIDTHS = (24, 9, 10, 11, 11, 10, 10)


@dataclass(frozen=True)
class Node:
    """A kernel, or all that LiteRT runs.

    Attributes:
        kind: the names of its operators, joined by +; of a copy at the model's border, the kind of kernel.
        name: its last result and its number.
        seconds: in one run, the median of the profiled runs.
        operators: their positions in the subgraph.
    """

    kind: str
    name: str
    seconds: float
    operators: tuple[int, ...]


def profiled(kernels: Sequence[KernelTime], operators: Sequence[Operator], graph: Graph, seconds: float) -> list[Node]:
    """The nodes of a run, in order; those that LiteRT runs are one node behind them, with the rest of the run's time.

    Args:
        operators: of the program, with their places.
        seconds: of a whole profiled run.
    """
    nodes = [_node(number, each, graph) for number, each in enumerate(kernels)]
    left = (
        tuple(each.index for each in operators if each.place == LITERT.lower())
        if nodes
        else tuple(range(len(graph.nodes)))
    )
    if left:
        rest = max(0.0, seconds - sum(each.seconds for each in nodes))
        nodes.append(Node(LITERT, f"[{len(left)} operators on LiteRT, and crossings]:{len(nodes)}", rest, left))
    return nodes


def _node(number: int, kernel: KernelTime, graph: Graph) -> Node:
    ops = dict.fromkeys(graph.nodes[index].op for index in kernel.operators)
    results = [graph.tensors[index].name for place in kernel.operators[-1:] for index in graph.nodes[place].outputs[:1]]
    return Node(
        kind="+".join(ops) or kernel.form,
        name=f"[{(results or [kernel.name])[0]}]:{number}",
        seconds=kernel.seconds or 0.0,
        operators=kernel.operators,
    )


def tables(nodes: Sequence[Node], *, csv: bool = False) -> str:
    """Run Order, Top by Computation Time, and Summary by node type."""
    longest = sorted(nodes, key=lambda each: -each.seconds)[:TOP]
    total = sum(each.seconds for each in nodes)
    parts = [
        _table("Run Order", nodes, total, csv),
        _table("Top by Computation Time", longest, total, csv),
        f"Number of nodes executed: {len(nodes)}\n{_summary(nodes, total, csv)}",
        f"Timings (microseconds): count=1 curr={1e6 * total:.0f}\nMemory (bytes): count=0\n{len(nodes)} nodes observed",
    ]
    return "\n\n".join(parts)


def _table(title: str, nodes: Sequence[Node], total: float, csv: bool) -> str:
    lines, so_far = [f"{_TITLE} {title} {_TITLE}", _CSV_HEADINGS if csv else _aligned(_HEADINGS, _WIDTHS)], 0.0
    for node in nodes:
        so_far += node.seconds
        time = f"{1e3 * node.seconds:.3f}"
        row = (node.kind, time, time, _percent(node.seconds, total), _percent(so_far, total), "0.000", "1", node.name)
        lines.append(", ".join(row) if csv else _aligned(row, _WIDTHS))
    return "\n".join(lines)


def _summary(nodes: Sequence[Node], total: float, csv: bool) -> str:
    lines = [f"{_TITLE} Summary by node type {_TITLE}"]
    lines.append(_CSV_TYPE_HEADINGS if csv else _aligned(_TYPE_HEADINGS, _TYPE_WIDTHS))
    so_far = 0.0
    for kind, count, seconds in by_kind(nodes):
        so_far += seconds
        shares = _percent(seconds, total), _percent(so_far, total)
        row = (kind, str(count), f"{1e3 * seconds:.3f}", *shares, "0.000", str(count))
        lines.append(", ".join(row) if csv else _aligned(row, _TYPE_WIDTHS))
    return "\n".join(lines)


def by_kind(nodes: Iterable[Node]) -> Iterator[tuple[str, int, float]]:
    """(kind, number, seconds) of all nodes of each kind, the longest first."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        found.setdefault(node.kind, []).append(node.seconds)
    yield from sorted(((kind, len(each), sum(each)) for kind, each in found.items()), key=lambda each: -each[2])


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells behind tabs, to the right within their widths; the last one, if it has none, to the left."""
    padded = [f"\t{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)]
    return "".join([*padded, *(f"\t{cell}" for cell in cells[len(widths) :])])


def _percent(part: float, total: float) -> str:
    return f"{100 * part / total if total else 0.0:.3f}%"
