"""Copies outputs that no kernel writes: inputs, constants and states."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.graph_builder import GraphBuilder


def copy_outputs(graph: Graph) -> Graph:
    """return %0, the input -> %1 = COPY(%0) by Map(a0); return %1. Constants and values of states are copied too.

    An output without elements stays as it is: there is nothing to copy.
    """
    draft = GraphBuilder(graph)
    copies: list[Node] = []
    instead: dict[int, int] = {}
    for index in dict.fromkeys(graph.outputs):
        if graph.writer[index] is None and graph.tensors[index].size:
            copies.append(draft.copy(index))
            (instead[index],) = copies[-1].outputs
    outputs = tuple(instead.get(index, index) for index in graph.outputs)
    states = tuple(replace(state, after=instead.get(state.after, state.after)) for state in graph.states)
    return replace(draft.graph((*graph.nodes, *copies)), outputs=outputs, states=states)
