"""Weights of old files, which hold signed numbers in tensors of uint8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ops.call import Call
from jitdelegate.ops.registry import find
from jitdelegate.passes.graph_builder import GraphBuilder


def sign_weights(graph: Graph) -> Graph:
    """FULLY_CONNECTED(%0: f32, %w: u8) -> FULLY_CONNECTED(%0, %v: i8), where %v has the bytes of %w and no zero point.

    LiteRT's kernels for float32 data read such bytes so, whatever the zero point of the tensor is.
    """
    draft, signed = GraphBuilder(graph), dict[int, int]()

    def as_signed(index: int) -> int:
        tensor = graph.tensors[index] if index != ABSENT else None
        if tensor is None or tensor.dtype != "uint8" or tensor.data is None or tensor.quant is None:
            return index
        if index not in signed:
            quant = replace(tensor.quant, zero_points=(0,) * len(tensor.quant.zero_points))
            signed[index] = draft.add(replace(tensor, dtype="int8", data=tensor.data.view(np.int8), quant=quant))
        return signed[index]

    def rewritten(node: Node) -> Node:
        op = find(node)
        if op is None or not op.weights or Call(graph, node).quantization != "hybrid":
            return node
        inputs = (as_signed(index) if k in op.weights else index for k, index in enumerate(node.inputs))
        return replace(node, inputs=tuple(inputs))

    return draft.graph([rewritten(node) for node in graph.nodes])
