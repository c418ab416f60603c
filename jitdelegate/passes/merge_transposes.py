"""Merges chains of transposes and reshapes: each reads the tensor at the start of its chain."""

from __future__ import annotations

from dataclasses import replace

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.arrangement import Arranged, arranged, arrangement_of
from jitdelegate.passes.graph_builder import GraphBuilder, reshape


def merge_transposes(graph: Graph) -> Graph:
    """%1 = TRANSPOSE(%0) by Map(); %2 = RESHAPE(%1) by View(); %3 = TRANSPOSE(%2) by Map() -> %3 = RESHAPE(%0) by
    View(), where both transposes cancel out; else one Map that reads %0, with a View before or after it.

    A transpose that only moves axes of size 1 becomes a View, and so does one whose result was computed before. Nodes
    that nothing reads any more stay.
    """
    return _Merging(graph).graph()


class _Merging:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found = arranged(graph)
        self._draft = GraphBuilder(graph)
        self._holders: dict[Arranged, int] = {}
        self._nodes: list[Node] = []

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            is_root = self._found[node.outputs[0]].root == node.outputs[0]
            if is_root or arrangement_of(self._graph, node) is None:
                self._nodes.append(node)
            else:
                self._place(node)
        return self._draft.graph(self._nodes)

    def _place(self, node: Node) -> None:
        """Writes the node's output as an arrangement of its root."""
        source, (output,) = node.inputs[0], node.outputs
        whole = self._found[output]
        is_first = self._found[source].arrangement.is_identity
        if whole.arrangement.is_identity:
            self._view(node, source if is_first else whole.root, output)
        elif whole in self._holders:
            self._view(node, self._holders[whole], output)
        else:
            self._holders[whole] = output
            if is_first:
                self._nodes.append(node)
            else:
                self._transpose(node, whole)

    def _view(self, node: Node, source: int, output: int) -> None:
        """Appends a View; the node itself where it is one of the same source."""
        if not (isinstance(node.form, View) and node.inputs == (source,) and node.outputs == (output,)):
            node = reshape(node, source, output)
        self._nodes.append(node)

    def _transpose(self, node: Node, whole: Arranged) -> None:
        """Appends one Map from the root to the node's output, and Views where a shape does not have its axes."""
        tensors, source, (output,) = self._draft.tensors, whole.root, node.outputs
        target, arrangement = tensors[output].shape, whole.arrangement
        order = arrangement.inverse.order_of(target)
        if order is None:
            own = arrangement.order_of(tensors[source].shape)
            shape = tensors[source].shape if own is not None else arrangement.sizes
            own = arrangement.order if own is None else own
            target, order = tuple(shape[axis] for axis in own), tuple(map(own.index, range(len(own))))
        long = [axis for axis in order if target[axis] != 1]
        sizes = tuple(target[axis] for axis in long)
        if sizes != tuple(size for size in tensors[source].shape if size != 1):
            source = self._draft.add_like(output, sizes)
            self._view(node, whole.root, source)
        written = output if target == tensors[output].shape else self._draft.add_like(output, target)
        form = Map(Arg(0), (_read(tensors[source].shape, long),))
        self._nodes.append(replace(node, op="TRANSPOSE", inputs=(source,), outputs=(written,), attrs={}, form=form))
        if written != output:
            self._view(node, written, output)


def _read(shape: Shape, dims: list[int]) -> IndexMap:
    """Reads an operand whose axes of a size other than 1 lie along `dims` of the output."""
    along = iter(dims)
    return IndexMap.along(*(-1 if size == 1 else next(along) for size in shape))
