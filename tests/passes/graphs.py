"""Graphs built by hand, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.passes import lower
from jitdelegate.targets.reference.evaluate import run_graph

UNIT = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


class Builder:
    """A graph under construction; every method answers a tensor's index."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._inputs: list[int] = []
        self._random = np.random.default_rng(0)

    def input(self, *shape: int, dtype: str = "float32") -> int:
        self._inputs.append(self._add(Tensor("input", shape, dtype)))
        return self._inputs[-1]

    def shape(self, index: int) -> tuple[int, ...]:
        return self._tensors[index].shape

    def constant(self, data: Any, dtype: str = "float32") -> int:
        array = np.array(data, dtype)
        return self._add(Tensor("constant", array.shape, dtype, array))

    def weights(self, *shape: int) -> int:
        return self.constant(self._random.uniform(-1, 1, shape))

    def op(self, op: str, inputs: list[int], shape: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> int:
        output = self._add(Tensor(op, shape, dtype))
        self._nodes.append(Node(op, tuple(inputs), (output,), attrs, origin=(len(self._nodes),)))
        return output

    def convolution(self, data: int, size: int = 6, channels: int = 4, **attrs: Any) -> int:
        """A 3x3 convolution of an image of `channels` channels to as many."""
        operands = [data, self.weights(channels, 3, 3, channels), self.weights(channels)]
        return self.op("CONV_2D", operands, (1, size, size, channels), **UNIT | attrs)

    def finish(self, *outputs: int) -> Graph:
        return Graph(tuple(self._tensors), tuple(self._nodes), tuple(self._inputs), outputs)

    def _add(self, tensor: Tensor) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1


def ops(graph: Graph) -> list[str]:
    """The names of the nodes, in order."""
    return [node.op for node in graph.nodes]


def assert_same(before: Graph, after: Graph) -> None:
    """Both graphs, lowered where they are not, answer the same for the same random inputs."""
    random = np.random.default_rng(1)
    feeds = [random.uniform(-2, 2, before.tensors[i].shape).astype(np.float32) for i in before.inputs]
    for a, b in zip(run_graph(lowered(before), feeds), run_graph(lowered(after), feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def lowered(graph: Graph) -> Graph:
    return graph if all(node.form for node in graph.nodes) else lower(graph)
