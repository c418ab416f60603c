"""Fuses arithmetic with constants into the weights and bias of a convolution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import is_narrow
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ops.call import OPTION
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import works_on

CHANNEL_AXIS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
"""Operators whose weights are rewritten -> the output channel axis of their filter."""

ARITHMETIC = ("ADD", "SUB", "MUL", "DIV")
SWAPPABLE = ("ADD", "MUL")


@works_on(*ARITHMETIC)
def fuse_scale(graph: Graph) -> Graph:
    """%1 = CONV_2D(%0, %w, %b); %2 = MUL(%1, %c) -> %2 = CONV_2D(%0, %w * %c, %b * %c); ADD changes only the bias.

    SUB and DIV are fused too if the constant is the second operand, and for DIV not 0. The constant must be one number
    or one number per channel. The convolution must have no activation and no other reader. An activation of the
    arithmetic operator becomes the convolution's. Weights that targets may store narrower than float32 are not
    multiplied, which would cost them that.
    """
    draft = GraphBuilder(graph)
    nodes: dict[int, Node] = {}
    for position, node in enumerate(graph.nodes):
        found = _producer(graph, draft, nodes, node)
        if found is not None:
            writer, constant = found
            node = _scaled(draft, nodes.pop(writer), node, constant)
        nodes[position] = node
    return draft.graph(nodes.values())


def _producer(graph: Graph, draft: GraphBuilder, nodes: dict[int, Node], node: Node) -> tuple[int, np.ndarray] | None:
    """(position of the node to scale, the constant); None if the rewrite does not apply."""
    if node.op not in ARITHMETIC:
        return None
    for data, other in (node.inputs, node.inputs[::-1] if node.op in SWAPPABLE else node.inputs):
        writer, constant = graph.writer[data], graph.tensors[other].data
        producer = nodes.get(writer) if writer is not None else None
        if writer is None or producer is None or constant is None or not _is_open(graph, producer, data):
            continue
        shape = graph.tensors[data].shape
        fits = graph.tensors[node.outputs[0]].shape == shape and constant.size in (1, _per_channel(constant, shape))
        is_kept = node.op in ("MUL", "DIV") and is_narrow(draft.tensors[producer.inputs[1]])
        if fits and not is_kept and (node.op != "DIV" or constant.all()):
            return writer, constant
    return None


def _per_channel(constant: np.ndarray, shape: tuple[int, ...]) -> int:
    """The number of channels if the constant has one element per channel, else 1."""
    return shape[-1] if constant.ndim and constant.size == constant.shape[-1] == shape[-1] else 1


def _is_open(graph: Graph, producer: Node, output: int) -> bool:
    plain = producer.attrs.get(OPTION, "NONE") == "NONE"
    is_scalable = producer.op in CHANNEL_AXIS and plain and _has_constants(graph, producer)
    return is_scalable and graph.only_reader(output) is not None


def _has_constants(graph: Graph, producer: Node) -> bool:
    """True if filter and bias are float constants and the bias is a vector. Those that this pass made always are."""
    old = {place: graph.tensors[i] for place, i in enumerate(producer.inputs) if ABSENT < i < len(graph.tensors)}
    is_vector = 2 not in old or len(old[2].shape) == 1
    is_float = not any(tensor.is_quantized for tensor in old.values())
    return is_vector and is_float and all(tensor.is_constant for place, tensor in old.items() if place > 0)


def _scaled(draft: GraphBuilder, producer: Node, node: Node, constant: np.ndarray) -> Node:
    """The producer with new weights, writing what `node` wrote."""
    inputs = [*producer.inputs, ABSENT][:3]
    values = constant.reshape(-1).astype(np.float64)
    if node.op in ("MUL", "DIV"):
        factor = values if node.op == "MUL" else 1 / values
        inputs[1] = _multiplied(draft, inputs[1], factor, CHANNEL_AXIS[producer.op])
        if inputs[2] != ABSENT:
            inputs[2] = _multiplied(draft, inputs[2], factor, 0)
    else:
        channels = draft.tensors[producer.outputs[0]].shape[-1]
        bias = draft.tensors[inputs[2]].data if inputs[2] != ABSENT else None
        total = np.zeros(channels) if bias is None else bias.astype(np.float64)
        total = total + (values if node.op == "ADD" else -values)
        inputs[2] = draft.constant(f"{node.op} bias", total.astype(np.float32))
    attrs = {**producer.attrs, OPTION: node.attrs.get(OPTION, "NONE")}
    return replace(
        producer, inputs=tuple(inputs), outputs=node.outputs, attrs=attrs, origin=producer.origin + node.origin
    )


def _multiplied(draft: GraphBuilder, index: int, factor: np.ndarray, axis: int) -> int:
    source = draft.tensors[index]
    assert source.data is not None
    along = [1] * source.data.ndim
    along[axis] = len(factor)
    return draft.constant(source.name, (source.data * factor.reshape(along)).astype(np.float32))
