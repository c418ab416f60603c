"""Moves transposes through operators that compute each element, slice, join or reduce, to where they cancel out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Concat, Form, IndexMap, Map, MatMul, Reduce, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ops.registry import MAX_RANK
from jitdelegate.ops.shape import permuted
from jitdelegate.passes.arrangement import (
    SAME,
    Arranged,
    Arrangement,
    Order,
    arranged,
    common_sizes,
    inverse,
    moved_bytes,
    nbytes,
)
from jitdelegate.passes.fold_transposes import product_side
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.merge_transposes import merge_transposes
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.works_on import moves, works_on

CALLER = -1
"""Stands for the position of a reader that is the caller."""

MOST_ORDERS = 16
"""Most orders of axes that are tried for a region: six axes have hundreds, and each try visits the whole region."""

MOST_ROUNDS = 16
"""Most times that all regions are searched. Networks need three; a chain of reshapes may let one region gain at a
time."""


@works_on(moves)
def push_transposes(graph: Graph) -> Graph:
    """%1 = TRANSPOSE(%0) by Map(); %2 = RELU(%1); %3 = TRANSPOSE(%2) by Map(), its inverse -> %3 = RELU(%0).

    A region is a set of neighbouring nodes that compute the same whatever the order of their axes: elementwise work,
    slices, paddings, concatenations, reductions. Each is computed in the order of axes in which its borders have the
    fewest bytes to transpose; in the file's own order unless another one has fewer. Constants are transposed here.
    """
    graph = remove_dead(merge_transposes(graph))
    for _ in range(MOST_ROUNDS):
        found = _Regions(graph).reordered() if moved_bytes(graph) else None
        if found is None:
            break
        graph = remove_dead(merge_transposes(found))
    return graph


@dataclass(frozen=True, eq=False, slots=True)
class _Read:
    """A tensor as nodes or the caller read it; one object for all that read it so.

    Attributes:
        shape: for an operand whose axes a region may permute, its shape with as many axes as the node has; else None.
        matrices: the operand's shape where a product of matrices reads it, which reads some transposes in place.
    """

    arrangement: Arrangement
    shape: Shape | None = None
    matrices: Shape | None = None


_Reader = tuple[_Read, bool, Order | None]
"""How a tensor is read, whether a region does, and the order of axes that was chosen for another reader."""


class _Regions:
    """The regions of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found = arranged(graph)
        self._shapes = [self._operands(node) for node in graph.nodes]
        self._orders: dict[int | None, Order] = {}
        self._known: dict[tuple[Arrangement, Shape | None, Shape | None], _Read] = {}
        self._reads: dict[int, list[tuple[int, _Read]]] = {}
        for position, node in enumerate(graph.nodes):
            if self._is_root(node):
                shapes = self._shapes[position] or (None,) * len(node.inputs)
                own = node.form.core if isinstance(node.form, MatMul) else 0
                for number, (index, shape) in enumerate(zip(node.inputs, shapes, strict=True)):
                    matrices = graph.tensors[index].shape if number < own else None
                    self._add_read(position, index, shape, matrices)
        for index in graph.outputs:
            self._add_read(CALLER, index, None)

    def _is_root(self, node: Node) -> bool:
        return self._found[node.outputs[0]].root == node.outputs[0]

    def _operands(self, node: Node) -> tuple[Shape | None, ...] | None:
        """The shapes of the operands with all axes of a node that any region may include; None for other nodes."""
        shapes = [() if index == ABSENT else self._graph.tensors[index].shape for index in node.inputs]
        if not self._is_root(node) or not shapes:
            return None
        if isinstance(node.form, Map):
            rank = len(self._graph.tensors[node.outputs[0]].shape)
            aligned = (
                len(access.dims) <= rank
                and all(dim in (-1, rank - len(access.dims) + axis) for axis, dim in enumerate(access.dims))
                for access in node.form.operands
            )
            return tuple((1,) * (rank - len(shape)) + shape for shape in shapes) if all(aligned) else None
        if isinstance(node.form, Concat) or (isinstance(node.form, Reduce) and len(shapes) == 1):
            return tuple(shapes)
        return None

    def _add_read(self, position: int, index: int, shape: Shape | None, matrices: Shape | None = None) -> None:
        if index != ABSENT:
            source = self._found[index]
            key = source.arrangement, shape, matrices
            self._reads.setdefault(source.root, []).append((position, self._known.setdefault(key, _Read(*key))))

    # regions

    def reordered(self) -> Graph | None:
        """The graph with the regions that gain in their new order of axes, one after the other; None where no region
        gains."""
        for region in self._regions():
            best = self._best(region)
            if best is not None:
                self._orders |= dict.fromkeys(region, best)
        return _Reordering(self._graph, self._shapes, self._orders).graph() if self._orders else None

    def _regions(self) -> list[set[int]]:
        """Sets of positions of nodes that read each other's results with the same axes, or share a transpose."""
        region_of: dict[int, set[int]] = {}
        sharing: dict[tuple[Arranged, Shape | None], int] = {}
        for position, shapes in enumerate(self._shapes):
            if shapes is None:
                continue
            own = region_of[position] = {position}
            for index, shape in zip(self._graph.nodes[position].inputs, shapes, strict=True):
                source, other = self._found[index], self._neighbour(index, shape)
                if not source.arrangement.is_identity:
                    other = sharing.setdefault((source, shape), position)
                if other is not None and region_of[other] is not own:
                    small, own = sorted((own, region_of[other]), key=len)
                    own |= small
                    region_of |= dict.fromkeys(small, own)
        return list({id(region): region for region in region_of.values()}.values())

    def _neighbour(self, index: int, shape: Shape | None) -> int | None:
        """The position of the node whose result is read with its own axes, if a region may include it."""
        source = self._found[index]
        writer = self._graph.writer[source.root]
        if writer is None or self._shapes[writer] is None or not source.arrangement.is_identity:
            return None
        return writer if _result_shape(self._graph, self._graph.nodes[writer]) == shape else None

    def _roots(self, region: set[int]) -> set[int]:
        """The tensors that the region reads and writes."""
        nodes = [self._graph.nodes[position] for position in region]
        return {self._found[index].root for node in nodes for index in (*node.inputs, *node.outputs)}

    # the gain

    def _best(self, region: set[int]) -> Order | None:
        """The order of axes with the fewest bytes to transpose at the region's borders; None for the file's order."""
        readers = {root: self._readers(region, root) for root in self._roots(region)}
        saved = Counter[Order]()
        for order, nbytes_saved in self._likely_orders(region, readers):
            saved[order] += nbytes_saved
        likely = (order for order, _ in saved.most_common(MOST_ORDERS))
        costs = {order: cost for order in likely if (cost := self._cost(region, readers, order)) is not None}
        best = min(costs, key=costs.__getitem__, default=None)
        return best if best is not None and costs[best] < (self._cost(region, readers, None) or 0) else None

    def _readers(self, region: set[int], root: int) -> Counter[_Reader]:
        """How often a tensor is read in each way. A mask has readers in every layer, most of which read it alike."""
        return Counter(
            (read, True, None) if position in region else (read, False, self._orders.get(position))
            for position, read in self._reads[root]
        )

    def _likely_orders(self, region: set[int], readers: Mapping[int, Counter[_Reader]]) -> Iterator[tuple[Order, int]]:
        """(order of axes in which transposes at the border are not needed, bytes that they write) pairs."""
        for root, found in readers.items():
            writer = self._graph.writer[root]
            for reader, count in found.items():
                arrangement, order = self._way(region, root, reader, None), None
                if arrangement is None or arrangement.is_identity:
                    continue
                read, is_inside, _ = reader
                if writer in region:
                    order = arrangement.order_of(_result_shape(self._graph, self._graph.nodes[writer]))
                elif is_inside and read.shape is not None:
                    order = arrangement.inverse.order_of(read.shape)
                if order is not None:
                    yield order, nbytes(self._graph, root) * count

    def _cost(self, region: set[int], readers: Mapping[int, Counter[_Reader]], order: Order | None) -> int | None:
        """Bytes to transpose of all that the region reads and writes, where its axes have this order; None where it
        cannot have it. A constant counts where it would be kept in several orders, and what products read in place
        does not count."""
        total = 0
        for root, those in readers.items():
            found = [(self._way(region, root, reader, order), reader[0].matrices) for reader in those]
            ways = {way for way, shape in found if way is None or shape is None or not _is_read_in_place(way, shape)}
            if None in ways:
                return None
            ways |= {SAME} if not ways else set()
            kept = min(1, len(ways)) if self._graph.tensors[root].is_constant else SAME in ways
            total += nbytes(self._graph, root) * (len(ways) - kept)
        return total

    def _way(self, region: set[int], root: int, reader: _Reader, order: Order | None) -> Arrangement | None:
        """How the tensor is arranged for one reader, where the region's axes have this order, and those of regions
        before it the order that was chosen."""
        read, is_inside, chosen = reader
        found: Arrangement | None = read.arrangement
        writer = self._graph.writer[root]
        written = order if writer in region else self._orders.get(writer)
        if written is not None and writer is not None:
            result = _result_shape(self._graph, self._graph.nodes[writer])
            found = Arrangement.permutation(result, written).inverse.then(read.arrangement)
        seen = order if is_inside else chosen
        if seen is not None and found is not None and read.shape is not None:
            found = found.then(Arrangement.permutation(read.shape, seen))
        return found if found is None or len(found.sizes) <= MAX_RANK else None


