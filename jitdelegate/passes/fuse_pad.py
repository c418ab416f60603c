"""Fuses what a PAD adds around an image into the padding of a convolution or of a pool."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call, same_axis, zero
from jitdelegate.ops.padding import Pad
from jitdelegate.ops.window import EXPLICIT_PADDING
from jitdelegate.passes.works_on import works_on

PADDING = {"CONV_2D": 0.0, "DEPTHWISE_CONV_2D": 0.0, "MAX_POOL_2D": -inf}
"""Operator -> a real value around its image that counts as much as its own padding. A mean would count every value."""


@works_on("PAD", "PADV2")
def fuse_pad(graph: Graph) -> Graph:
    """%1 = PAD(%0); %2 = CONV_2D(%1, ...) -> %2 = CONV_2D(%0, ...) {explicit_padding=(top, bottom, left, right)}.

    Requires that the PAD adds zeros to H and W only, or -inf before a MAX_POOL_2D none of whose windows then lies
    outside the image. If several operators read the PAD, each gets the padding.
    """
    nodes = tuple(_padded(graph, node) if node.op in PADDING else node for node in graph.nodes)
    kept = {index for node in nodes for index in node.inputs} | set(graph.outputs)
    return replace(
        graph, nodes=tuple(node for node in nodes if node.op not in ("PAD", "PADV2") or node.outputs[0] in kept)
    )


def _padded(graph: Graph, node: Node) -> Node:
    writer = graph.writer[node.inputs[0]]
    if writer is None or EXPLICIT_PADDING in node.attrs:
        return node
    borders = _borders(Call(graph, graph.nodes[writer]), PADDING[node.op])
    if borders is None or not _reaches_inside(node, borders):
        return node
    source = graph.nodes[writer]
    if not same_axis(graph.tensors[source.inputs[0]], graph.tensors[node.inputs[0]]):
        return node
    return replace(
        node,
        inputs=(source.inputs[0], *node.inputs[1:]),
        attrs={**node.attrs, EXPLICIT_PADDING: borders},
        origin=(*source.origin, *node.origin),
    )


def _reaches_inside(node: Node, borders: tuple[int, ...]) -> bool:
    """Whether every window of a pool has a pixel of the image."""
    if node.op != "MAX_POOL_2D":
        return True
    height, width = int(node.attrs.get("filter_height", 0)), int(node.attrs.get("filter_width", 0))
    return node.attrs.get("padding") == "VALID" and max(borders[:2]) < height and max(borders[2:]) < width


def _borders(call: Call, value: float) -> tuple[int, ...] | None:
    """(top, bottom, left, right) of a node that pads H and W of an image with `value`; None for other nodes."""
    op = OPS[call.node.op]
    if not isinstance(op, Pad) or op.value(call) != value + zero(call.tensor(0)) or len(call.shape(0)) != 4:
        return None
    batch, height, width, channels = op.borders(call)
    return (*height, *width) if batch == channels == (0, 0) else None
