"""Decodes the options of custom operators into named options, like those of builtin operators."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import find
from jitdelegate.passes.works_on import custom_operators, works_on


@works_on(custom_operators)
def decode_custom_options(graph: Graph) -> Graph:
    """%1 = Convolution2DTransposeBias(%0, ...) {} -> {padding=SAME, stride_w=2, stride_h=2}.

    Unknown operators, and options that no kernel reads, stay as they are. The check reports them later.
    """
    return replace(graph, nodes=tuple(map(_decoded, graph.nodes)))


def _decoded(node: Node) -> Node:
    op = find(node)
    return replace(node, attrs=op.decode(node.custom_options)) if op and op.custom and not node.attrs else node
