"""Folds transposes into the products of matrices beside them, which then read or write with other strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jitdelegate.ir.forms import MatMul, Shape
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.passes.arrangement import Arranged, Arrangement, Order, arranged, arrangement_of, inverse
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.works_on import works_on


@works_on(MatMul)
def fold_transposes(graph: Graph) -> Graph:
    """%1 = TRANSPOSE(%0) by Map(); %3 = BATCH_MATMUL(%1, %2) by MatMul() -> %3 = BATCH_MATMUL(%0, %2) by
    MatMul(a_order=(0,2,1,3)). A transpose of the last two axes becomes `adj_x` or `adj_y`.

    Requires that only products read the transpose, and that neighbours along its last axis, or the last but one, are
    neighbours in memory. So does a transpose of a product without extra operands, unless other products take it up.
    Transposes that nothing reads any more stay, as Views if they read the product.
    """
    return _Folding(graph).graph()


@dataclass(frozen=True, slots=True)
class Side:
    """How a product reads a transposed operand: a tensor of `shape`, its axes in `order`; `is_turned` if its last two
    axes are exchanged besides."""

    shape: Shape
    order: Order
    is_turned: bool


def product_side(arrangement: Arrangement, shape: Shape) -> Side | None:
    """How a product could read the source of a transposed operand of `shape`; None if it cannot, or need not."""
    return None if arrangement.is_identity else next(_sides(arrangement, shape), None)


def _sides(arrangement: Arrangement, shape: Shape) -> Iterator[Side]:
    *leading, row, column = range(len(shape))
    for axes in ((*leading, row, column), (*leading, column, row)):
        turned = tuple(shape[axis] for axis in axes)
        whole = arrangement.then(Arrangement.permutation(shape, axes))
        order = None if whole is None else whole.inverse.order_of(turned)
        if order is not None and order[-1] == column:
            stored = tuple(turned[axis] for axis in order)
            yield Side(stored, _without_identity(inverse(order)), axes[-1] == row)


class _Folding:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found = arranged(graph)
        self._draft = GraphBuilder(graph)
        self._nodes: list[Node] = []
        roots = [node for node in graph.nodes if self._is_root(node)]
        reads = [*(index for node in roots for index in node.inputs if index != ABSENT), *graph.outputs]
        self._reads = Counter(self._found[index] for index in reads)
        self._wanted: dict[int, list[Arranged]] = {}
        for each in self._reads:
            self._wanted.setdefault(each.root, []).append(each)
        products = [node for node in roots if isinstance(node.form, MatMul)]
        sides = ((node.inputs[operand], self._side(node, operand)) for node in products for operand in (0, 1))
        folded = Counter(self._found[index] for index, side in sides if side is not None)
        self._folded = {each for each, count in folded.items() if count == self._reads[each]}
        self._stored: dict[Arranged, int] = {}
        self._replaced: set[int] = set()

    def _is_root(self, node: Node) -> bool:
        return self._found[node.outputs[0]].root == node.outputs[0]

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            whole = self._found[node.outputs[0]]
            if isinstance(node.form, MatMul):
                self._product(node, node.form)
            elif whole in self._stored and arrangement_of(self._graph, node) is not None:
                self._nodes.append(reshape(node, self._stored[whole], node.outputs[0]))
            elif whole.root not in self._replaced:
                self._nodes.append(node)
        return self._draft.graph(self._nodes)

    def _product(self, node: Node, form: MatMul) -> None:
        a, b = (self._operand(node, operand) for operand in (0, 1))
        form = replace(
            form,
            adj_x=form.adj_x != a[2],
            adj_y=form.adj_y != b[2],
            a_order=a[1] or form.a_order,
            b_order=b[1] or form.b_order,
        )
        node = replace(node, inputs=(a[0], b[0], *node.inputs[2:]), form=form)
        self._nodes.append(self._transposed(node, form))

    # operands

    def _operand(self, node: Node, operand: int) -> tuple[int, Order, bool]:
        """The tensor to read instead of an operand, its order of axes, and whether its last two are exchanged."""
        index = node.inputs[operand]
        whole, side = self._found[index], self._side(node, operand)
        if side is None or whole not in self._folded:
            return index, (), False
        if self._graph.tensors[whole.root].shape == side.shape:
            return whole.root, side.order, side.is_turned
        seen = self._draft.add_like(index, side.shape)
        self._nodes.append(reshape(node, whole.root, seen))
        return seen, side.order, side.is_turned

    def _side(self, node: Node, operand: int) -> Side | None:
        """How a product could read the source of a transposed operand; None if it cannot."""
        index, form = node.inputs[operand], node.form
        side = product_side(self._found[index].arrangement, self._graph.tensors[index].shape)
        assert isinstance(form, MatMul)
        is_left_turned = side is not None and side.is_turned and operand == 0
        return None if is_left_turned and not form.turns_left else side

    # results

    def _transposed(self, node: Node, form: MatMul) -> Node:
        """The product, stored as its readers want it if all of them want the same transpose."""
        (output,) = node.outputs
        wanted = self._wanted.get(output, [])
        if not self._folded.isdisjoint(wanted):  # products read it as it is
            return node
        shape = self._graph.tensors[output].shape
        order = wanted[0].arrangement.order_of(shape) if len(wanted) == 1 and len(node.inputs) == form.core else None
        if order is None or order[-1] != len(shape) - 1 or wanted[0].arrangement.is_identity:
            return node
        stored = self._draft.add_like(output, tuple(shape[axis] for axis in order))
        self._stored[wanted[0]] = stored
        self._replaced.add(output)
        return replace(node, outputs=(stored,), form=replace(form, order=inverse(order)))


def _without_identity(order: Order) -> Order:
    """No order where it is that of the tensor."""
    return () if list(order) == sorted(order) else order
