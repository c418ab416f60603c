"""Why a model cannot be compiled as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.graph import Graph, Model, Node
from jitdelegate.ops import OPS

WHOLE_MODEL = -1
"""Stands for the operator's position in reasons that concern the model."""


def unsupported(model: Model, graph: Graph) -> list[tuple[int, str]]:
    """Every reason why the model is not compiled, in order; none if it can be.

    Args:
        model: as it was read.
        graph: its main subgraph after `passes.FOLD`; what folds away needs no kernel.
    Returns:
        (position of the .tflite operator in the main subgraph or WHOLE_MODEL, one sentence) pairs.
    """
    reasons = [(WHOLE_MODEL, reason) for reason in _model_reasons(model, graph)]
    for node in graph.nodes:
        reason = node_reason(graph, node)
        if reason is not None:
            reasons += [(position, reason) for position in node.origin]
    return reasons


def node_reason(graph: Graph, node: Node) -> str | None:
    """Why one operator is not compiled; None if it can be."""
    if node.custom:
        return f"The custom operator {node.op} is not supported."
    op = OPS.get(node.op)
    return op.check(graph, node) if op else f"{node.op} is not supported."


def _model_reasons(model: Model, graph: Graph) -> Iterator[str]:
    if len({signature.graph for signature in model.signatures} | {0}) > 1:
        yield "A signature enters another subgraph than the first."
    if not graph.outputs:
        yield "The model has no outputs."
    for index in dict.fromkeys((*graph.inputs, *graph.outputs)):
        tensor = graph.tensors[index]
        if tensor.dtype != "float32":
            yield f"'{tensor.name}' is {tensor.dtype}; inputs and outputs have to be float32."
        if tensor.is_variable:
            yield f"'{tensor.name}' is a variable, which keeps its value from run to run."
    for index in dict.fromkeys(graph.outputs):
        if graph.writer[index] is None:
            kind = "an input" if index in graph.inputs else "a constant"
            yield f"The output '{graph.tensors[index].name}' is {kind}."
