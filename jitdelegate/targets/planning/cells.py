"""Cells: products of a few rows, and the elementwise work that follows them, also on slices of their results.

A step of an LSTM is one: each unit reads a channel of every gate, slices of a product or two, and gives a state and a
hidden value. A kernel can compute all channels of a unit, and then its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from jitdelegate.ir.expr import Arg, Expr, substitute
from jitdelegate.ir.forms import Contract, IndexMap, Map, Shape
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.passes.fuse_elementwise import applies

MOST_PIXELS = 4
"""Most rows of a product."""
MOST_CHANNELS, MOST_SUMS = 16, 32
"""Most channels of products that a unit reads, and sums of these for all rows: a kernel has them in registers."""
MOST_ACCESSES = 24
"""Most elements of other tensors that it reads, and of results that it stores."""
MOST_APPLIES = 200
"""Operations of a result, equal ones counted again: graphs could double them from node to node, and Python's functions
of expressions call themselves."""
Read = tuple[int, IndexMap]
"""A tensor, and which of its elements belongs to each element of a cell's results."""


@dataclass(frozen=True)
class Cell:
    """Nodes that one kernel can compute, each unit on its own: an element of the last axis of all results.

    Attributes:
        positions: of the nodes, in order.
        kept: of those whose results others read, Maps of the same shape, in order; the last node is one.
        channels: by position of a Contract, the first channels of the slices that the results read.
        reads: what they read from other tensors.
        values: of each result, over Args: the sums of the channels with their bias, the reads, the results before.
    """

    positions: tuple[int, ...]
    kept: tuple[int, ...]
    channels: Mapping[int, tuple[int, ...]]
    reads: tuple[Read, ...]
    values: tuple[Expr, ...]


def cells(graph: Graph) -> Iterator[Cell]:
    """Cells of a graph, from the last one on; no node is in two."""
    taken = set[int]()
    for position in reversed(range(len(graph.nodes))):
        if position not in taken and isinstance(graph.nodes[position].form, Map):
            cell = _Growth(graph, position, taken).cell()
            if cell is not None:
                taken.update(cell.positions)
                yield cell


