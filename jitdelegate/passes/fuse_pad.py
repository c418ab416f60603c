"""Fuses zeros around an image into the padding of a convolution."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call
from jitdelegate.ops.padding import Pad
from jitdelegate.ops.window import EXPLICIT_PADDING

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
"""Operators whose padding is zeros. Pools are not among them: they skip padding, but would count the zeros of a PAD."""


def fuse_pad(graph: Graph) -> Graph:
    """%1 = PAD(%0); %2 = CONV_2D(%1, ...) -> %2 = CONV_2D(%0, ...) {explicit_padding=(top, bottom, left, right)}.

    Requires that the PAD adds zeros to H and W only. If several convolutions read the PAD, each gets the padding.
    """
    nodes = tuple(_padded(graph, node) if node.op in CONVOLUTIONS else node for node in graph.nodes)
    kept = {index for node in nodes for index in node.inputs} | set(graph.outputs)
    return replace(
        graph, nodes=tuple(node for node in nodes if node.op not in ("PAD", "PADV2") or node.outputs[0] in kept)
    )


def _padded(graph: Graph, node: Node) -> Node:
    writer = graph.writer[node.inputs[0]]
    if writer is None or EXPLICIT_PADDING in node.attrs:
        return node
    borders = _zeros(Call(graph, graph.nodes[writer]))
    if borders is None:
        return node
    source = graph.nodes[writer]
    return replace(
        node,
        inputs=(source.inputs[0], *node.inputs[1:]),
        attrs={**node.attrs, EXPLICIT_PADDING: borders},
        origin=(*source.origin, *node.origin),
    )


def _zeros(call: Call) -> tuple[int, ...] | None:
    """(top, bottom, left, right) of a node that pads H and W of an image with zeros; None for other nodes."""
    op = OPS[call.node.op]
    if not isinstance(op, Pad) or op.value(call) != 0 or len(call.shape(0)) != 4:
        return None
    batch, height, width, channels = op.borders(call)
    return (*height, *width) if batch == channels == (0, 0) else None