def _is_read_in_place(arrangement: Arrangement, shape: Shape) -> bool:
    """Whether a product reads the source of an operand of `shape` in place, where `push_reshapes` may first cut the
    leading axes apart."""
    long = tuple(size for size in shape if size != 1)
    parts = common_sizes(long, arrangement.inverse.sizes) if len(long) > 1 else None
    if parts is None or parts[-2:] != shape[-2:]:
        return False
    return product_side(arrangement, parts) is not None


class _Reordering:
    """Computes the nodes at some positions with other orders of axes, between transposes from and to the old order."""

    def __init__(
        self, graph: Graph, shapes: list[tuple[Shape | None, ...] | None], orders: Mapping[int | None, Order]
    ) -> None:
        self._graph = graph
        self._shapes = shapes
        self._orders = orders
        self._draft = GraphBuilder(graph)
        self._nodes: list[Node] = []

    def graph(self) -> Graph:
        for position, node in enumerate(self._graph.nodes):
            order, shapes = self._orders.get(position), self._shapes[position]
            if order is None or shapes is None:
                self._nodes.append(node)
            else:
                self._reorder(node, order, shapes)
        return self._draft.graph(self._nodes)

    def _reorder(self, node: Node, order: Order, shapes: Sequence[Shape | None]) -> None:
        inputs = [
            self._permuted(node, index, shape or (), order) for index, shape in zip(node.inputs, shapes, strict=True)
        ]
        result, (output,) = _result_shape(self._graph, node), node.outputs
        there = self._draft.add_like(output, tuple(result[axis] for axis in order))
        self._nodes.append(
            replace(node, inputs=tuple(inputs), outputs=(there,), form=_permuted_form(node, result, order))
        )
        back = output if self._graph.tensors[output].shape == result else self._draft.add_like(output, result)
        self._transpose(node, there, back, inverse(order))
        if back != output:
            self._nodes.append(reshape(node, back, output))

    def _permuted(self, node: Node, index: int, shape: Shape, order: Order) -> int:
        """A tensor, seen as `shape`, in another order of axes."""
        tensor, target = self._graph.tensors[index], tuple(shape[axis] for axis in order)
        if (data := tensor.data) is not None:
            return self._draft.constant(tensor.name, data.reshape(shape).transpose(order))
        seen = index
        if tensor.shape != shape:
            seen = self._draft.add_like(index, shape)
            self._nodes.append(reshape(node, index, seen))
        there = self._draft.add_like(index, target)
        self._transpose(node, seen, there, order)
        return there

    def _transpose(self, node: Node, source: int, target: int, order: Order) -> None:
        form = Map(Arg(0), (permuted(order),))
        self._nodes.append(replace(node, op="TRANSPOSE", inputs=(source,), outputs=(target,), attrs={}, form=form))


