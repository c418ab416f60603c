"""Finds normalisations that a file spells out, and makes each of them one node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf, prod

from jitdelegate.ir.expr import Apply, Arg, Const, Expr, substitute, unary
from jitdelegate.ir.forms import IndexMap, Map, Normalize, Reduce, Shape, Softmax, Statistic, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.arrangement import reshaped
from jitdelegate.passes.fuse_elementwise import MAX_APPLIES, MAX_OPERANDS
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.passes.works_on import works_on

MAX_STATISTICS = 2
"""A mean and a variance, or a maximum and a sum."""
MAX_NODES = 64
"""Most nodes that are looked at from one reduction on."""
ELEMENT = Arg(0)
"""An element of the rows that are normalised."""


@works_on(Reduce)
def fuse_normalization(graph: Graph) -> Graph:
    """%1 = MEAN(%0) by Reduce(); %2 = SUB(%0, %1); %3 = MUL(%2, %2); %4 = MEAN(%3) by Reduce(); ... %9 = ADD(...) ->
    %9 = ADD(%0, ...) by Normalize(statistics=(mean(a0), mean(mul(sub(a0, a1), sub(a0, a1)))), result=...), if nothing
    else reads what lies between.

    What counts is how values are computed, in whatever order and shapes: elements of %0, numbers per row of it, and
    operands that are broadcast to it. max, sub, exp, sum, div along the last axis become a Softmax.
    """
    made = _Made(graph)
    for position, node in enumerate(graph.nodes):
        if isinstance(node.form, Reduce) and position not in made.nodes:
            candidates = filter(made.may_join, _around(graph, node, node.form.axes))
            found = min(candidates, key=lambda one: len(one.extra), default=None)
            if found is not None:
                made.add(found)
    return remove_dead(made.graph()) if made.by_last else graph


def _around(graph: Graph, node: Node, axes: Sequence[int]) -> Iterator[_Normalization]:
    """The normalisations of which a reduction may be the first: of its operand, and of what that is computed from."""
    shape = graph.tensors[node.inputs[0]].shape
    sources = [node.inputs[0]]
    writer = graph.writer[_root(graph, node.inputs[0])]
    if writer is not None and isinstance(graph.nodes[writer].form, Map):
        sources += graph.nodes[writer].inputs
    for source in dict.fromkeys(_root(graph, each) for each in sources):
        tensor = graph.tensors[source]
        if tensor.dtype == "float32" and tensor.data is None and tensor.size == prod(shape):
            found = _Search(graph, source, shape, axes).found()
            if found is not None:
                yield found


def _root(graph: Graph, index: int) -> int:
    """The tensor that a chain of reshapes shows."""
    writer = graph.writer[index]
    while writer is not None and isinstance(graph.nodes[writer].form, View):
        index = graph.nodes[writer].inputs[0]
        writer = graph.writer[index]
    return index


@dataclass(frozen=True)
class _Normalization:
    """A Normalize of `source`, seen as `shape`, that takes the place of `nodes`.

    Attributes:
        nodes: positions of the nodes whose results nothing else needs, and of the last one.
        last: the position of the node whose result the Normalize computes.
        origin: as in Node.
        extra: (tensor, its shape as an operand) of every extra operand.
    """

    source: int
    shape: Shape
    nodes: frozenset[int]
    last: int
    origin: tuple[int, ...]
    form: Normalize
    extra: tuple[tuple[int, Shape], ...]


@dataclass(frozen=True)
class _Known:
    """What a tensor is in terms of the rows: an expression over the leaves of the search.

    Attributes:
        is_row: whether it is one number for each row; else there is one for each element.
        applies: operations in the expression.
        leaves: its own.
        statistics: the leaves that are statistics and that it depends on, also through other statistics.
    """

    expr: Expr
    is_row: bool
    position: int
    applies: int = 0
    leaves: frozenset[int] = frozenset()
    statistics: frozenset[int] = frozenset()


class _Search:
    """Follows the elements of one tensor through the nodes that read them.

    Leaves are the Args of expressions: the element, statistics, and extra operands, as they are found.
    """

    def __init__(self, graph: Graph, source: int, shape: Shape, axes: Sequence[int]) -> None:
        self._graph = graph
        self._source = source
        self._shape = shape
        self._axes = tuple(axis for axis in axes if shape[axis] != 1)
        self._row = tuple(1 if axis in self._axes else size for axis, size in enumerate(shape))
        self._leaves: list[Statistic | tuple[int, Shape] | None] = [None]
        self._known = {source: _Known(ELEMENT, is_row=False, position=-1, leaves=frozenset([ELEMENT.index]))}

    def found(self) -> _Normalization | None:
        """The normalisation with the most statistics; of those, the one that ends first."""
        if not self._axes:
            return None
        best, count = None, 0
        for index in self._followed():
            one = self._normalization(index) if len(self._known[index].statistics) > count else None
            if one is not None:
                best, count = one, len(one.form.statistics)
            if count == MAX_STATISTICS:
                break
        return best

    # what tensors are

    def _followed(self) -> Iterator[int]:
        """The tensors of elements, in the order of their nodes, while all that can be known is found."""
        graph, seen = self._graph, set[int]()
        pending = list(graph.readers[self._source])
        heapify(pending)
        while pending and len(seen) < MAX_NODES:
            position = heappop(pending)
            if position in seen:
                continue
            seen.add(position)
            node = graph.nodes[position]
            known = self._value(position, node)
            if known is None or known.applies > MAX_APPLIES:
                continue
            self._known[node.outputs[0]] = known
            for reader in graph.readers[node.outputs[0]]:
                heappush(pending, reader)
            if not known.is_row:
                yield node.outputs[0]

    def _value(self, position: int, node: Node) -> _Known | None:
        """The node's result; None where it cannot be said in terms of the rows."""
        tensors = self._graph.tensors
        if any(tensors[index].dtype != "float32" for index in (*node.inputs, *node.outputs)):
            return None
        if isinstance(node.form, View):
            return replace(self._known[node.inputs[0]], position=position)
        if isinstance(node.form, Reduce):
            return self._reduced(position, node, node.form)
        if isinstance(node.form, Map):
            size = tensors[node.outputs[0]].size
            for is_row, whole in ((False, self._shape), (True, self._row)):
                if size == prod(whole):
                    return self._mapped(position, node, node.form, whole, is_row=is_row)
        return None

    def _reduced(self, position: int, node: Node, form: Reduce) -> _Known | None:
        known, shape = self._known[node.inputs[0]], self._graph.tensors[node.inputs[0]].shape
        if known.is_row or form.operands:
            return None
        kept = tuple(1 if axis in form.axes else size for axis, size in enumerate(shape))
        same = reshaped(kept, IndexMap.broadcast(kept, shape), shape, self._shape) == self._row
        if not same or any(isinstance(self._leaves[leaf], tuple) for leaf in known.leaves):
            return None
        leaf = self._leaf(Statistic(form.kind, known.expr), known.statistics)
        return self._said(form.epilogue, [leaf], is_row=True, position=position)

    def _mapped(self, position: int, node: Node, form: Map, whole: Shape, *, is_row: bool) -> _Known | None:
        tensors, arguments = self._graph.tensors, list[_Known]()
        shape = tensors[node.outputs[0]].shape
        for index, access in zip(node.inputs, form.operands, strict=True):
            seen, known = reshaped(tensors[index].shape, access, shape, whole), self._known.get(index)
            if known is not None and seen == (self._row if known.is_row else self._shape):
                arguments.append(known)
            elif known is None and seen is not None:
                arguments.append(self._leaf((index, seen)))
            else:
                return None
        return self._said(form.epilogue, arguments, is_row=is_row, position=position)

    def _leaf(self, leaf: Statistic | tuple[int, Shape], statistics: frozenset[int] = frozenset()) -> _Known:
        """
        Args:
            statistics: that a new statistic depends on.
        """
        if leaf not in self._leaves:
            self._leaves.append(leaf)
        number = self._leaves.index(leaf)
        own = statistics | {number} if isinstance(leaf, Statistic) else statistics
        return _Known(Arg(number), is_row=True, position=-1, leaves=frozenset([number]), statistics=own)

    def _said(self, expr: Expr, arguments: Sequence[_Known], *, is_row: bool, position: int) -> _Known:
        """What an expression over `arguments` is; none is looked at again, since they grow with every node."""
        expr = _simplified(expr, arguments)
        used = [arguments[number] for number in _args(expr)]
        return _Known(
            substitute(expr, [one.expr for one in arguments]),
            is_row,
            position,
            _applies(expr, arguments),
            frozenset[int]().union(*(one.leaves for one in used)),
            frozenset[int]().union(*(one.statistics for one in used)),
        )

    # what may be fused

    def _normalization(self, index: int) -> _Normalization | None:
        """The normalisation that ends with a tensor; None if something else needs what it would no longer write."""
        known = self._known[index]
        statistics = sorted(known.statistics)
        extra = sorted(leaf for leaf in known.leaves if isinstance(self._leaves[leaf], tuple))
        if len(statistics) > MAX_STATISTICS or len(extra) > MAX_OPERANDS:
            return None
        nodes, dependent = self._between(index)
        operands = [leaf for leaf in map(self._leaves.__getitem__, extra) if isinstance(leaf, tuple)]
        accesses = tuple(IndexMap.broadcast(shape, self._shape) for _, shape in operands)
        follows = all(access.runs_along(self._shape) for access in accesses)
        if not follows or not self._is_private(dependent, known.position):
            return None
        places = {leaf: Arg(place) for place, leaf in enumerate((0, *statistics, *extra))}
        args = [places.get(leaf, ELEMENT) for leaf in range(len(self._leaves))]
        found = [leaf for leaf in map(self._leaves.__getitem__, statistics) if isinstance(leaf, Statistic)]
        form = Normalize(
            operands=accesses,
            axes=self._axes,
            statistics=tuple(replace(one, value=substitute(one.value, args)) for one in found),
            result=substitute(known.expr, args),
        )
        origin = {each for position in nodes for each in self._graph.nodes[position].origin}
        return _Normalization(
            self._source, self._shape, dependent, known.position, tuple(sorted(origin)), form, tuple(operands)
        )

    def _between(self, index: int) -> tuple[frozenset[int], frozenset[int]]:
        """The positions of the nodes between the source and a tensor: all, and those that depend on statistics."""
        nodes, dependent, pending = set[int](), set[int](), [index]
        while pending:
            known = self._known[pending.pop()]
            if known.position in nodes or known.position < 0:
                continue
            nodes.add(known.position)
            pending += (each for each in self._graph.nodes[known.position].inputs if each in self._known)
            if known.statistics:
                dependent.add(known.position)
        return frozenset(nodes), frozenset(dependent)

    def _is_private(self, nodes: frozenset[int], last: int) -> bool:
        """Whether nobody else reads what the nodes write, except the last one."""
        inside = [self._graph.nodes[position].outputs[0] for position in nodes - {last}]
        return all(nodes.issuperset(self._graph.readers[each]) and each not in self._graph.outputs for each in inside)


