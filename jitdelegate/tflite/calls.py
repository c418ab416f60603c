"""Operators that run other subgraphs (IF, WHILE, CALL_ONCE, ...)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph, Model, Node


def called_subgraphs(node: Node) -> Iterator[tuple[str, int]]:
    """(option, subgraph) pairs for the subgraphs in the node's options."""
    for name, value in node.attrs.items():
        if name.endswith("subgraph_index"):
            yield name, value
        elif name.endswith("subgraph_indices"):
            yield from ((name, subgraph) for subgraph in value or ())


def entered_subgraphs(model: Model) -> list[int]:
    """The subgraphs that callers run, without those that operators run too."""
    called = {index for graph in model.graphs for node in graph.nodes for _, index in called_subgraphs(node)}
    return sorted({0, *(signature.graph for signature in model.signatures)} - called)


def check_calls(graphs: Sequence[Graph]) -> None:
    """Check that every subgraph named by an operator exists, and that none calls itself, directly or through others.

    Raises:
        ModelError: a subgraph does not exist, or calls itself.
    """
    calls = {index: _called(graph, index, len(graphs)) for index, graph in enumerate(graphs)}
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        raise ModelError(f"model: subgraphs call each other in a circle: {error.args[1][:10]}") from None


def _called(graph: Graph, index: int, count: int) -> set[int]:
    called: set[int] = set()
    for position, node in enumerate(graph.nodes):
        for option, subgraph in called_subgraphs(node):
            if not 0 <= subgraph < count:
                where = f"subgraph {index}, operator {position} {node.op}"
                raise ModelError(f"{where}: {option} is {subgraph}, there are {count} subgraphs")
            called.add(subgraph)
    return called
