"""Weights as LiteRT's kernels read them, where their tensors say something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import integers
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops.call import Call
from jitdelegate.ops.registry import find
from jitdelegate.ops.xnnpack import UNPACKED
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import quantized_values, works_on

UNPACKS = {
    ("integer", "int4"): ("CONV_2D", "FULLY_CONNECTED"),
    ("integer", "int2"): ("FULLY_CONNECTED",),
    ("hybrid", "int2"): ("FULLY_CONNECTED", "EMBEDDING_LOOKUP"),
}
"""How a node is quantized, type of its weights -> operators whose kernels unpack them. That of DEPTHWISE_CONV_2D takes
the bytes of int4 for int8."""


@works_on(quantized_values)
def read_weights(graph: Graph) -> Graph:
    """FULLY_CONNECTED(%0: f32, %w: u8) -> FULLY_CONNECTED(%0, %v: i8), where %v has the bytes of %w and no zero point:
    old files hold signed numbers so, and LiteRT's kernels for float32 data ignore the zero point of the tensor.

    FULLY_CONNECTED(%0: i8, %w: i4) -> FULLY_CONNECTED(%0, %v: i8) {unpacked_weights}, where %v has the same numbers;
    weights of int2 too.
    """
    draft, known = GraphBuilder(graph), dict[int, int]()

    def rewritten(node: Node) -> Node:
        op = find(node)
        if op is None or not op.weights:
            return node
        quantization, inputs, stored = Call(graph, node).quantization, list(node.inputs), ""
        for operand in op.weights:
            index = inputs[operand] if operand < len(inputs) else ABSENT
            read = _read(node, graph.tensors[index], quantization) if index != ABSENT else None
            if read is not None:
                if index not in known:
                    known[index] = draft.add(read)
                inputs[operand], stored = known[index], graph.tensors[index].dtype
        if inputs == list(node.inputs):
            return node
        attrs = {**node.attrs, UNPACKED: stored} if quantization == "integer" else node.attrs
        return replace(node, inputs=tuple(inputs), attrs=attrs)

    return draft.graph([rewritten(node) for node in graph.nodes])


def _read(node: Node, weights: Tensor, quantization: str) -> Tensor | None:
    """The weights as a kernel of a node that is so quantized reads them; None where it reads them as they are."""
    quant = weights.quant
    if weights.data is None or weights.sparsity is not None or quant is None:
        return None
    if quantization == "hybrid" and weights.dtype == "uint8":
        signed = replace(quant, zero_points=(0,) * len(quant.zero_points))
        return replace(weights, dtype="int8", quant=signed).holding(weights.data.view(np.int8))
    if node.op in UNPACKS.get((quantization, weights.dtype), ()):
        return replace(weights, dtype="int8").holding(integers(weights))
    return None
