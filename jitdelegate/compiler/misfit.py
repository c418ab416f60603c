"""Input shapes that a model cannot run with: found by inferring shapes, confirmed by LiteRT, before any compiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitdelegate import passes
from jitdelegate.errors import CompileError, DeviceError, JitDelegateError
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node
from jitdelegate.ops.call import Shape
from jitdelegate.passes.infer_shapes import unsure_tensors
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import node_reason
from jitdelegate.runtime.cache.key import Key
from jitdelegate.runtime.fallback import Fallback
from jitdelegate.tflite.cut import Cutter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def misfit(content: ReadableBuffer, model: Model, key: Key) -> str:
    """Why the subgraph cannot run with inputs of the key's shapes, as one sentence: which input, and at which operator.
    "" if it can, or if LiteRT may know better.

    Args:
        content: the .tflite file.
        model: the content, read.
    """
    graph = _inferred(model, key, key.shapes)
    node = _first_refused(graph)
    if node is None or len(node.origin) != 1:
        return ""
    original = model.graphs[key.subgraph]
    (position,) = node.origin
    if _refused(_inferred(_up_to(model, key.subgraph, position), key, ()), node.origin):
        return ""
    if not _is_refused_by_litert(content, key.subgraph, original, graph, position):
        return ""
    reason = (node_reason(graph, node) or "").rstrip(".")
    node = original.nodes[position]
    return f"{_changed(original, graph, node)}: operator {position}, {node.op}: {reason.removeprefix(f'{node.op}: ')}"


def _inferred(model: Model, key: Key, shapes: Sequence[Shape]) -> Graph:
    """The subgraph with the shapes that follow from those of its inputs; () are the file's."""
    entered = specialize_subgraph(model, key.subgraph, shapes, hosted=key.hosted)
    return passes.run(entered.graphs[key.subgraph], passes=passes.INFER)


def _up_to(model: Model, number: int, position: int) -> Model:
    """The model whose subgraph `number` ends with an operator, on which those after it have no influence."""
    graphs, nodes = list(model.graphs), model.graphs[number].nodes[: position + 1]
    graphs[number] = replace(graphs[number], nodes=nodes, outputs=nodes[-1].outputs)
    return replace(model, graphs=tuple(graphs))


def _first_refused(graph: Graph) -> Node | None:
    """The first node that cannot be compiled though the shapes of its operands are known."""
    unsure = unsure_tensors(graph)
    known = (node for node in graph.nodes if unsure.isdisjoint(node.inputs))
    return next((node for node in known if node_reason(graph, node) is not None), None)


def _refused(graph: Graph, origin: Sequence[int]) -> bool:
    return any(node.origin == origin and node_reason(graph, node) is not None for node in graph.nodes)


def _is_refused_by_litert(content: ReadableBuffer, number: int, original: Graph, graph: Graph, position: int) -> bool:
    """Whether LiteRT cannot prepare the operator of the file alone, for operands of the graph's shapes."""
    node = original.nodes[position]
    known = replace(original, tensors=graph.tensors[: len(original.tensors)])
    inputs = [index for index in dict.fromkeys(node.inputs) if index != ABSENT and _is_computed(known, index)]
    try:
        alone = Fallback(Cutter(content).partition(known, number, [node], inputs, node.outputs))
    except (CompileError, JitDelegateError):
        return False  # it needs more than itself, or LiteRT lacks it
    try:
        alone.allocate()
    except DeviceError:
        return True
    return False


def _is_computed(graph: Graph, index: int) -> bool:
    return not (graph.tensors[index].is_constant or graph.tensors[index].is_variable)


def _changed(original: Graph, graph: Graph, node: Node) -> str:
    """The first input that an operator depends on and whose shape is not the file's."""
    pending, seen = [*node.inputs], set[int]()
    while pending:
        index = pending.pop()
        if index != ABSENT and index not in seen:
            seen.add(index)
            writer = original.writer[index]
            pending += original.nodes[writer].inputs if writer is not None else ()
    shapes = {index: (graph.tensors[index].shape, original.tensors[index].shape) for index in original.inputs}
    other = [index for index, (found, expected) in shapes.items() if found != expected]
    first = next((index for index in other if index in seen), other[0])
    found, expected = (list(shape) for shape in shapes[first])
    further = f" ({len(other) - 1} more differ)" if len(other) > 1 else ""
    return f"'{original.tensors[first].title}' of {found} does not fit, the model has {expected}{further}"
