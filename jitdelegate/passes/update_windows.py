"""Finds where the caller's inputs decide which rows of which inputs a graph updates: positions in a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Expr
from jitdelegate.ir.forms import Concat, IndexMap, Map, Shape, View
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.ops import OPS, find
from jitdelegate.passes.lower import lower
from jitdelegate.passes.support import node_reason
from jitdelegate.passes.works_on import works_on

Window = tuple[int, int, int, int]
"""(position of the input that is updated, position of an integer input, element of that one, its largest value so that
the window lies within the updated input)."""
MOST_ELEMENTS = 1 << 14
"""Elements of a tensor on the way to a position."""
MOST_STEPS = 64
"""Nodes on that way."""


@works_on(*(name for name, op in OPS.items() if op.window_start is not None))
def update_windows(graph: Graph) -> tuple[Window, ...]:
    """The windows of a graph that begin at an element of one of its inputs, on whatever way of moves and casts, in the
    order of the nodes; the smallest of those that differ in their last number alone.

    Args:
        graph: before it is lowered; operators that are not compiled may have windows too. Open sizes have none.
    """
    found: dict[tuple[int, int, int], int] = {}
    updates = [(node, start) for node in graph.nodes if (start := _start(node)) is not None]
    trace = _Trace(lower(_before(graph, [start for _, start in updates])))
    positions = {index: position for position, index in enumerate(graph.given)}
    roots: dict[int, int] = {}
    for node, start in updates:
        data, update, (output, *_) = *node.inputs[:2], node.outputs
        root = roots[output] = roots.get(data, data)
        sizes = [graph.tensors[index].shape for index in (data, update)]
        is_open = any(-1 in graph.tensors[index].shape_signature for index in (root, data, update))
        if root not in positions or is_open or {len(size) for size in sizes} != {graph.tensors[start].size}:
            continue
        for origin, whole, part in zip(trace.elements(start), *sizes, strict=True):
            if origin is not None and origin[0] in positions:
                key = positions[root], positions[origin[0]], origin[1]
                found[key] = min(found.get(key, whole - part), whole - part)
    return tuple((*key, max(room, 0)) for key, room in found.items())


def _start(node: Node) -> int | None:
    """The tensor that says where the node's window begins; None where it has none."""
    op = find(node)
    if op is None or op.window_start is None or op.window_start >= len(node.inputs) or ABSENT in node.inputs:
        return None
    return node.inputs[op.window_start]


def _before(graph: Graph, tensors: Sequence[int]) -> Graph:
    """The graph with the nodes alone that lead to these tensors by way of small integers, and are compiled."""
    wanted, nodes = set(tensors), list[Node]()
    for node in reversed(graph.nodes):
        small = [index >= 0 and graph.tensors[index].size <= MOST_ELEMENTS for index in node.inputs]
        if wanted.intersection(node.outputs) and all(small) and node_reason(graph, node) is None:
            nodes.insert(0, node)
            wanted.update(node.inputs)
    return replace(graph, nodes=tuple(nodes))


class _Trace:
    """Where values come from."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[int, np.ndarray] = {}
        self._depth = 0

    def elements(self, index: int) -> np.ndarray:
        """For each element, flattened: the (input, element) whose value it has, else None."""
        if index not in self._known:
            self._known[index] = self._found(index).reshape(self._graph.tensors[index].shape)
        return self._known[index].reshape(-1)

    def _node(self, index: int) -> Node | None:
        position = self._graph.writer[index]
        return None if position is None else self._graph.nodes[position]

    def _shaped(self, index: int) -> np.ndarray:
        return self.elements(index).reshape(self._graph.tensors[index].shape)

    def _found(self, index: int) -> np.ndarray:
        tensor, node = self._graph.tensors[index], self._node(index)
        unknown = np.full(tensor.size, None, object)
        if index in self._graph.inputs and tensor.dtype in ("int32", "int64"):
            for place in range(tensor.size):
                unknown[place] = index, place
            return unknown
        if node is None or self._depth == MOST_STEPS or not all(self._is_small(each) for each in node.inputs):
            return unknown
        self._depth += 1
        found = self._moved(node, tensor.shape)
        self._depth -= 1
        return unknown if found is None else found

    def _moved(self, node: Node, shape: Shape) -> np.ndarray | None:
        """The result of a node that moves or casts elements; None for others."""
        form = node.form
        if isinstance(form, View):
            return self.elements(node.inputs[0])
        if isinstance(form, Concat):
            return np.concatenate([self._shaped(each) for each in node.inputs], axis=form.axis)
        if isinstance(form, Map) and _is_cast(form.epilogue) and len(node.inputs) == 1:
            return _read(self._shaped(node.inputs[0]), form.operands[0], shape)
        if isinstance(form, Gather) and not form.batch:
            return self._gathered(node, form)
        return None

    def _is_small(self, index: int) -> bool:
        return index >= 0 and self._graph.tensors[index].size <= MOST_ELEMENTS

    def _gathered(self, node: Node, form: Gather) -> np.ndarray | None:
        places = self._graph.tensors[node.inputs[1]].data
        data = self._shaped(node.inputs[0])
        if places is None or places.shape[-1] != 1 or places.min() < 0 or places.max() >= data.shape[form.axis]:
            return None
        return np.take(data, places[..., 0], form.axis)


def _is_cast(expr: Expr) -> bool:
    """Whether the expression is Arg(0), maybe as another integer type."""
    while isinstance(expr, Cast) and expr.dtype in ("int32", "int64"):
        (expr,) = expr.parts
    return expr == Arg(0)


def _read(data: np.ndarray, access: IndexMap, shape: Shape) -> np.ndarray:
    """What `access` reads; None outside."""
    grid: Any = np.indices(shape, sparse=True)
    places, is_inside = [], np.ones(shape, bool)
    for dim, start, step, size in zip(access.dims, access.starts, access.steps, data.shape, strict=True):
        place = start if dim < 0 else start + step * grid[dim]
        is_inside &= (place >= 0) & (place < size)
        places.append(np.clip(place, 0, size - 1))
    numbers = np.broadcast_to(np.ravel_multi_index(tuple(places), data.shape) if places else 0, shape)
    found: np.ndarray = data.reshape(-1)[numbers.reshape(-1)].reshape(shape)  # pairs, which numpy would spread
    found[~is_inside] = None
    return found
