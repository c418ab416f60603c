"""Lowers TFLite's operators to kernel forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.ir.dequantize import unload_constants
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import OPS, Lowering
from jitdelegate.passes.graph_builder import GraphBuilder


def lower(graph: Graph) -> Graph:
    """%2 = RELU(%0) -> %2 = RELU(%0) by Map(max(a0, 0.0)), for every node.

    An operator that takes several kernels becomes several nodes. Every node must have passed its operator's check, or
    have a form already.

    Raises:
        CompileError: lowerings fail; has the reasons of all.
    """
    draft = GraphBuilder(graph)
    nodes: list[Node] = []
    faults = Faults()
    for node in graph.nodes:
        if node.form is not None:
            nodes.append(node)
            continue
        with faults.of(node.origin):
            lowerings = OPS[node.op].lower(graph, node)
            expansion = _Expansion(draft, node, lowerings, nodes)
            for index, lowering in zip(node.outputs, lowerings, strict=True):
                if 0 in graph.tensors[index].shape:
                    draft.tensors[index] = graph.tensors[index].holding(np.zeros(graph.tensors[index].shape))
                else:
                    expansion.write(lowering, index)
        unload_constants(graph.tensors[index] for index in node.inputs if index != ABSENT)
    faults.settle()
    return draft.graph(nodes)


class _Expansion:
    """The kernels of one node, appended to `nodes` in topological order."""

    def __init__(self, draft: GraphBuilder, node: Node, lowerings: Sequence[Lowering], nodes: list[Node]) -> None:
        self._draft = draft
        self._node = node
        self._nodes = nodes
        self._written: dict[Lowering, int] = {}
        pairs = zip(lowerings, node.outputs, strict=True)
        self._outputs = {each: output for each, output in pairs if each.shape in (None, draft.tensors[output].shape)}

    def write(self, lowering: Lowering, output: int) -> None:
        """Appends the kernels that compute tensor `output`."""
        source = self._index(lowering)
        if source != output:
            self._nodes.append(Node("RESHAPE", (source,), (output,), origin=self._node.origin, form=View()))

    def _place(self, lowering: Lowering) -> int:
        """The tensor that the lowering writes: an output of the node, or a new tensor."""
        if lowering in self._outputs:
            return self._outputs[lowering]
        assert lowering.shape is not None
        target = self._draft.tensors[self._node.outputs[0]]
        return self._draft.add(Tensor(target.name, lowering.shape, lowering.dtype or target.dtype, is_inner=True))

    def _append(self, lowering: Lowering) -> None:
        """Appends one kernel; the kernels that it reads from are there already."""
        inputs, output = tuple(map(self._index, lowering.inputs)), self._place(lowering)
        op = "RESHAPE" if isinstance(lowering.form, View) else self._node.op
        attrs = {} if isinstance(lowering.form, View) else self._node.attrs
        self._nodes.append(Node(op, inputs, (output,), attrs, origin=self._node.origin, form=lowering.form))
        self._written[lowering] = output

    def _append_all(self, last: Lowering) -> None:
        """Appends a lowering and all that it depends on, without recursion: chains of sums can be thousands long."""
        pending = [last]
        while pending:
            missing = [each for each in pending[-1].inputs if isinstance(each, Lowering) and each not in self._written]
            if missing:
                pending += reversed(missing)
                continue
            lowering = pending.pop()
            if lowering not in self._written:
                self._append(lowering)

    def _index(self, entry: int | Lowering | np.ndarray | Tensor) -> int:
        """The tensor that holds the operand; appends the kernels that compute it."""
        if isinstance(entry, np.ndarray):
            return self._draft.constant(f"{self._node.op} constant", entry)
        if isinstance(entry, Tensor):
            return self._draft.add(entry)
        if not isinstance(entry, Lowering):
            return entry
        if entry not in self._written:
            self._append_all(entry)
        return self._written[entry]
