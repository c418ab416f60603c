"""Which tensors are parts of larger ones, so that neither a concatenation nor a slice has to copy them.

An operand of a Concat may be written straight into the memory of the result. A Map that only cuts a slice out of its
operand writes nothing: its readers read the operand. A target says what its kernels can write and read in this way;
what they cannot is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Protocol

from jitdelegate.ir.forms import Concat, Contract, Depthwise, Form, IndexMap, Map, MatMul, Pool, Resize, Shape, View
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.runtime.element_types import dense_strides
from jitdelegate.targets.planning.buffer_plan import view_roots


@dataclass(frozen=True, slots=True)
class Part:
    """Where a tensor lies in a larger one: its element number i is element first + i // length * pitch + i % length of
    `whole`, both counted row-major.

    Attributes:
        whole: the tensor that has the memory.
        length: neighbouring elements of a row; all of them where they are all neighbours.
        pitch: distance between the first elements of two rows; `length` where there is only one row.
    """

    whole: int
    first: int
    length: int
    pitch: int

    @staticmethod
    def of(whole: int, first: int, length: int, pitch: int, size: int) -> Part:
        """The part of `size` elements."""
        is_dense = length in (pitch, size)
        return Part(whole, first, size, size) if is_dense else Part(whole, first, length, pitch)

    @property
    def is_dense(self) -> bool:
        """Whether all elements are neighbours."""
        return self.length == self.pitch

    def pitch_of(self, row: int) -> int | None:
        """The distance between neighbouring rows of `row` elements; None if it varies."""
        if self.is_dense:
            return row
        return self.pitch if self.length == row else None

    def strides(self, shape: Shape) -> Shape | None:
        """The distance between neighbours along each axis of the tensor, which has this shape; None if it varies."""
        dense = dense_strides(shape)
        if self.is_dense:
            return dense
        if self.length > 1 and all(stride * size != self.length for stride, size in zip(dense, shape, strict=True)):
            return None  # no axis begins a row
        return tuple(stride if stride < self.length else stride // self.length * self.pitch for stride in dense)

    def cut(self, inner: Part, size: int) -> Part | None:
        """The part of `size` elements that is `inner`, a part of this tensor; None if its rows have no common pitch."""
        if self.is_dense:
            return Part(self.whole, self.first + inner.first, inner.length, inner.pitch)
        line, column = divmod(inner.first, self.length)
        first = self.first + line * self.pitch + column
        if column + inner.length <= self.length and (inner.is_dense or inner.pitch % self.length == 0):
            return Part.of(self.whole, first, inner.length, inner.pitch // self.length * self.pitch, size)
        if column == 0 and inner.is_dense and size % self.length == 0:
            return Part.of(self.whole, first, self.length, self.pitch, size)
        return None


PITCHED: Mapping[type[Form], int] = {Concat: 0, Contract: 1, Depthwise: 1, Map: 0, MatMul: 2, Pool: 1, Resize: 1}
"""Forms whose kernels write rows with any pitch, and read them: so many of their own operands, and those of epilogues.
All operands of Concats and Maps are of the second kind."""


class Rules(Protocol):
    """What a target's kernels can do. Views have no kernels and are not asked about."""

    def may_write(self, node: Node, part: Part) -> bool:
        """Whether the node's kernels can write its result as this part."""

    def may_read(self, node: Node, operand: int, part: Part) -> bool:
        """Whether the node's kernels can read operand number `operand` as this part."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The tensors that lie in others.

    Attributes:
        of: tensor -> its part of another one, which lies in no other itself. Views of parts are parts.
        copied: by the result of each Concat or slice whose operands need not all be copied, the numbers of those that
            still have to be; nodes with none need no kernel.
    """

    of: Mapping[int, Part] = field(default_factory=dict)
    copied: Mapping[int, Sequence[int]] = field(default_factory=dict)


def find_parts(graph: Graph, rules: Rules, fixed: Collection[int] = ()) -> Parts:
    """The parts of a lowered graph. Inputs and outputs of the graph are parts of nothing, but may have parts.

    Args:
        fixed: tensors whose memory is overwritten while the graph runs; they are no parts and have none.
    """
    return _Finder(graph, rules, fixed).parts()


