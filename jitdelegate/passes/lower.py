"""From TFLite's operators to kernel forms."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ops import OPS, Lowering
from jitdelegate.passes.draft import Draft


def lower(graph: Graph) -> Graph:
    """%2 = RELU(%0) -> %2 = RELU(%0) by Map(max(a0, 0.0)), for every node.

    An operator that takes several kernels becomes as many nodes. Every node has passed its operator's check.
    """
    draft = Draft(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        expansion = _Expansion(draft, node, nodes)
        for index, lowering in zip(node.outputs, OPS[node.op].lower(graph, node), strict=True):
            expansion.write(lowering, index)
    return draft.graph(nodes)


class _Expansion:
    """The kernels of one node, appended to `nodes` in an order in which each finds what it reads."""

    def __init__(self, draft: Draft, node: Node, nodes: list[Node]) -> None:
        self._draft = draft
        self._node = node
        self._nodes = nodes
        self._written: dict[Lowering, int] = {}

    def write(self, lowering: Lowering, output: int) -> None:
        """The kernels that make tensor `output`."""
        target = self._draft.tensors[output]
        if lowering.shape in (None, target.shape):
            self._append(lowering, output)
            return
        between = self._tensor(lowering, target)
        self._append(lowering, between)
        self._nodes.append(Node("RESHAPE", (between,), (output,), origin=self._node.origin, form=View()))

    def _tensor(self, lowering: Lowering, target: Tensor) -> int:
        assert lowering.shape is not None
        return self._draft.add(Tensor(target.name, lowering.shape, lowering.dtype or target.dtype))

    def _append(self, lowering: Lowering, output: int) -> None:
        self._written[lowering] = output
        inputs = tuple(map(self._index, lowering.inputs))
        op = "RESHAPE" if isinstance(lowering.form, View) else self._node.op
        attrs = {} if isinstance(lowering.form, View) else self._node.attrs
        self._nodes.append(Node(op, inputs, (output,), attrs, origin=self._node.origin, form=lowering.form))

    def _index(self, entry: int | Lowering | np.ndarray) -> int:
        """The tensor that holds the operand, once the kernels so far have run."""
        if isinstance(entry, np.ndarray):
            return self._draft.constant(f"{self._node.op} constant", entry)
        if not isinstance(entry, Lowering):
            return entry
        if entry not in self._written:
            self._append(entry, self._tensor(entry, self._draft.tensors[self._node.outputs[0]]))
        return self._written[entry]
