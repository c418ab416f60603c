"""Fuses activations into the operator before them."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.call import ACTIVATIONS, OPTION, Call
from jitdelegate.passes.works_on import works_on


@works_on(*ACTIVATIONS)
def fuse_activation(graph: Graph) -> Graph:
    """%1 = CONV_2D(%0, ...); %2 = RELU6(%1) -> %2 = CONV_2D(%0, ...) {fused_activation_function=RELU6}.

    Requires that the operator has this option, that the option is NONE, and that nothing else reads its output. A
    quantized activation rounds once more.
    """
    nodes: dict[int, Node] = {}
    for position, node in enumerate(graph.nodes):
        writer = graph.writer[node.inputs[0]] if node.op in ACTIVATIONS else None
        producer = nodes.get(writer) if writer is not None else None
        if writer is not None and producer is not None and _is_plain(producer) and _is_private(graph, node):
            fused = {**producer.attrs, OPTION: node.op}
            del nodes[writer]
            node = replace(producer, outputs=node.outputs, attrs=fused, origin=producer.origin + node.origin)
        nodes[position] = node
    return replace(graph, nodes=tuple(nodes.values()))


def _is_plain(node: Node) -> bool:
    return OPS[node.op].activates and node.attrs.get(OPTION, "NONE") == "NONE"


def _is_private(graph: Graph, node: Node) -> bool:
    return graph.only_reader(node.inputs[0]) is not None and not Call(graph, node).quantization
