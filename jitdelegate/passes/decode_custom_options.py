"""Decodes the options of custom operators, so that they have names as those of builtin ones."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import find


def decode_custom_options(graph: Graph) -> Graph:
    """%1 = Convolution2DTransposeBias(%0, ...) {} -> {padding=SAME, stride_w=2, stride_h=2}.

    Operators that nobody knows, and options that no kernel reads, stay as they are, for the check that reports them.
    """
    return replace(graph, nodes=tuple(map(_decoded, graph.nodes)))


def _decoded(node: Node) -> Node:
    op = find(node)
    return replace(node, attrs=op.decode(node.custom_options)) if op and op.custom and not node.attrs else node
