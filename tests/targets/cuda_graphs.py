"""Graphs of one node for the CUDA target, and their comparison with the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Form, IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import run

Shape = tuple[int, ...]
TOLERANCES = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of a result of the size of one: some roundings of the stored type."""


def graph_of(
    form: Form, shapes: Sequence[Shape], output: Shape, source: str = "float32", result: str = "float32"
) -> Graph:
    """A node whose operands, of type `source`, are inputs of the graph and whose result is its output."""
    last, shapes = len(shapes), (*shapes, output)
    tensors = tuple(Tensor(f"tensor{k}", shape, source if k < last else result) for k, shape in enumerate(shapes))
    return Graph(tensors, (Node("OP", tuple(range(last)), (last,), form=form),), tuple(range(last)), (last,))


def stored_between(graph: Graph) -> Graph:
    """The graph's node between Maps that double every input and halve the output: its tensors are no ports."""
    (node,), tensors = graph.nodes, list(graph.tensors)
    before = [_scaled(tensors, index, _copied(tensors, index), 2.0) for index in graph.inputs]
    result = _copied(tensors, node.outputs[0])
    doubled = {index: one.outputs[0] for index, one in zip(graph.inputs, before, strict=True)}
    inputs = tuple(doubled.get(index, index) for index in node.inputs)
    nodes = (
        *before,
        Node(node.op, inputs, (result,), form=node.form),
        _scaled(tensors, result, node.outputs[0], 0.5),
    )
    return Graph(tuple(tensors), nodes, graph.inputs, graph.outputs)


def _copied(tensors: list[Tensor], index: int) -> int:
    """A new tensor like that of `index`."""
    tensors.append(tensors[index])
    return len(tensors) - 1


def _scaled(tensors: Sequence[Tensor], source: int, target: int, factor: float) -> Node:
    shape = tensors[source].shape
    return Node("MUL", (source,), (target,), form=Map(RESULT * factor, (IndexMap.broadcast(shape, shape),)))


def compare(
    graph: Graph,
    precision: str = "float32",
    feeds: Sequence[np.ndarray] | None = None,
    tolerance: float | None = None,
    **options: object,
) -> None:
    """The simulated kernels answer as the reference does; random numbers between -2 and 2 are fed by default."""
    random = np.random.default_rng(0)
    feeds = feeds or [random.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    near = TOLERANCES[precision] if tolerance is None else tolerance
    with np.errstate(all="ignore"):
        expected = run_graph(graph, feeds)
    for found, wanted in zip(run(graph, feeds, precision=precision, **options), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=near, atol=near)
