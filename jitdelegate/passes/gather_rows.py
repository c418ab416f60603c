"""Finds chains of slices, concatenations and transposes that move whole rows, and makes each of them one Gather."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.forms import Concat, IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.ir.index_forms import Gather
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.works_on import works_on

FEWEST_MOVES = 2
"""Concatenations and transposes that one Gather has to save."""
SHORTEST_ROW = 8
"""Elements of a row below which an index costs as much as the row."""


@works_on(Concat)
def gather_rows(graph: Graph) -> Graph:
    """%1, %2 = SLICE(%0); %3 = CONCATENATION(%2, %1) by Concat(); ... %9 = TRANSPOSE(%8) by Map() ->
    %9 = TRANSPOSE(%0, constant) by Gather(), if two or more kernels are saved, and all move rows of the last axis only.

    So a shifted window of attention is cut out of its image at once.
    """
    return remove_dead(_Gathering(graph).graph())


@dataclass(frozen=True, eq=False)
class _Rows:
    """A tensor whose rows are rows of another one: row i is row number order.flat[i] of `root`.

    moves: positions of the nodes between them, except Views.
    """

    root: int
    order: np.ndarray
    moves: frozenset[int]


class _Gathering:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._rows: dict[int, _Rows] = {}
        for position, node in enumerate(graph.nodes):
            found = self._moved(position, node)
            if found is not None:
                self._rows[node.outputs[0]] = found

    def _shape(self, index: int) -> Shape:
        return self._graph.tensors[index].shape

    def _of(self, index: int) -> _Rows:
        """The rows of a tensor; its own where it moves none."""
        found = self._rows.get(index)
        if found is None:
            leading = self._shape(index)[:-1]
            found = _Rows(index, np.arange(prod(leading), dtype=np.int32).reshape(leading), frozenset())
        return found

    def _moved(self, position: int, node: Node) -> _Rows | None:
        """The rows of a node's result; None where it does more than to move rows."""
        form, shape = form_of(node), self._shape(node.outputs[0])
        if not form.moves_only or not shape or any(self._shape(index)[-1:] != shape[-1:] for index in node.inputs):
            return None
        first, *others = sources = list(map(self._of, node.inputs))
        if isinstance(form, View):
            is_same = first.order.size == prod(shape[:-1])  # pairs of complex numbers are twice as many rows of floats
            return replace(first, order=first.order.reshape(shape[:-1])) if is_same else None
        if isinstance(form, Concat):
            if form.axis == len(shape) - 1 or any(other.root != first.root for other in others):
                return None
            order = np.concatenate([source.order for source in sources], axis=form.axis)
        elif isinstance(form, Map) and _keeps_rows(form.operands[0], shape):
            order = _read(first.order, form.operands[0], shape[:-1])
        else:
            return None
        return _Rows(first.root, order, frozenset({position}).union(*(source.moves for source in sources)))

    def graph(self) -> Graph:
        nodes: list[Node] = []
        for node in self._graph.nodes:
            found = self._rows.get(node.outputs[0])
            if found is not None and not isinstance(node.form, View) and self._is_saving(node, found):
                nodes += self._gathered(node, found)
            else:
                nodes.append(node)
        return self._draft.graph(nodes)

    def _is_saving(self, node: Node, found: _Rows) -> bool:
        """Whether the node ends a chain that is worth a Gather: nothing moves its rows further, nothing else reads what
        lies between, and kernels are saved; a slice may be read in place, so it does not count."""
        graph = self._graph
        if self._shape(node.outputs[0])[-1] < SHORTEST_ROW or self._moves_on(node.outputs[0]):
            return False
        kernels = [position for position in found.moves if not self._is_slice(graph.nodes[position])]
        has_concat = any(isinstance(graph.nodes[position].form, Concat) for position in kernels)
        results = {graph.nodes[position].outputs[0] for position in found.moves} - {node.outputs[0]}
        return has_concat and len(kernels) >= FEWEST_MOVES and self._is_private(results)

    def _moves_on(self, index: int) -> bool:
        """Whether the only reader of a tensor, or of a View of it, moves its rows too."""
        reader = self._graph.only_reader(index)
        if reader is None:
            return False
        (output, *_) = self._graph.nodes[reader].outputs
        is_view = isinstance(self._graph.nodes[reader].form, View)
        return output in self._rows and (self._moves_on(output) if is_view else True)

    def _is_private(self, results: set[int]) -> bool:
        """Whether only moves read the tensors."""
        if not results.isdisjoint(self._graph.outputs):
            return False
        readers = (self._graph.nodes[position] for index in results for position in self._graph.readers[index])
        return all(reader.outputs[0] in self._rows for reader in readers)

    def _is_slice(self, node: Node) -> bool:
        return isinstance(node.form, Map) and self._graph.tensors[node.outputs[0]].size < max(
            self._graph.tensors[index].size for index in node.inputs
        )

    def _gathered(self, node: Node, found: _Rows) -> list[Node]:
        """The Gather of the root's rows, between Views."""
        draft, (output,) = self._draft, node.outputs
        size = self._shape(output)[-1]
        data = draft.add_like(found.root, (prod(self._shape(found.root)[:-1]), size))
        places = draft.constant(f"rows of {draft.tensors[output].name}", found.order.reshape(-1, 1))
        rows = draft.add_like(output, (found.order.size, size))
        origin = tuple(sorted({each for move in found.moves for each in self._graph.nodes[move].origin}))
        gather = replace(node, inputs=(data, places), outputs=(rows,), origin=origin, form=Gather())
        return [reshape(node, found.root, data), gather, reshape(node, rows, output)]


def _keeps_rows(access: IndexMap, shape: Shape) -> bool:
    """Whether whole rows of the operand are rows of the result."""
    last = access.dims[-1:] == (len(shape) - 1,) and access.starts[-1] == 0 and access.steps[-1] == 1
    return last and access.fill is None and len(shape) - 1 not in access.dims[:-1]


def _read(order: np.ndarray, access: IndexMap, leading: Shape) -> np.ndarray:
    """The numbers of the operand's rows for the rows of the result."""
    grid = np.indices(leading, sparse=True)
    leads = zip(access.dims[:-1], access.starts[:-1], access.steps[:-1], strict=True)
    places = tuple(start if dim < 0 else start + step * grid[dim] for dim, start, step in leads)
    return np.ascontiguousarray(np.broadcast_to(order[places], leading))
