"""Attention as one problem: its operands in memory, and what happens to a score before the Softmax.

The rows of all scores are counted as one: `numbers` of matrices by `rows`. A matrix's rows share keys and values, so
the query heads of a group are rows of one matrix. Transposes, slices and repetitions before queries, keys and values
and transposes of the result are read and written through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.ir.expr import RESULT, Arg, Expr, substitute
from jitdelegate.ir.forms import Map, MatMul, Shape, Softmax, View
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.targets.cuda.code.index_map import dense_strides, walk
from jitdelegate.targets.cuda.code.strides import Axes, Axis, common, composed, merged, split
from jitdelegate.targets.planning.fusions import Attention
from jitdelegate.targets.planning.implicit_gemm import permuted


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements in the memory of tensor `index`, from element `offset` on; `positions` are the nodes read through."""

    index: int
    offset: int
    axes: Axes
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Matrices:
    """One operand, a matrix for each number.

    Attributes:
        index, offset: as in `Stored`.
        numbers, rows: distances along the problem's axes, in elements; keys and values have rows of their own.
        down, across: distances along the matrix's rows and columns. The rows of queries and results are those of the
            problem (`down` is 0), and the rows of keys and values are the keys.
    """

    index: int
    offset: int
    numbers: Shape
    rows: Shape
    down: int
    across: int

    @property
    def distances(self) -> Iterator[int]:
        """All that the alignment of an access depends on, but the distance along the matrix's rows and columns."""
        yield from (self.offset, *self.numbers, *self.rows)


@dataclass(frozen=True, slots=True)
class Problem:
    """output[r, c] = sum over k of softmax(beta * expr(sum over d of query[r, d] * key[k, d], operands[r, k])) *
    value[k, c], for `rows` of each number.

    Attributes:
        numbers, rows: sizes of the axes whose products are the number of matrices, and of rows in each.
        operands: Arg(1 + k) of `expr` is operand k; `across` is its distance from key to key.
        positions: the nodes that it computes, in order.
    """

    numbers: Shape
    rows: Shape
    keys: int
    depth: int
    columns: int
    query: Matrices
    key: Matrices
    value: Matrices
    output: Matrices
    operands: tuple[Matrices, ...]
    expr: Expr
    beta: float
    positions: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of matrices."""
        return prod(self.numbers)

    @property
    def height(self) -> int:
        """Rows of a matrix."""
        return prod(self.rows)


def problem_of(graph: Graph, attention: Attention) -> Problem | None:
    """The problem of an attention; None where distances in memory are not regular enough."""
    for look in (_through, _plainly):
        problem = _ProblemBuilder(graph, attention, look).problem()
        if problem is not None:
            return problem
    return None


Look = Callable[[Graph, int], Stored]


def _plainly(graph: Graph, index: int) -> Stored:
    return Stored(index, 0, (Axis(graph.tensors[index].size, 1),))


def _through(graph: Graph, index: int) -> Stored:
    """A tensor as its elements lie before the Maps that only moved them, where nothing else reads what these Maps
    wrote."""
    stored, positions, axes, offset = _plainly(graph, index), list[int](), _plainly(graph, index).axes, 0
    while (position := graph.writer[index]) is not None and graph.only_reader(index) is not None:
        node = graph.nodes[position]
        positions.insert(0, position)
        if not isinstance(node.form, View | Map) or graph.tensors[node.inputs[0]].dtype != "float32":
            break
        index = node.inputs[0]
        if isinstance(node.form, View):
            continue
        if not node.form.moves_only or len(node.inputs) != 1 or node.form.operands[0].fill is not None:
            break
        shape = graph.tensors[node.outputs[0]].shape or (1,)
        moved = walk(graph.tensors[index].shape, node.form.operands[0], shape)
        inside = composed(axes, offset, tuple(map(Axis, shape, moved.strides)))
        if inside is None:
            break
        axes, offset = inside[0], inside[1] + moved.offset
        stored = Stored(index, offset, axes, tuple(positions))
    return stored


def _written_through(graph: Graph, index: int) -> Stored:
    """A result as the Map after it, which alone reads and only moves it, writes its elements."""
    plain, positions = _plainly(graph, index), list[int]()
    while (position := graph.only_reader(index)) is not None:
        node = graph.nodes[position]
        positions.append(position)
        if isinstance(node.form, Map) and node.form.moves_only and len(node.inputs) == 1:
            axes = _inverse(graph, node)
            return Stored(node.outputs[0], 0, axes, tuple(positions)) if axes else plain
        if not isinstance(node.form, View):
            break
        index = node.outputs[0]
    return plain


def _inverse(graph: Graph, node: Node) -> Axes | None:
    """Where a Map that permutes its operand writes the operand's elements, in their order; None if it does not."""
    form, (source, target) = node.form, (graph.tensors[one].shape for one in (*node.inputs, *node.outputs))
    assert isinstance(form, Map)
    if form.operands[0].fill is not None or prod(source) != prod(target):
        return None
    moved = walk(source, form.operands[0], target)
    axes = sorted(zip(moved.strides, target, dense_strides(target), strict=False), reverse=True)
    axes = [axis for axis in axes if axis[1] > 1]
    dense = dense_strides(tuple(size for _, size, _ in axes))
    if moved.offset or tuple(stride for stride, _, _ in axes) != dense:
        return None
    return merged(Axis(size, distance) for _, size, distance in axes)


