"""Graphs of concatenations and slices, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.ir.forms import Concat, Form, IndexMap, Map, Shape, Softmax
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.reference.evaluate import run_graph


class Draft:
    """A graph that grows node by node; its first tensors are inputs."""

    def __init__(self, *inputs: Shape) -> None:
        self.tensors = [Tensor(f"tensor{number}", shape, "float32") for number, shape in enumerate(inputs)]
        self.inputs = tuple(range(len(inputs)))
        self.nodes: list[Node] = []

    def node(self, form: Form, inputs: Sequence[int], shape: Shape, dtype: str = "float32") -> int:
        self.tensors.append(Tensor(f"tensor{len(self.tensors)}", shape, dtype))
        self.nodes.append(Node("OP", tuple(inputs), (len(self.tensors) - 1,), form=form))
        return len(self.tensors) - 1

    def made(self, index: int) -> int:
        """The softmax of a tensor: a kernel's result."""
        return self.node(Softmax(), [index], self.tensors[index].shape)

    def map(self, expr: Expr, *inputs: int) -> int:
        """Elementwise work on tensors, which broadcast to the first one's shape; the result has its type."""
        shapes, dtype = [self.tensors[index].shape for index in inputs], self.tensors[inputs[0]].dtype
        form = Map(expr, tuple(IndexMap.broadcast(each, shapes[0]) for each in shapes))
        return self.node(form, inputs, shapes[0], dtype)

    def constant(self, data: np.ndarray) -> int:
        self.tensors.append(Tensor(f"tensor{len(self.tensors)}", data.shape, str(data.dtype), data))
        return len(self.tensors) - 1

    def slice(self, index: int, starts: Shape, shape: Shape, steps: Shape = ()) -> int:
        access = IndexMap(tuple(range(len(shape))), starts, steps or (1,) * len(shape))
        return self.node(Map(Arg(0), (access,)), [index], shape)

    def concat(self, axis: int, *inputs: int) -> int:
        shape = list(self.tensors[inputs[0]].shape)
        shape[axis] = sum(self.tensors[index].shape[axis] for index in inputs)
        return self.node(Concat(axis=axis), inputs, tuple(shape))

    def graph(self, *outputs: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.nodes), self.inputs, outputs)

    def operands_after(self, change: Callable[[Graph], Graph], *outputs: int) -> list[tuple[int, ...]]:
        """The operands of all nodes after a pass, which changes no result."""
        graph = self.graph(*outputs)
        found = change(graph)
        feeds = [np.random.default_rng(index).normal(size=graph.tensors[index].shape) for index in graph.inputs]
        feeds = [feed.astype(np.float32) for feed in feeds]
        for after, before in zip(run_graph(found, feeds), run_graph(graph, feeds), strict=True):
            np.testing.assert_array_equal(after, before)
        return [node.inputs for node in found.nodes]