def _result_shape(graph: Graph, node: Node) -> Shape:
    """The shape of a node's result with all axes of the node."""
    if not isinstance(node.form, Reduce):
        return graph.tensors[node.outputs[0]].shape
    shape = graph.tensors[node.inputs[0]].shape
    return tuple(1 if axis in node.form.axes else size for axis, size in enumerate(shape))


def _permuted_form(node: Node, result: Shape, order: Order) -> Form:
    """The form of a node whose operands and result have their axes in another order."""
    form = form_of(node)
    if isinstance(form, Reduce):
        return replace(form, axes=tuple(sorted(map(order.index, form.axes))))
    if isinstance(form, Concat):
        return replace(form, axis=order.index(form.axis))
    return replace(form, operands=tuple(_permuted_access(access, result, order) for access in form.operands))


def _permuted_access(access: IndexMap, result: Shape, order: Order) -> IndexMap:
    added = len(order) - len(access.dims)
    dims = (*(axis if result[axis] == 1 else -1 for axis in range(added)), *access.dims)
    starts, steps = (0,) * added + access.starts, (1,) * added + access.steps
    moved = tuple(-1 if dims[axis] < 0 else place for place, axis in enumerate(order))
    return IndexMap(moved, tuple(starts[axis] for axis in order), tuple(steps[axis] for axis in order), access.fill)
