"""Quantized weights beside float32 data, as the floats that they stand for."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.dequantize import dequantized
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import quantized_values, works_on


@works_on(quantized_values)
def widen_weights(graph: Graph) -> Graph:
    """%1 = CONV_2D(%0, %w: i8) -> CONV_2D(%0, %v: f32), where %v are the floats that %w stands for.

    Targets may store them as integers again: each constant remembers how it was quantized.
    """
    draft, widened = GraphBuilder(graph), dict[int, int]()

    def wide(index: int) -> int:
        if index == ABSENT or not graph.tensors[index].is_quantized:
            return index
        if index not in widened:
            widened[index] = draft.add(dequantized(graph.tensors[index]))
        return widened[index]

    def rewritten(node: Node) -> Node:
        call = Call(graph, node)
        is_wide = call.quantization == "hybrid" and OPS[node.op].widens(call)
        return replace(node, inputs=tuple(map(wide, node.inputs))) if is_wide else node

    return draft.graph([rewritten(node) for node in graph.nodes])
