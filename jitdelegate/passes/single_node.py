"""One node as a graph of its own."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.passes.partition import borders, extract


def single_node(graph: Graph, position: int) -> Graph:
    """The node at `position` over the tensors that it reads and writes, renumbered. Values of states become inputs."""
    inputs, outputs = borders(graph, [position])
    found = extract(replace(graph, states=()), [position], inputs, outputs)
    node = found.nodes[0]
    used = list(dict.fromkeys(index for index in (*node.inputs, *node.outputs) if index != ABSENT))
    number = {ABSENT: ABSENT} | {index: place for place, index in enumerate(used)}
    inputs, outputs = (tuple(map(number.__getitem__, indices)) for indices in (node.inputs, node.outputs))
    return replace(
        found,
        tensors=tuple(found.tensors[index] for index in used),
        nodes=(replace(node, inputs=inputs, outputs=outputs),),
        inputs=tuple(number[index] for index in found.inputs),
        outputs=tuple(number[index] for index in found.outputs),
    )
