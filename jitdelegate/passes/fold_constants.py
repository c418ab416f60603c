"""What is known when the model is compiled is computed then."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call

MAX_ELEMENTS = 1 << 27
"""More than this, or than GROWTH times the file's constants, is left to the run: a short file can ask for constants
that fill the memory."""

GROWTH = 8


def fold_constants(graph: Graph) -> Graph:
    """%2 = DEQUANTIZE(%1: f16[8]) -> the constant %2: f32[8]; so with every operator on constants, and with SHAPE.

    Nodes that their operator finds a fault in are left as they are, for the check that reports it.
    """
    nodes: list[Node] = []
    left = max(MAX_ELEMENTS, GROWTH * sum(tensor.data.size for tensor in graph.tensors if tensor.data is not None))
    for node in graph.nodes:
        folded = _folded(graph, node, left)
        if folded is None:
            nodes.append(node)
        else:
            left -= folded.size
            tensors = list(graph.tensors)
            tensors[node.outputs[0]] = replace(tensors[node.outputs[0]], data=folded)
            graph = replace(graph, tensors=tuple(tensors))
    return replace(graph, nodes=tuple(nodes))


def _folded(graph: Graph, node: Node, most: int) -> np.ndarray | None:
    """The node's value, if it is known and has at most `most` elements."""
    op, call = OPS.get(node.op), Call(graph, node)
    if op is None or node.custom or not op.foldable(call) or any(prod(t.shape) > most for t in call.outputs):
        return None
    if next(op.structure(call), None) is not None:
        return None
    with np.errstate(all="ignore"):
        data = np.array(op.fold(call)[0], np.dtype(call.output.dtype), order="C")
    assert data.shape == call.output.shape, f"{node.op} folded to {data.shape}, its output is {call.output.shape}"
    data.flags.writeable = False
    return data
