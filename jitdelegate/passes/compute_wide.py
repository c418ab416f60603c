"""Values that operators compute with in a wider type than the file's: float16 in float32; and bfloat16 as float32."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call
from jitdelegate.ops.elementwise import BFLOAT16, ROUNDED
from jitdelegate.ops.registry import computed_type
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import narrow_values, works_on


@works_on(narrow_values)
def compute_wide(graph: Graph) -> Graph:
    """%2: f16 = TANH(%1: f16) -> %3: f32 = CAST(%1); %4 = TANH(%3); %2 = CAST(%4).

    Results are rounded once, as LiteRT's kernels round them. Operators that only move values keep their type; constants
    are converted here. A bfloat16 becomes the float32 that it is, and a CAST to one becomes a CAST that rounds.
    """
    draft, wide, nodes = GraphBuilder(graph), dict[int, int](), list[Node]()

    def added(tensor: Tensor) -> int:
        other = replace(tensor, dtype=computed_type(tensor.dtype), is_variable=False)
        return draft.add(other if tensor.data is None else other.holding(tensor.data))

    def converted(node: Node, source: int, target: int) -> None:
        types = {f"{side}_data_type": draft.tensors[k].dtype.upper() for side, k in (("in", source), ("out", target))}
        nodes.append(Node("CAST", (source,), (target,), types, origin=node.origin))

    for node in graph.nodes:
        widened = OPS[node.op].widened(Call(graph, node)) if node.op in OPS else frozenset[int]()
        for index in (index for index in node.inputs if index in widened and index not in wide):
            wide[index] = added(graph.tensors[index])
            if graph.tensors[index].data is None:
                converted(node, index, wide[index])
        results = {index: added(graph.tensors[index]) for index in node.outputs if index in widened}
        inputs = tuple(wide[index] if index in widened else index for index in node.inputs)
        nodes.append(node.between(inputs, tuple(results.get(index, index) for index in node.outputs)))
        for index, result in results.items():
            converted(node, result, index)
    return _without_bfloat16(draft.graph(nodes))


def _without_bfloat16(graph: Graph) -> Graph:
    narrow = {index for index, tensor in enumerate(graph.tensors) if tensor.dtype == BFLOAT16}
    if not narrow:
        return graph

    def rounded(node: Node) -> Node:
        is_rounding = node.op == "CAST" and narrow.issuperset(node.outputs)
        return replace(node, attrs={**node.attrs, ROUNDED: BFLOAT16}) if is_rounding else node

    pairs = enumerate(graph.tensors)
    tensors = tuple(replace(tensor, dtype="float32") if index in narrow else tensor for index, tensor in pairs)
    return replace(graph, tensors=tensors, nodes=tuple(map(rounded, graph.nodes)))
