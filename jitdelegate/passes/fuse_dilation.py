"""Restores dilated convolutions that a converter wrote as SPACE_TO_BATCH_ND, convolution, BATCH_TO_SPACE_ND."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.batch_space import BatchSpace
from jitdelegate.ops.call import Call, same_axis
from jitdelegate.ops.window import EXPLICIT_PADDING, dilation, stride
from jitdelegate.passes.works_on import works_on

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


@works_on("SPACE_TO_BATCH_ND")
def fuse_dilation(graph: Graph) -> Graph:
    """%1 = SPACE_TO_BATCH_ND(%0); %2 = CONV_2D(%1, ...); %3 = BATCH_TO_SPACE_ND(%2) ->
    %3 = CONV_2D(%0, ...) {dilation factors = block sizes, explicit_padding = zeros added - pixels cropped}.

    Requires that the convolution has stride 1, dilation 1 and no padding of its own, that nothing else reads the
    tensors in between, and that no more pixels are cropped than zeros were added.
    """
    fused: dict[int, Node] = {}
    replaced: set[Node] = set()
    for position, node in enumerate(graph.nodes):
        found = _before(graph, node)
        dilated = _dilated(graph, *found, node) if found else None
        if found and dilated:
            fused[position] = dilated
            replaced.update(found)
    kept = (fused.get(position, node) for position, node in enumerate(graph.nodes) if node not in replaced)
    return replace(graph, nodes=tuple(kept))


def _before(graph: Graph, last: Node) -> tuple[Node, Node] | None:
    """(SPACE_TO_BATCH_ND, convolution) before a BATCH_TO_SPACE_ND of the same blocks."""
    convolution = _writer(graph, last) if last.op == "BATCH_TO_SPACE_ND" else None
    if convolution is None or convolution.op not in CONVOLUTIONS or not _is_plain(convolution):
        return None
    first = _writer(graph, convolution)
    if first is None or first.op != "SPACE_TO_BATCH_ND":
        return None
    blocks = Call(graph, first).integers(1)
    return (first, convolution) if len(blocks) == 2 and blocks == Call(graph, last).integers(1) else None


def _writer(graph: Graph, node: Node) -> Node | None:
    """The node that writes the first operand, if nothing else reads that operand."""
    writer = graph.writer[node.inputs[0]]
    return None if writer is None or graph.only_reader(node.inputs[0]) is None else graph.nodes[writer]


def _is_plain(node: Node) -> bool:
    own = node.attrs.get("padding", "SAME") == "SAME" or EXPLICIT_PADDING in node.attrs
    return not own and stride(node.attrs) == dilation(node.attrs) == (1, 1)


def _dilated(graph: Graph, first: Node, convolution: Node, last: Node) -> Node | None:
    """The three nodes as one; None if one node cannot express them."""
    added, cut = (BatchSpace.borders(Call(graph, node))[1:3] for node in (first, last))
    padding = tuple(a - c for zeros, lost in zip(added, cut, strict=True) for a, c in zip(zeros, lost, strict=True))
    height, width = Call(graph, first).integers(1)
    factors = {"dilation_h_factor": height, "dilation_w_factor": width, EXPLICIT_PADDING: padding}
    node = replace(
        convolution,
        inputs=(first.inputs[0], *convolution.inputs[1:]),
        outputs=last.outputs,
        attrs={**convolution.attrs, **factors},
        origin=(*first.origin, *convolution.origin, *last.origin),
    )
    tensors = graph.tensors
    if not all(same_axis(tensors[each.inputs[0]], tensors[each.outputs[0]]) for each in (first, last)):
        return None
    return node if min(padding) >= 0 and OPS[node.op].check(graph, node) is None else None
