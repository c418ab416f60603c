"""Removes nodes that return their operand unchanged."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.forms import Form, Shape, View
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.passes.works_on import moves, works_on


@works_on(moves)
def remove_identity(graph: Graph) -> Graph:
    """%1 = RESHAPE(%0) by View(); %2 = RELU(%1) -> %2 = RELU(%0), if %1 and %0 have the same shape.

    Transposes, paddings, slices and concatenations that change nothing are removed too, and those that another node
    computes before. A View of a View reads the source of the first View. Nodes that write an output of the graph stay.
    """
    instead: dict[int, int] = {}
    known: dict[tuple[Form, tuple[int, ...], Shape, str], int] = {}
    viewed: dict[int, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(instead.get(index, index) for index in node.inputs)
        if isinstance(node.form, View):
            inputs = (viewed.get(inputs[0], inputs[0]),)
            viewed[node.outputs[0]] = inputs[0]
        node, output, form = node.between(inputs, node.outputs), node.outputs[0], form_of(node)
        same = output
        if _changes_nothing(graph, node):
            same = inputs[0]
        elif form.moves_only:
            same = known.setdefault((form, inputs, graph.tensors[output].shape, graph.tensors[output].dtype), output)
        if same != output and output not in graph.outputs:
            instead[output] = same
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _changes_nothing(graph: Graph, node: Node) -> bool:
    if len(node.inputs) != 1 or graph.tensors[node.inputs[0]].shape != graph.tensors[node.outputs[0]].shape:
        return False
    form = form_of(node)
    return form.moves_only and all(index_map.is_identity() for index_map in form.operands)