def _args(expr: Expr) -> set[int]:
    """The numbers of the Args in an expression."""
    return {expr.index} if isinstance(expr, Arg) else set[int]().union(*map(_args, expr.parts))


def _applies(expr: Expr, arguments: Sequence[_Known]) -> int:
    """Operations in an expression whose Args stand for `arguments`."""
    if isinstance(expr, Arg):
        return arguments[expr.index].applies
    return bool(expr.parts) + sum(_applies(part, arguments) for part in expr.parts)


def _simplified(expr: Expr, arguments: Sequence[_Known]) -> Expr:
    """The expression without a maximum with -inf, which converters write beside a softmax."""
    if isinstance(expr, Apply) and expr.function == "max":
        other = expr.arguments[1]
        known = arguments[other.index].expr if isinstance(other, Arg) else other
        return expr.arguments[0] if known == Const(-inf) else expr
    return expr


class _Made:
    """The normalisations of a graph that take the places of nodes, and the graph with them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._read: set[int] = set()
        self._gone: set[int] = set()
        self.nodes: set[int] = set()
        self.by_last: dict[int, _Normalization] = {}

    def may_join(self, found: _Normalization) -> bool:
        """Whether none takes nodes of another one, or reads what another one no longer writes."""
        nodes, read, gone = self._parts(found)
        return nodes.isdisjoint(self.nodes) and read.isdisjoint(self._gone) and gone.isdisjoint(self._read)

    def add(self, found: _Normalization) -> None:
        nodes, read, gone = self._parts(found)
        self.nodes |= nodes
        self._read |= read
        self._gone |= gone
        self.by_last[found.last] = found

    def _parts(self, found: _Normalization) -> tuple[frozenset[int], set[int], set[int]]:
        """Its nodes, the tensors that it reads, and those that are no longer written."""
        gone = {self._graph.nodes[position].outputs[0] for position in found.nodes - {found.last}}
        return found.nodes, {found.source, *(index for index, _ in found.extra)}, gone

    def graph(self) -> Graph:
        """The graph with the normalisations in place of their nodes."""
        nodes: list[Node] = []
        for position, node in enumerate(self._graph.nodes):
            if position in self.by_last:
                nodes += self._written(self.by_last[position])
            elif position not in self.nodes:
                nodes.append(node)
        return self._draft.graph(nodes)

    def _written(self, found: _Normalization) -> Iterator[Node]:
        """The Normalize or Softmax, between reshapes where these are needed."""
        draft, last, inputs = self._draft, self._graph.nodes[found.last], list[int]()
        for index, shape in ((found.source, found.shape), *found.extra):
            tensor = draft.tensors[index]
            if tensor.shape == shape:
                inputs.append(index)
            elif (data := tensor.data) is not None:
                inputs.append(draft.constant(tensor.name, data.reshape(shape)))
            else:
                inputs.append(draft.add_like(index, shape))
                yield reshape(last, index, inputs[-1])
        output, form = last.outputs[0], _softmax(found) or found.form
        result = output if draft.tensors[output].shape == found.shape else draft.add_like(output, found.shape)
        yield replace(last, inputs=tuple(inputs), outputs=(result,), origin=found.origin, form=form)
        if result != output:
            yield reshape(last, result, output)


def _softmax(found: _Normalization) -> Softmax | None:
    """The Softmax that does the same."""
    form = found.form
    if form.axes != (len(found.shape) - 1,) or len(form.statistics) != 2 or form.operands:
        return None
    power, difference, beta = form.statistics[1].value, ELEMENT - Arg(1), 1.0
    if isinstance(power, Apply) and isinstance(power.parts[0], Apply) and power.parts[0].function == "mul":
        beta = next((part.value for part in power.parts[0].parts if isinstance(part, Const)), 1.0)
    powers = (unary("exp", each) for each in (difference, difference * beta, beta * difference))
    expected = Statistic("max", ELEMENT), Statistic("sum", power)
    same = power in powers and form.statistics == expected and form.result == power / Arg(2)
    return Softmax(beta=beta) if same and beta > 0 else None
