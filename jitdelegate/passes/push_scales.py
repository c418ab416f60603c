"""Moves factors of a product's operands behind the product, whose kernel multiplies its results for nothing."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from jitdelegate.ir.expr import RESULT, Apply, Arg, Const, Expr, substitute
from jitdelegate.ir.forms import Map, MatMul
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.passes.graph_builder import reshape
from jitdelegate.passes.works_on import works_on


@works_on(MatMul)
def push_scales(graph: Graph) -> Graph:
    """%1 = MUL(%0) by Map(mul(a0, 0.125)); %3 = BATCH_MATMUL(%1, %2) by MatMul() ->
    %3 = BATCH_MATMUL(%0, %2) by MatMul(epilogue=mul(a0, 0.125)).

    Requires that nothing else reads the Map's result, the product's epilogue neither; reshapes, transposes and slices
    may lie between. What the Map moves besides stays, and is then for other passes to fold.
    """
    nodes = dict(enumerate(graph.nodes))
    for position, node in enumerate(graph.nodes):
        form = node.form
        if not isinstance(form, MatMul) or graph.tensors[node.outputs[0]].dtype != "float32":
            continue
        factor = 1.0
        for index in node.inputs[:2]:
            writer = _scale(graph, index) if index not in node.inputs[2:] else None
            if writer is not None:
                factor *= _factor(form_of(graph.nodes[writer]).epilogue) or 1.0  # none is 0
                nodes[writer] = _without(graph, graph.nodes[writer])
        if factor != 1.0:
            scaled = Apply("mul", (RESULT, Const(factor)))
            extra = map(Arg, range(1, 1 + len(form.operands)))
            nodes[position] = replace(node, form=replace(form, epilogue=substitute(form.epilogue, [scaled, *extra])))
    return replace(graph, nodes=tuple(nodes.values()))


def _scale(graph: Graph, index: int) -> int | None:
    """The position of the Map that multiplies all that a tensor shows by a number; None if there is none."""
    position = graph.writer[index]
    while position is not None and graph.only_reader(index) is not None:
        node = graph.nodes[position]
        if len(node.inputs) != 1 or (isinstance(node.form, Map) and node.form.operands[0].fill not in (None, 0.0)):
            return None
        if isinstance(node.form, Map) and _factor(node.form.epilogue) is not None:
            return position
        if not form_of(node).moves_only:
            return None
        index = node.inputs[0]
        position = graph.writer[index]
    return None


def _factor(epilogue: Expr) -> float | None:
    """The number, finite and not 0, by which an expression multiplies its argument; None for other expressions."""
    if not isinstance(epilogue, Apply) or epilogue.function != "mul":
        return None
    constants = [part.value for part in epilogue.parts if isinstance(part, Const)]
    is_scale = len(constants) == 1 and Arg(0) in epilogue.parts and constants[0] and isfinite(constants[0])
    return float(constants[0]) if is_scale else None


def _without(graph: Graph, node: Node) -> Node:
    """The Map without its factor; a View where it moves nothing then."""
    form = form_of(node)
    source, output = (graph.tensors[index].shape for index in (*node.inputs, *node.outputs))
    if source == output and form.operands[0].is_identity():
        return reshape(node, node.inputs[0], node.outputs[0])
    return replace(node, form=replace(form, epilogue=Arg(0)))
