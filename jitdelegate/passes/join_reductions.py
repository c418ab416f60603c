"""Joins reductions with reductions after them, and short sums with the elementwise work before them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import RESULT, Arg, Expr, substitute
from jitdelegate.ir.forms import IndexMap, Map, Reduce, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.arrangement import reshaped
from jitdelegate.passes.fuse_elementwise import MAX_APPLIES, MAX_OPERANDS, applies
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.works_on import works_on


@works_on(Reduce)
def join_reductions(graph: Graph) -> Graph:
    """%1 = SUM(%0) by Reduce(axes=(3)); %2 = MEAN(%1) by Reduce(axes=(1,2)) -> %2 = MEAN(%0) by Reduce(axes=(1,2,3)).

    %1 = MUL(%0, %x) by Map(); %2 = SUM(%1) by Reduce() over an axis of two -> %2 = SUM(%0, %x, %0, %x) by Map(), which
    reads both elements. Nothing else reads %1.
    """
    return remove_dead(_Joining(graph).graph())


class _Joining:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._written: dict[int, Node] = {}

    def graph(self) -> Graph:
        nodes: list[Node] = []
        for node in self._graph.nodes:
            if isinstance(node.form, Reduce) and self._is_float(node):
                joined = self._with_reduction(node, node.form) or self._with_work(node, node.form) or (node,)
            else:
                joined = (node,)
            nodes += joined
            if len(joined) == 1:  # what a new reshape shows is no tensor of the graph, which knows who reads it
                self._written[node.outputs[0]] = joined[0]
        return self._draft.graph(nodes)

    def _is_float(self, node: Node) -> bool:
        return all(self._graph.tensors[index].dtype == "float32" for index in (*node.inputs, *node.outputs))

    def _writer(self, index: int) -> Node | None:
        """The node that computes a tensor, or what it is a View of, for one reader only."""
        while self._graph.only_reader(index) is not None:
            node = self._written.get(index)
            if node is None or not isinstance(node.form, View):
                return node
            index = node.inputs[0]
        return None

    def _with_reduction(self, node: Node, form: Reduce) -> tuple[Node, ...] | None:
        """A reduction of a reduction as one; None if its operand is none, or of another kind."""
        before, tensors = self._writer(node.inputs[0]), self._draft.tensors
        if before is None or not isinstance(before.form, Reduce) or not self._is_float(before):
            return None
        first = before.form
        kinds, shape = {first.kind, form.kind}, tensors[node.inputs[0]].shape
        if first.epilogue != RESULT or (len(kinds) > 1 and not all(COMBINERS[kind].adds for kind in kinds)):
            return None
        source = tensors[before.inputs[0]].shape
        once = tuple(1 if axis in first.axes else size for axis, size in enumerate(source))
        kept = tuple(1 if axis in form.axes else size for axis, size in enumerate(shape))
        twice = reshaped(kept, IndexMap.broadcast(kept, shape), shape, once)
        if twice is None:
            return None
        axes = tuple(axis for axis, size in enumerate(source) if size != twice[axis])
        own: Expr = RESULT
        if len(kinds) > 1:
            own = RESULT * float(prod(source) // prod(once) if first.kind == "sum" else prod(once) // prod(twice))
        kind = form.kind if len(kinds) == 1 else "mean"
        epilogue = substitute(form.epilogue, (own, *(Arg(1 + k) for k in range(len(form.operands)))))
        origin = tuple(sorted({*before.origin, *node.origin}))
        joined = replace(form, kind=kind, axes=axes, epilogue=epilogue)
        return (replace(node, inputs=(before.inputs[0], *node.inputs[1:]), origin=origin, form=joined),)

    def _with_work(self, node: Node, form: Reduce) -> tuple[Node, ...] | None:
        """A sum of few elements that a Map computes, as one Map; None where that would be too large."""
        before, tensors = self._written.get(node.inputs[0]), self._draft.tensors
        if before is None or not isinstance(before.form, Map) or self._graph.only_reader(node.inputs[0]) is None:
            return None
        shape, work = tensors[node.inputs[0]].shape, before.form
        places = [(axis, place) for axis in form.axes[:1] for place in range(shape[axis])]
        is_short = len(form.axes) == 1 and len(places) * len(work.operands) <= MAX_OPERANDS
        if not COMBINERS[form.kind].adds or form.operands or not is_short or form.axes[0] == len(shape) - 1:
            return None
        if any(access.fill is not None and form.axes[0] in access.dims for access in work.operands):
            return None  # a place of the axis may lie outside
        total = [_moved(work.epilogue, number * len(work.operands)) for number, _ in enumerate(places)]
        own = sum(total[1:], total[0])
        epilogue = substitute(form.epilogue, (own * (1 / len(places)) if form.kind == "mean" else own,))
        if applies(epilogue) > MAX_APPLIES:
            return None
        operands = tuple(_at(access, axis, place) for axis, place in places for access in work.operands)
        output = node.outputs[0]
        kept = tuple(1 if axis in form.axes else size for axis, size in enumerate(shape))
        result = output if tensors[output].shape == kept else self._draft.add_like(output, kept)
        origin = tuple(sorted({*before.origin, *node.origin}))
        joined = replace(
            node, inputs=before.inputs * len(places), outputs=(result,), origin=origin, form=Map(epilogue, operands)
        )
        return (joined,) if result == output else (joined, reshape(node, result, output))


def _moved(expr: Expr, by: int) -> Expr:
    """The expression with Args of higher numbers."""
    return (
        Arg(expr.index + by) if isinstance(expr, Arg) else expr.rebuilt(tuple(_moved(part, by) for part in expr.parts))
    )


def _at(access: IndexMap, axis: int, place: int) -> IndexMap:
    """How an operand is read at one place of an axis of the result."""
    starts = zip(access.dims, access.starts, access.steps, strict=True)
    return replace(
        access,
        dims=tuple(-1 if dim == axis else dim for dim in access.dims),
        starts=tuple(start + step * place if dim == axis else start for dim, start, step in starts),
    )
