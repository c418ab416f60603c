"""Finds the subgraphs of a model that run."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.graph import Model, Node
from jitdelegate.passes.inline_subgraphs import COMPOSITE
from jitdelegate.tflite.calls import called_subgraphs


def running_subgraphs(model: Model) -> frozenset[int]:
    """Indices of the first subgraph, the subgraphs of signatures, and all subgraphs that operators of these run.

    Decompositions of composites are not counted: LiteRT also replaces a composite by the operators in it.
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
    return (number for _, number in called_subgraphs(node) if number >= 0 and node.op != COMPOSITE)
