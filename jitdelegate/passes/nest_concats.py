"""Builds concatenations from earlier ones that have some of their operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jitdelegate.ir.forms import Concat
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.works_on import works_on

Known = dict[tuple[int, int], list[tuple[tuple[int, ...], int]]]
"""(axis, first operand) -> operands and results of concatenations, in order."""


@works_on(Concat)
def nest_concats(graph: Graph) -> Graph:
    """%3 = CONCATENATION(%0, %1); %4 = CONCATENATION(%0, %1, %2) -> %3 = ...; %4 = CONCATENATION(%3, %2).

    Dense blocks join all features before every layer. Nested, their concatenations can have one memory
    (`targets.planning.parts`), which a tensor in two concatenations cannot.
    """
    known: Known = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        form = node.form
        if isinstance(form, Concat):
            operands = node.inputs
            node = replace(node, inputs=tuple(_nested(known, form.axis, operands)))
            known.setdefault((form.axis, operands[0]), []).append((operands, node.outputs[0]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _nested(known: Known, axis: int, operands: Sequence[int]) -> Iterator[int]:
    """The operands, with the longest runs of two and more that another concatenation joins replaced by its result."""
    at = 0
    while at < len(operands):
        run: Sequence[int] = operands[at : at + 1]
        joined = operands[at]
        for others, result in known.get((axis, operands[at]), ()):
            if len(run) < len(others) and tuple(operands[at : at + len(others)]) == others:
                run, joined = others, result
        yield joined
        at += len(run)
