"""Which subgraphs of a model run."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.graph import Model, Node
from jitdelegate.passes.inline_subgraphs import COMPOSITE


def running_subgraphs(model: Model) -> frozenset[int]:
    """The first one, those that signatures enter, and those that operators of these run.

    Decompositions of composites are none of them: LiteRT, too, puts their operators in the place of a composite.
    """
    pending = [0, *(signature.graph for signature in model.signatures)]
    found: set[int] = set()
    while pending:
        number = pending.pop()
        if number not in found and 0 <= number < len(model.graphs):
            found.add(number)
            pending += (callee for node in model.graphs[number].nodes for callee in callees(node))
    return frozenset(found)


def callees(node: Node) -> Iterator[int]:
    """The subgraphs that LiteRT runs for an operator."""
    for name, value in node.attrs.items():
        if name.endswith("subgraph_index") and value >= 0 and node.op != COMPOSITE:
            yield value
