"""Removes nodes whose results are never read."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph


def remove_dead(graph: Graph) -> Graph:
    """%2 = RELU(%0) -> nothing, if neither a node nor the caller reads %2."""
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))