@dataclass(frozen=True, slots=True)
class _Run:
    """One operand over the rows of all scores."""

    stored: Stored
    axes: Axes
    down: int
    across: int


class _ProblemBuilder:
    """Collects the operands of one attention.

    Args:
        look: how queries, keys and values are looked for.
    """

    def __init__(self, graph: Graph, attention: Attention, look: Look) -> None:
        self.graph, self.attention, self.look = graph, attention, look
        self.scores, self.product = graph.nodes[attention.scores], graph.nodes[attention.product]
        self.shape = graph.tensors[self.scores.outputs[0]].shape
        self.weights = graph.tensors[self.product.inputs[0]].shape

    def problem(self) -> Problem | None:
        """The problem; None where distances are not regular."""
        first, second = self.scores.form, self.product.form
        softmax = self.graph.nodes[self.attention.softmax].form
        assert isinstance(first, MatMul)
        assert isinstance(second, MatMul)
        assert isinstance(softmax, Softmax)
        expr, operands = self._chain()
        runs = [
            self._query(first),
            self._shared(self.scores, 1, first.b_order, self.shape, swapped=not first.adj_y),
            self._shared(self.product, 1, second.b_order, self.weights, swapped=second.adj_y),
            self._output(second),
            *operands,
        ]
        if None in runs or softmax.beta <= 0:
            return None
        complete: list[_Run] = [run for run in runs if run is not None]
        axes = common([run.axes for run in complete])
        if axes is None:
            return None
        split_at = len(axes)
        while split_at and axes[split_at - 1][1][1:3] == (0, 0):
            split_at -= 1
        matrices = [
            Matrices(
                run.stored.index,
                run.stored.offset,
                tuple(distances[at] for _, distances in axes[:split_at]),
                tuple(distances[at] for _, distances in axes[split_at:]),
                run.down,
                run.across,
            )
            for at, run in enumerate(complete)
        ]
        query, key, value, output, *rest = matrices
        a = permuted(self.graph.tensors[self.scores.inputs[0]].shape, first.a_order)
        own = self.attention
        through = (position for run in complete for position in run.stored.positions)
        return Problem(
            tuple(size for size, _ in axes[:split_at]),
            tuple(size for size, _ in axes[split_at:]),
            self.shape[-1],
            a[-2 if first.adj_x else -1],
            permuted(self.graph.tensors[self.product.outputs[0]].shape, second.order)[-1],
            query,
            key,
            value,
            output,
            tuple(rest),
            expr,
            softmax.beta,
            tuple(sorted({own.scores, *own.maps, own.softmax, own.product, *own.views, *through})),
        )

    def _chain(self) -> tuple[Expr, list[_Run | None]]:
        """What becomes of a score, and the operands that this reads."""
        expr: Expr = RESULT
        runs, main = list[_Run | None](), ABSENT
        for position in (self.attention.scores, *self.attention.maps):
            node = self.graph.nodes[position]
            form = node.form
            assert isinstance(form, MatMul | Map)
            arguments = [expr] if form.has_result else []
            for index, index_map in zip(node.inputs[form.core :], form.operands, strict=True):
                if self._leads_to(index, main):
                    arguments.append(expr)
                    continue
                shape = self.graph.tensors[node.outputs[0]].shape
                walked = walk(self.graph.tensors[index].shape, index_map, shape)
                is_inside = all(limit == (0, size) for limit, size in zip(walked.limits, shape, strict=True))
                axes = tuple(map(Axis, shape[:-1], walked.strides[:-1]))
                runs.append(
                    _Run(Stored(index, walked.offset, axes), axes, 0, walked.strides[-1]) if is_inside else None
                )
                arguments.append(Arg(len(runs)))
            expr, main = substitute(form.epilogue, arguments), node.outputs[0]
        return expr, runs

    def _leads_to(self, index: int, result: int) -> bool:
        """Whether tensor `index` is `result` or a View of it."""
        while index != result:
            position = self.graph.writer[index]
            if position is None or position not in self.attention.views:
                return False
            index = self.graph.nodes[position].inputs[0]
        return True

    def _query(self, form: MatMul) -> _Run | None:
        stored = self._stored(self.scores, 0)
        parts = self._parts(stored, self.scores.inputs[0], form.a_order)
        if parts is None:
            return None
        *leading, rows, depth = parts if not form.adj_x else (*parts[:-2], parts[-1], parts[-2])
        if len(depth) > 1:
            return None
        axes = (*_broadcast(leading, self.shape[:-2]), *(rows or (Axis(self.shape[-2], 0),)))
        return _Run(stored, axes, 0, _distance(depth))

    def _shared(self, node: Node, operand: int, order: Shape, scores: Shape, *, swapped: bool) -> _Run | None:
        """Keys or values, whose rows are the keys; `swapped` where they are stored as columns of the product says."""
        stored = self._stored(node, operand)
        parts = self._parts(stored, node.inputs[operand], order)
        if parts is None:
            return None
        *leading, down, across = parts if not swapped else (*parts[:-2], parts[-1], parts[-2])
        if len(down) > 1 or len(across) > 1:
            return None
        steps = _distance(down), _distance(across)
        axes = (*_broadcast(leading, scores[:-2]), Axis(scores[-2], 0))
        return _Run(stored, axes, *steps) if 1 in steps else None

    def _output(self, form: MatMul) -> _Run | None:
        index = self.product.outputs[0]
        stored = _written_through(self.graph, index)
        parts = self._parts(stored, index, form.order)
        if parts is None or _distance(parts[-1]) != 1 or len(parts[-1]) > 1:
            stored = _plainly(self.graph, index)
            parts = self._parts(stored, index, form.order)
        assert parts is not None
        return _Run(stored, tuple(axis for part in parts[:-1] for axis in part), 0, 1)

    def _stored(self, product: Node, operand: int) -> Stored:
        """A matrix of a product; as it is where the product's epilogue reads it too."""
        index = product.inputs[operand]
        return (_plainly if index in product.inputs[2:] else self.look)(self.graph, index)

    def _parts(self, stored: Stored, index: int, order: Shape) -> list[Axes] | None:
        """The axes of an operand that a product takes as tensor `index`, in the product's order."""
        parts = split(stored.axes, self.graph.tensors[index].shape)
        return None if parts is None else [parts[axis] for axis in order] if order else parts


def _broadcast(leading: Sequence[Axes], shape: Shape) -> Iterator[Axis]:
    """An operand's leading axes as those of its product, of `shape`."""
    for size, own in zip(shape, [()] * (len(shape) - len(leading)) + [*leading], strict=True):
        yield from own or (Axis(size, 0),)


def _distance(axes: Axes) -> int:
    """The distance along an axis that is none or one; 1 for an axis of size 1."""
    return axes[0].distance if axes else 1
