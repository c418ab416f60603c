"""Reasons why a model cannot be compiled as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.faults import reason_of
from jitdelegate.ir.graph import Graph, Model, Node
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.ops.registry import ANY
from jitdelegate.passes.functional_state import RESOURCE_OPS, resource_problem
from jitdelegate.passes.works_on import applies
from jitdelegate.runtime.buffers import ELEMENTS, ENCODED

PORTS = tuple(dtype for dtype in (*ANY, "uint64") if dtype in ELEMENTS or dtype in ENCODED)
"""Element types of inputs and outputs that both kernels and the runtime support."""

BRANCHES = ("IF", "STABLEHLO_CASE")
"""Operators that choose a subgraph by their first input."""
WHOLE_MODEL = -1
"""Takes the operator's position in reasons that concern the whole model."""


def unsupported(model: Model, graph: Graph, number: int = 0) -> list[tuple[int, str]]:
    """Every reason why the model is not compiled as a whole, in order; none if it can be, whatever its ports are.

    Args:
        model: the model as it was read.
        graph: subgraph `number` after `passes.FOLD`; nodes that were folded need no kernel.
    Returns:
        (position of the .tflite operator in the subgraph or WHOLE_MODEL, one sentence) pairs.
    """
    reasons = [(WHOLE_MODEL, reason) for reason in _model_reasons(graph)]
    resources = resource_problem(model, number) if applies(resource_problem, graph) else None
    for node in graph.nodes:
        reason = resources if resources and node.op in RESOURCE_OPS else node_reason(graph, node)
        if reason is not None:
            reasons += [(position, reason) for position in node.origin]
    return reasons


def node_reason(graph: Graph, node: Node) -> str | None:
    """Why one operator is not compiled; None if it can be."""
    op, call = find(node), Call(graph, node)
    if op is None and not node.custom and node.op in BRANCHES and call.given(0) and not call.tensor(0).is_constant:
        return f"{node.op}: which of its subgraphs runs is known only as the model runs."
    if op is None:
        return node.trouble or f"{'The custom operator ' if node.custom else ''}{node.op} is not supported."
    try:
        return op.check(graph, node)
    except Exception as error:  # noqa: BLE001 - a fault of ours
        return reason_of(error)


def port_problem(graph: Graph) -> str | None:
    """Why kernels cannot read and write the caller's tensors; None if they can."""
    for index in dict.fromkeys((*graph.inputs, *graph.outputs)):
        tensor = graph.tensors[index]
        if tensor.dtype not in PORTS:
            expected = f"{', '.join(PORTS[:-1])} or {PORTS[-1]}"
            return f"'{tensor.title}' is {tensor.dtype}; inputs and outputs have to be {expected}."
    return None


def _model_reasons(graph: Graph) -> Iterator[str]:
    if not graph.outputs:
        yield "The model has no outputs."
    for index in dict.fromkeys((*graph.inputs, *graph.outputs)):
        if graph.tensors[index].is_variable:
            yield f"'{graph.tensors[index].title}' is a variable, which keeps its value from run to run."
    for state in graph.states:
        before, after = (graph.tensors[index] for index in (state.before, state.after))
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            yield (
                f"The variable '{before.title}' is {before.dtype}{list(before.shape)}, "
                f"but a run leaves {after.dtype}{list(after.shape)} in it."
            )