@dataclass
class _Growth:
    """The nodes that lead to the result of a Map, from there on upwards.

    Attributes:
        last: the Map.
        taken: nodes of other cells.
        accesses: by position, how the results read what a node gives.
    """

    graph: Graph
    last: int
    taken: set[int]
    accesses: dict[int, dict[IndexMap, None]] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    kept: list[int] = field(default_factory=list)
    channels: dict[int, tuple[int, ...]] = field(default_factory=dict)
    reads: dict[Read, None] = field(default_factory=dict)
    _values: dict[Read, Expr] = field(default_factory=dict)

    def cell(self) -> Cell | None:
        """The cell; None where there is no product, or too much."""
        pixels = prod(self.shape[:-1])
        if not self.shape or not 0 < pixels <= MOST_PIXELS or len(self._axes) > 1:
            return None
        self._grow()
        if not self.channels or self._is_full:
            return None
        sums = [(position, first) for position, own in self.channels.items() for first in own]
        arguments = {one: Arg(number) for number, one in enumerate([*sums, *self.reads, *self.kept])}
        for position in sorted(self.inside):
            for access in self.accesses[position]:
                found = self._computed(position, access, arguments)
                if applies(found) > MOST_APPLIES:
                    return None
                self._values[self.graph.nodes[position].outputs[0], access] = found
        values = tuple(self._values[self.graph.nodes[position].outputs[0], self._own] for position in self.kept)
        return Cell(tuple(sorted(self.inside)), tuple(self.kept), self.channels, tuple(self.reads), values)

    @property
    def shape(self) -> Shape:
        """The shape of the results."""
        return self._shape(self.last)

    @property
    def _own(self) -> IndexMap:
        return IndexMap.along(*range(len(self.shape)))

    @property
    def _axes(self) -> list[int]:
        """The axes of the results before the last one that are longer than 1."""
        return [axis for axis, size in enumerate(self.shape[:-1]) if size > 1]

    @property
    def _is_full(self) -> bool:
        """Whether there is more than a kernel has registers and parameters for."""
        most = min(MOST_CHANNELS, MOST_SUMS // prod(self.shape[:-1]))
        is_wide = sum(map(len, self.channels.values())) > most or len(self.reads) + len(self.kept) > MOST_ACCESSES
        return is_wide or len(self.inside) > MOST_APPLIES

    def _shape(self, position: int) -> Shape:
        return self.graph.tensors[self.graph.nodes[position].outputs[0]].shape

    def _grow(self) -> None:
        """Asks nodes from the last one upwards, until there are too many: all readers of a result come before the node
        that gives it."""
        self.accesses[self.last], pending = {self._own: None}, {self.last}
        while pending and not self._is_full:
            pending.remove(position := max(pending))
            if not self._enters(position):
                result = self.graph.nodes[position].outputs[0]
                self.reads |= dict.fromkeys((result, access) for access in self.accesses[position])
                continue
            for index, own in _elementwise(self.graph.nodes[position]):
                for access in self.accesses[position]:
                    self._read(index, _composed(own, access), pending)
        self.kept.reverse()

    def _read(self, index: int, access: IndexMap, pending: set[int]) -> None:
        writer = self.graph.writer[index]
        if writer is None:
            self.reads[index, access] = None
        else:
            self.accesses.setdefault(writer, {})[access] = None
            pending.add(writer)

    def _enters(self, position: int) -> bool:
        """Lets a node be part of the cell, if it can."""
        node = self.graph.nodes[position]
        if not isinstance(node.form, Map | Contract) or position in self.taken:
            return False
        result, readers = node.outputs[0], self.graph.readers[node.outputs[0]]
        inside = [self.graph.nodes[reader] for reader in readers if reader in self.inside]
        is_data = any(result in one.inputs[: form_of(one).core] for one in inside)
        if is_data or any(own.fill is not None for _, own in _elementwise(node)):
            return False
        is_kept = position == self.last or len(inside) < len(readers) or result in self.graph.outputs
        if isinstance(node.form, Contract):
            channels = None if is_kept or not _is_rows(self.graph, node) else self._slices(position)
            if channels is None:
                return False
            self.channels[position] = channels
        elif is_kept:
            is_alike = self._shape(position) == self.shape and set(self.accesses[position]) == {self._own}
            if not is_alike or any(reader < self.last and reader not in self.inside for reader in readers):
                return False  # the results are there when the last node has run
            self.kept.append(position)
        self.inside.add(position)
        return True

    def _slices(self, position: int) -> tuple[int, ...] | None:
        """The first channels of the slices of a product that the results read; None if they read it otherwise."""
        found, shape = set[int](), self._shape(position)
        for access in self.accesses[position]:
            *outer, (dim, start, step, _) = zip(access.dims, access.starts, access.steps, shape, strict=True)
            rows = [(dim, start, step) for dim, start, step, size in outer if size > 1]
            if rows != [(axis, 0, 1) for axis in self._axes] or (dim, step) != (len(self.shape) - 1, 1):
                return None
            found.add(start)
        return tuple(sorted(found))

    def _value(self, read: Read, arguments: Mapping[object, Arg]) -> Expr:
        position = self.graph.writer[read[0]]
        if position is None or position not in self.inside:
            return arguments[read]
        return arguments[position] if position in self.kept else self._values[read]

    def _computed(self, position: int, access: IndexMap, arguments: Mapping[object, Arg]) -> Expr:
        """What a node gives at an access, after those that it reads."""
        node = self.graph.nodes[position]
        sums = [arguments[position, access.starts[-1]]] if position in self.channels else []
        operands = (self._value((index, _composed(own, access)), arguments) for index, own in _elementwise(node))
        return substitute(form_of(node).epilogue, [*sums, *operands])


def _elementwise(node: Node) -> list[Read]:
    """The operands of a node's epilogue, and how it reads them."""
    form = form_of(node)
    return list(zip(node.inputs[form.core :], form.operands, strict=True))


def _is_rows(graph: Graph, node: Node) -> bool:
    """Whether a Contract multiplies a few rows by a known matrix, and sums have 32 bits."""
    form, constants = node.form, [index for index in node.inputs[1:3] if index >= 0]
    assert isinstance(form, Contract)
    is_known = all(graph.tensors[index].is_constant for index in constants)
    rows = prod(graph.tensors[node.outputs[0]].shape[:-1])
    return form.is_pointwise and is_known and form.accumulator != "int64" and rows <= MOST_PIXELS


def _composed(inner: IndexMap, outer: IndexMap) -> IndexMap:
    """What `inner` reads of a tensor for those elements of its result that `outer` reads."""
    pairs = list(zip(inner.dims, inner.steps, strict=True))
    dims = (-1 if dim < 0 else outer.dims[dim] for dim, _ in pairs)
    added = (0 if dim < 0 else step * outer.starts[dim] for dim, step in pairs)
    steps = (step if dim < 0 else step * outer.steps[dim] for dim, step in pairs)
    return IndexMap(tuple(dims), tuple(map(sum, zip(inner.starts, added, strict=True))), tuple(steps))
