"""Splits epilogues that have operands which a target's kernels cannot read along the output into separate Maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import IndexMap, Map, Shape
from jitdelegate.ir.graph import Graph, Node, Tensor, form_of
from jitdelegate.passes.graph_builder import GraphBuilder

Follows = Callable[[IndexMap, Shape, Shape], object]
"""(index map, operand's shape, output's shape) -> a true value if kernels can read the operand along the output."""


def split_epilogues(graph: Graph, follows: Follows) -> Graph:
    """%2 = CONV_2D(%0, ..., %1) by Contract(epilogue=add(a0, a1)) ->
    %3 = CONV_2D(%0, ...) by Contract(); %2 = CONV_2D(%3, %1) by Map(add(a0, a1)), if kernels cannot read %1 along %2.

    An operand that the form's own result depends on is repeated along the output by a Map before it instead.
    """
    draft, nodes = GraphBuilder(graph), list[Node]()
    for node in graph.nodes:
        form = form_of(node)
        if not form.has_result or _all_followed(graph, node, 0, follows):
            nodes.append(node)
            continue
        *repeated, node = _repeated(graph, draft, node, follows)
        nodes += repeated
        nodes += [node] if _all_followed(graph, node, form.own_extras, follows) else _split(graph, draft, node)
    return draft.graph(nodes)


def _all_followed(graph: Graph, node: Node, first: int, follows: Follows) -> bool:
    """Whether kernels can read the extra operands from number `first` on."""
    form, output = form_of(node), graph.tensors[node.outputs[0]].shape
    extra = list(zip(form.operands, node.inputs[form.core :], strict=False))[first:]
    return all(follows(index_map, graph.tensors[index].shape, output) for index_map, index in extra)


def _repeated(graph: Graph, draft: GraphBuilder, node: Node, follows: Follows) -> list[Node]:
    """Maps that repeat operands of the form's own result along the output, and the node that reads them."""
    form, output, nodes = form_of(node), graph.tensors[node.outputs[0]].shape, list[Node]()
    inputs, operands = list(node.inputs), list(form.operands)
    for number in range(form.own_extras):
        place = form.core + number
        if not follows(operands[number], graph.tensors[inputs[place]].shape, output):
            whole = draft.add_like(inputs[place], output)
            copied = Map(Arg(0), (operands[number],))
            nodes.append(replace(node, inputs=(inputs[place],), outputs=(whole,), form=copied))
            inputs[place], operands[number] = whole, IndexMap.broadcast(output, output)
    return [*nodes, replace(node, inputs=tuple(inputs), form=replace(form, operands=tuple(operands)))]


def _split(graph: Graph, draft: GraphBuilder, node: Node) -> tuple[Node, Node]:
    """The node without its epilogue, and a Map that computes the epilogue."""
    form, output, own = form_of(node), graph.tensors[node.outputs[0]], form_of(node).own_extras
    # The epilogue may convert the form's own result to another type.
    name, dtype = f"{output.name} before its epilogue", form.own_type(graph.tensors[node.inputs[0]].dtype)
    between = draft.add(Tensor(name, output.shape, dtype))
    extra = node.inputs[form.core :]
    alone = replace(form, epilogue=RESULT, operands=form.operands[:own])
    epilogue = Map(form.epilogue, (IndexMap.broadcast(output.shape, output.shape), *form.operands))
    return (
        replace(node, inputs=(*node.inputs[: form.core], *extra[:own]), outputs=(between,), form=alone),
        replace(node, inputs=(between, *extra), form=epilogue),
    )
