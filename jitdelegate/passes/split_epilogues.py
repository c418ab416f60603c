"""Splits epilogues that have operands which a target's kernels cannot read along the output into separate Maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import IndexMap, Map, Shape
from jitdelegate.ir.graph import Graph, Node, form_of

Follows = Callable[[IndexMap, Shape, Shape], object]
"""(index map, operand's shape, output's shape) -> a true value if kernels can read the operand along the output."""


def split_epilogues(graph: Graph, follows: Follows) -> Graph:
    """%2 = CONV_2D(%0, ..., %1) by Contract(epilogue=add(a0, a1)) ->
    %3 = CONV_2D(%0, ...) by Contract(); %2 = CONV_2D(%3, %1) by Map(add(a0, a1)), if kernels cannot read %1 along %2.
    """
    tensors, nodes = list(graph.tensors), list[Node]()
    for node in graph.nodes:
        form, output = form_of(node), graph.tensors[node.outputs[0]]
        if not form.has_result or _all_followed(graph, node, follows):
            nodes.append(node)
            continue
        # The epilogue may convert the form's own result to another type.
        name, dtype = f"{output.name} before its epilogue", form.own_type(graph.tensors[node.inputs[0]].dtype)
        between = len(tensors)
        tensors.append(replace(output, name=name, dtype=dtype))
        core, extra = node.inputs[: form.core], node.inputs[form.core :]
        alone = replace(form, epilogue=RESULT, operands=())
        epilogue = Map(form.epilogue, (IndexMap.broadcast(output.shape, output.shape), *form.operands))
        nodes += (
            replace(node, inputs=core, outputs=(between,), form=alone),
            replace(node, inputs=(between, *extra), form=epilogue),
        )
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _all_followed(graph: Graph, node: Node, follows: Follows) -> bool:
    form, output = form_of(node), graph.tensors[node.outputs[0]].shape
    return all(
        follows(index_map, graph.tensors[index].shape, output)
        for index_map, index in zip(form.operands, node.inputs[form.core :], strict=False)
    )
