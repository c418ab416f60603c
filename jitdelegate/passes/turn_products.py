"""Computes 1x1 convolutions in the order of axes that their data has, where transposes around them then cancel out."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import Contract, IndexMap, Map, MatMul, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ops.shape import permuted
from jitdelegate.passes.arrangement import Arrangement, arranged, moved_bytes
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.push_transposes import push_transposes
from jitdelegate.passes.works_on import moves, works_on

MOST_CHANNELS = 64
"""Of a convolution whose weights may be a matrix beside others: heads of attention. Kernels for more are faster with
packed weights."""
TURNED = (1, 0), (0, 2, 1)
"""Orders of arrangements that exchange the last two axes."""


@works_on(moves)
@works_on(Contract)
def turn_products(graph: Graph) -> Graph:
    """%1 = TRANSPOSE(%0) by Map(); %2 = CONV_2D(%1, weights) by Contract(); %3 = TRANSPOSE(%2) by Map() ->
    %3 = CONV_2D(weights, %0) by MatMul(), if fewer bytes are transposed then, with all that lies between.

    So it is with convolutions over the heads of attention, before and after its softmax.
    """
    turned = _Turning(graph).graph()
    if turned is graph:
        return graph
    turned = push_transposes(turned)
    return turned if moved_bytes(turned) < moved_bytes(graph) else graph


class _Turning:
    """Turns all convolutions of transposed data, and those whose result is transposed back."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._found = arranged(graph)
        self._nodes: list[Node] = []
        self._batches: dict[tuple[int, int], int] = {}
        for one in self._found:
            arrangement = one.arrangement
            if arrangement.order in TURNED:
                self._batches[one.root, arrangement.sizes[-1]] = prod(arrangement.sizes[:-2])

    def graph(self) -> Graph:
        """The graph with all of them turned; the graph itself where there are none."""
        batches = [self._batch(node) for node in self._graph.nodes]
        if all(batch is None for batch in batches):
            return self._graph
        for node, batch in zip(self._graph.nodes, batches, strict=True):
            if batch is None:
                self._nodes.append(node)
            else:
                self._turn(node, batch)
        return self._draft.graph(self._nodes)

    def _batch(self, node: Node) -> int | None:
        """The number of matrices [channels, pixels] that a 1x1 convolution reads or whose like is read from its result,
        transposed; None for other nodes."""
        form, tensors = node.form, self._graph.tensors
        if not isinstance(form, Contract) or not form.is_pointwise or form.accumulator != "float32" or form.operands:
            return None
        weights = tensors[node.inputs[1]]
        if not weights.is_constant or form.epilogue != RESULT or max(weights.shape) > MOST_CHANNELS:
            return None
        found = self._found[node.inputs[0]].arrangement
        if _exchanges(found, weights.shape[-1]):
            return prod(found.sizes[:-2])
        return self._batches.get((node.outputs[0], weights.shape[0]))

    def _turn(self, node: Node, batch: int) -> None:
        draft, (output,), (outputs, *_, channels) = self._draft, node.outputs, self._draft.tensors[node.inputs[1]].shape
        pixels = draft.tensors[output].size // (batch * outputs)
        data = self._found[node.inputs[0]]
        if _exchanges(data.arrangement, channels):
            source = self._seen(node, data.root, (batch, channels, pixels))
        else:
            source = draft.add_like(node.inputs[0], (batch, channels, pixels))
            self._transpose(node, self._seen(node, node.inputs[0], (batch, pixels, channels)), source)
        weights = self._constant(node.inputs[1], (outputs, channels))
        form, inputs, shape = MatMul(), [weights, source], (batch, outputs, pixels)
        if node.inputs[2] != ABSENT:
            inputs.append(self._constant(node.inputs[2], (1, outputs, 1), batch))
            form = MatMul(RESULT + Arg(1), (IndexMap.broadcast((batch, outputs, 1), shape),))
        product, back = draft.add_like(output, shape), draft.add_like(output, (batch, pixels, outputs))
        self._nodes.append(replace(node, inputs=tuple(inputs), outputs=(product,), form=form))
        self._transpose(node, product, back)
        self._nodes.append(reshape(node, back, output))

    def _transpose(self, node: Node, source: int, target: int) -> None:
        """Exchanges the last two of three axes."""
        form = Map(Arg(0), (permuted((0, 2, 1)),))
        self._nodes.append(replace(node, op="TRANSPOSE", inputs=(source,), outputs=(target,), attrs={}, form=form))

    def _seen(self, node: Node, index: int, shape: Shape) -> int:
        seen = self._draft.add_like(index, shape)
        self._nodes.append(reshape(node, index, seen))
        return seen

    def _constant(self, index: int, shape: Shape, repeated: int = 1) -> int:
        """A constant in another shape, repeated along the first axis."""
        tensor = self._draft.tensors[index]
        assert tensor.data is not None
        data = np.repeat(tensor.data.reshape(shape), repeated, axis=0)
        return self._draft.constant(tensor.name, data)


def _exchanges(found: Arrangement, channels: int) -> bool:
    """Whether it brings so many channels from the second last axis to the last one."""
    return found.order in TURNED and found.sizes[-2] == channels