class _Finder:
    def __init__(self, graph: Graph, rules: Rules, fixed: Collection[int]) -> None:
        self._graph, self._rules = graph, rules
        self._found: dict[int, Part] = {}
        self._copied: dict[int, Sequence[int]] = {}
        self._roots = view_roots(graph)
        self._views: dict[int, list[int]] = {}
        for view, root in self._roots.items():
            self._views.setdefault(root, []).append(view)
        self._fixed = frozenset(self._roots[index] for index in fixed)
        self._kept = self._fixed.union(self._roots[index] for index in (*graph.inputs, *graph.outputs))

    def parts(self) -> Parts:
        for position in reversed(range(len(self._graph.nodes))):  # a concatenation before its operands
            if isinstance(self._graph.nodes[position].form, Concat):
                self._join(position)
        for node in self._graph.nodes:  # a source before its slices
            part, output = self._slice(node), node.outputs[0]
            if part is not None and output not in self._found and self._may_lie(output, part):
                self._enter(output, part)
                self._copied[output] = ()
        return Parts(self._found, self._copied)

    def _same(self, index: int) -> tuple[int, ...]:
        """A tensor that is no View, and its Views."""
        return index, *self._views.get(index, ())

    # operands of concatenations

    def _join(self, position: int) -> None:
        """Makes parts of its result of the operands of a Concat."""
        node = self._graph.nodes[position]
        if self._roots[node.outputs[0]] in self._fixed:
            return
        copied = [number for number, part in enumerate(self._operands(node)) if not self._put(position, number, part)]
        if len(copied) < len(node.inputs):
            self._copied[node.outputs[0]] = tuple(copied)

    def _operands(self, node: Node) -> Iterator[Part | None]:
        """The part that each operand of a Concat is."""
        form, output = form_of(node), node.outputs[0]
        assert isinstance(form, Concat)
        first, pitch = 0, prod(self._shape(output)[form.axis :])
        for index in node.inputs:
            length, size = prod(self._shape(index)[form.axis :]), prod(self._shape(index))
            inner = Part.of(output, first, length, pitch, size)
            yield self._found[output].cut(inner, size) if output in self._found else inner
            first += length

    def _put(self, position: int, number: int, part: Part | None) -> bool:
        """Lets the writer of a Concat's operand write it as this part, if it can."""
        root = self._roots[self._graph.nodes[position].inputs[number]]
        writer = self._graph.writer[root]
        if part is None or writer is None or root in self._found:
            return False
        node = self._graph.nodes[writer]
        slice_ = self._slice(node)
        if slice_ is not None and self._may_lie(root, slice_):
            return False  # it is read where its source lies
        if not self._rules.may_write(node, part) or not self._may_lie(root, part, (position, number)):
            return False
        self._enter(root, part)
        return True

    def _may_lie(self, root: int, part: Part, made: tuple[int, int] = (-1, 0)) -> bool:
        """Whether a tensor may be this part: all readers can read it, except the Concat and operand `made`, which is
        not read then."""
        size = self._graph.tensors[root].size
        if root in self._kept or any(self._graph.tensors[index].size != size for index in self._same(root)):
            return False  # a View as another type has another size
        return all(
            isinstance(node.form, View) or (position, number) == made or self._rules.may_read(node, number, part)
            for index in self._same(root)
            for position in self._graph.readers[index]
            for node in (self._graph.nodes[position],)
            for number, operand in enumerate(node.inputs)
            if operand == index
        )

    def _enter(self, root: int, part: Part) -> None:
        """Makes a tensor and its Views this part."""
        self._found |= dict.fromkeys(self._same(root), part)

    # slices

    def _slice(self, node: Node) -> Part | None:
        """The part of another tensor that a node copies and does nothing else; None if it does more."""
        form = node.form
        if not isinstance(form, Map) or not form.moves_only or len(node.inputs) != 1:
            return None
        source, output = node.inputs[0], node.outputs[0]
        root = self._roots[source]
        if self._graph.tensors[root].is_constant or root in self._fixed or self._roots[output] in self._kept:
            return None
        size = prod(self._shape(output))
        inner = _rows(form.operands[0], self._shape(source), self._shape(output), root)
        return self._found[root].cut(inner, size) if inner is not None and root in self._found else inner

    def _shape(self, index: int) -> Shape:
        return self._graph.tensors[index].shape


def _rows(access: IndexMap, operand: Shape, output: Shape, whole: int) -> Part | None:
    """The elements of an operand that an index map reads, as a part of `whole`; None if they are no rows."""
    if access.fill is not None:
        return None
    first, strides = 0, [0] * len(output)
    for dim, start, step, distance in zip(
        access.dims, access.starts, access.steps, dense_strides(operand), strict=True
    ):
        first += start * distance
        if dim >= 0:
            strides[dim] += step * distance
    axes = [(size, stride) for size, stride in zip(output, strides, strict=True) if size != 1]
    length = 1
    while axes and axes[-1][1] == length:
        length *= axes.pop()[0]
    size = prod(output)
    if not axes:
        return Part.of(whole, first, length, length, size)
    pitch = axes[-1][1]
    is_even = all(outer == stride * inner for (_, outer), (inner, stride) in pairwise(axes))
    return Part.of(whole, first, length, pitch, size) if pitch >= length and is_even else None
