"""GraphBuilder: a graph under construction, for passes that add tensors while existing indices stay valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node, Tensor


class GraphBuilder:
    """The tensors of `graph`; new tensors are appended."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)

    def add(self, tensor: Tensor) -> int:
        """Append a tensor; returns its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_like(self, index: int, shape: Shape) -> int:
        """Append a tensor of this shape, with another one's name and type; returns its index."""
        tensor = self.tensors[index]
        return self.add(Tensor(tensor.name, shape, tensor.dtype))

    def constant(self, name: str, data: np.ndarray) -> int:
        """Append a constant with a read-only copy of `data`; returns its index."""
        return self.add(Tensor(name, data.shape, str(data.dtype)).holding(data))

    def copy(self, index: int, origin: tuple[int, ...] = ()) -> Node:
        """A lowered node that copies a tensor to a new one."""
        tensor = self.tensors[index]
        copied = self.add(replace(tensor, data=None, is_variable=False))
        form = Map(Arg(0), (IndexMap.broadcast(tensor.shape, tensor.shape),))
        return Node("COPY", (index,), (copied,), origin=origin, form=form)

    def graph(self, nodes: Iterable[Node]) -> Graph:
        """The finished graph with these nodes."""
        return replace(self._graph, tensors=tuple(self.tensors), nodes=tuple(nodes))


def reshape(node: Node, source: int, output: int) -> Node:
    """A lowered RESHAPE of a tensor to another one, with the origin of `node`."""
    return replace(node, op="RESHAPE", inputs=(source,), outputs=(output,), attrs={}, form=View())
