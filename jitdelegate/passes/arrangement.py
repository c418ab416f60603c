"""Arrangement: how the elements of one tensor are ordered in another, through any chain of transposes and reshapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from jitdelegate.ir.forms import IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.registry import MAX_RANK

KEPT = 1 << 12
"""Most answers that are remembered of a function here: equal layers ask the same."""
Order = tuple[int, ...]
"""For each axis of a result, the axis of the source that it is, as in TRANSPOSE."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The source's elements, row-major, seen as an array of `sizes`, whose axes are then permuted to `order`.

    Equal arrangements have equal fields: no size is 1, axes that are neighbours before and after are one axis, and
    what only reshapes has no axes.
    """

    sizes: Shape
    order: Order

    @staticmethod
    @lru_cache(KEPT)
    def permutation(shape: Shape, order: Order) -> Arrangement:
        """The transposition of an array of `shape` to `order`; axes of size 1 may be left out of it."""
        runs: list[list[int]] = []
        long = [axis for axis, size in enumerate(shape) if size != 1]
        for axis in (axis for axis in order if shape[axis] != 1):
            if runs and long.index(runs[-1][-1]) + 1 == long.index(axis):
                runs[-1].append(axis)
            else:
                runs.append([axis])
        if len(runs) < 2:
            return SAME
        found = sorted(runs)
        return Arrangement(tuple(prod(shape[axis] for axis in run) for run in found), tuple(map(found.index, runs)))

    @property
    def is_identity(self) -> bool:
        """Whether the elements keep their order: both tensors are reshapes of each other."""
        return not self.sizes

    @property
    def inverse(self) -> Arrangement:
        """From the result back to the source."""
        return Arrangement(tuple(self.sizes[axis] for axis in self.order), inverse(self.order))

    def then(self, further: Arrangement) -> Arrangement | None:
        """First this arrangement, then another one of its result; None where the sizes of neither divide the other's,
        so that no axes express both."""
        if self.is_identity or further.is_identity:
            return further if self.is_identity else self
        middle = self.inverse.sizes
        parts = common_sizes(middle, further.sizes)
        if parts is None:
            return None
        first, second = grouped(parts, middle), grouped(parts, further.sizes)
        before = [part for axis in self.inverse.order for part in first[axis]]
        after = [part for axis in further.order for part in second[axis]]
        return Arrangement.permutation(tuple(parts[part] for part in before), tuple(map(before.index, after)))

    def order_of(self, shape: Shape) -> Order | None:
        """The permutation of a source of `shape`, its axes of size 1 first; None where it would cut an axis apart."""
        long = [axis for axis, size in enumerate(shape) if size != 1]
        sizes = tuple(shape[axis] for axis in long)
        if self.is_identity:
            return tuple(sorted(range(len(shape)), key=lambda axis: shape[axis] != 1))
        if common_sizes(sizes, self.sizes) != sizes:
            return None
        groups = grouped(sizes, self.sizes)
        ones = (axis for axis, size in enumerate(shape) if size == 1)
        return *ones, *(long[part] for axis in self.order for part in groups[axis])


SAME = Arrangement((), ())
"""Elements that keep their order."""


def inverse(order: Order) -> Order:
    """For each axis of the source, the axis of the result that it is."""
    return tuple(map(order.index, range(len(order))))


def common_sizes(first: Shape, second: Shape) -> Shape | None:
    """The coarsest sizes into which both lists of sizes, which have the same product, can be cut."""
    parts: list[int] = []
    one, other = list(first), list(second)
    while one and other:
        part = min(one[-1], other[-1])
        if one[-1] % part or other[-1] % part:
            return None
        parts.append(part)
        for sizes in (one, other):
            sizes[-1] //= part
            if sizes[-1] == 1:
                sizes.pop()
    return tuple(reversed(parts))


def grouped(parts: Shape, sizes: Shape) -> list[list[int]]:
    """For each of `sizes`, the positions of the parts whose product it is."""
    positions, groups = iter(range(len(parts))), list[list[int]]()
    for size in sizes:
        groups.append([next(positions)])
        while prod(parts[position] for position in groups[-1]) < size:
            groups[-1].append(next(positions))
    return groups


@lru_cache(KEPT)
def reshaped(operand: Shape, access: IndexMap, shape: Shape, target: Shape) -> Shape | None:
    """The shape in which an operand of a result of `shape` is read for `target`; None where it cannot be reshaped."""
    first = len(shape) - len(operand)
    if access != IndexMap.broadcast(operand, shape):
        return None
    is_read = [axis >= first and operand[axis - first] == size for axis, size in enumerate(shape)]
    if shape == target:
        return _whole(operand, (size if read else 1 for size, read in zip(shape, is_read, strict=True)))
    long = [axis for axis, size in enumerate(shape) if size != 1]
    goal = [axis for axis, size in enumerate(target) if size != 1]
    sizes, goals = tuple(shape[axis] for axis in long), tuple(target[axis] for axis in goal)
    parts = common_sizes(sizes, goals)
    if parts is None:
        return None
    read = [is_read[axis] for axis, group in zip(long, grouped(parts, sizes), strict=True) for _ in group]
    found = [1] * len(target)
    for axis, group in zip(goal, grouped(parts, goals), strict=True):
        if len({read[part] for part in group}) > 1:
            return None
        found[axis] = target[axis] if read[group[0]] else 1
    return _whole(operand, found)


def _whole(operand: Shape, found: Iterable[int]) -> Shape | None:
    """The shape; None where the operand has more elements: of a longer axis, only the first slice is read."""
    shape = tuple(found)
    return shape if prod(shape) == prod(operand) else None


def arrangement_of(graph: Graph, node: Node) -> Arrangement | None:
    """How a lowered node arranges its operand; None where it does more than that."""
    if isinstance(node.form, View):
        return SAME
    if not isinstance(node.form, Map) or not node.form.moves_only or len(node.inputs) != 1:
        return None
    (access,) = node.form.operands
    return _arrangement(access, graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape)


@lru_cache(KEPT)
def _arrangement(access: IndexMap, source: Shape, target: Shape) -> Arrangement | None:
    """How a result of shape `target` arranges an operand that is read so; None where it is no transpose of it."""
    long = [axis for axis, size in enumerate(source) if size != 1]
    placed = {access.dims[axis]: axis for axis in long}
    whole = len(placed) == len(long) and prod(source) == prod(target)
    fits = all(dim >= 0 and target[dim] == source[axis] for dim, axis in placed.items())
    plain = access.fill is None and not any(access.starts[axis] or access.steps[axis] != 1 for axis in long)
    if not whole or not fits or not plain or 0 in source:
        return None
    return Arrangement.permutation(source, tuple(placed[dim] for dim in sorted(placed)))


@dataclass(frozen=True, slots=True)
class Arranged:
    """A tensor as an arrangement of the elements of tensor `root`, which no transpose or reshape writes."""

    root: int
    arrangement: Arrangement


def arranged(graph: Graph) -> list[Arranged]:
    """Every tensor as an arrangement of a root. What no transpose of MAX_RANK axes expresses is a root itself."""
    found = [Arranged(index, SAME) for index in range(len(graph.tensors))]
    for node in graph.nodes:
        own = arrangement_of(graph, node)
        if own is not None:
            source = found[node.inputs[0]]
            whole = source.arrangement.then(own)
            if whole is not None and len(whole.sizes) <= MAX_RANK:
                found[node.outputs[0]] = Arranged(source.root, whole)
    return found


def moved_bytes(graph: Graph) -> int:
    """Bytes that the transposes of a lowered graph write."""
    moving = (node for node in graph.nodes if not (arrangement_of(graph, node) or SAME).is_identity)
    return sum(nbytes(graph, node.outputs[0]) for node in moving)


def nbytes(graph: Graph, index: int) -> int:
    """Bytes of a tensor's elements."""
    tensor = graph.tensors[index]
    return tensor.size * ELEMENT_TYPES[tensor.dtype].nbytes
