"""Copies constant images into runtime tensors: windows need a halo, and only runtime images have one."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.forms import Window
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.passes.graph_builder import GraphBuilder
from jitdelegate.passes.works_on import works_on


@works_on(Window)
def copy_images(graph: Graph) -> Graph:
    """%1 = CONV_2D(a constant) by Contract() -> %2 = COPY(the constant) by Map(a0); %1 = CONV_2D(%2) by Contract().

    Constant images remain where the constant or the work on it is too large to fold, or where weights are known only
    at run time.
    """
    draft = GraphBuilder(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        index = node.inputs[0] if node.inputs else ABSENT
        if isinstance(node.form, Window) and graph.tensors[index].is_constant:
            copy = draft.copy(index, node.origin)
            nodes.append(copy)
            node = replace(node, inputs=(*copy.outputs, *node.inputs[1:]))
        nodes.append(node)
    return draft.graph(nodes)
