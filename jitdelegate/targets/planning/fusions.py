"""Fusions: nodes that one kernel computes together, so that what is between them is never in memory.

A pattern finds all its matches in a lowered graph, for every target. A target says which of them it fuses, and how a
fusion is written (`steps.Accepts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitdelegate.ir.forms import Contract, Depthwise, Map, MatMul, Softmax, View
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.targets.planning.implicit_gemm import permuted

Pattern = Callable[[Graph], Iterator[Any]]
"""A lowered graph -> its matches."""


@dataclass(frozen=True)
class Fusion:
    """Nodes that are written together, where the last one stands.

    Attributes:
        positions: of the nodes in the graph, in order. No other node reads the results of those before the last one,
            except of those that are `kept`, and they are no outputs of the graph.
        write: writes the kernels, given the target's writer and these nodes.
        pitched: positions of nodes whose operands and results may have rows with any pitch, as if they were alone.
        kept: positions before the last one whose results later nodes read.
        width: elements of an access to the first node's data, whose rows may have any pitch that it divides; 0 where
            the data has to be dense.
    """

    positions: tuple[int, ...]
    write: Callable[[Any, Sequence[Node]], Any]
    pitched: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    width: int = 0


SEPARABLE = {"float32"}, {"int32", "int8"}, {"int32", "uint8"}
"""Types of the sums of both, and of what is between them."""


def separables(graph: Graph) -> Iterator[tuple[int, int]]:
    """The positions of each Depthwise with one filter per channel, and of the 1x1 Contract that alone reads it; both
    sum products by constants, of floats with floats between them, or of bytes with bytes."""
    for position, node in enumerate(graph.nodes):
        between = node.outputs[0]
        reader = graph.only_reader(between)
        if isinstance(node.form, Depthwise) and node.form.multiplier == 1 and reader is not None:
            form, (data, *others) = graph.nodes[reader].form, graph.nodes[reader].inputs
            if not isinstance(form, Contract) or not form.is_pointwise or data != between or between in others:
                continue
            types = {node.form.accumulator, form.accumulator, graph.tensors[between].dtype}
            constants = (*node.inputs[1:3], *others[:2])
            if types in SEPARABLE and all(index == ABSENT or graph.tensors[index].is_constant for index in constants):
                yield position, reader


@dataclass(frozen=True, slots=True)
class Attention:
    """A product, work on each of its elements, a Softmax along rows, and the product of that with a third matrix, both
    products of floats. Nothing else reads what is between them.

    Attributes:
        scores: position of the MatMul whose result is the scores.
        maps: positions of Maps that change each score by itself, in order; they may read other tensors besides.
        softmax: position of the Softmax of the last Map's result.
        product: position of the MatMul that has the Softmax's result as a, each matrix of it once.
        views: positions of Views between these, which keep the last axis.
    """

    scores: int
    maps: tuple[int, ...]
    softmax: int
    product: int
    views: tuple[int, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """Of all nodes, in order."""
        return tuple(sorted((self.scores, *self.maps, self.softmax, self.product, *self.views)))


def attentions(graph: Graph) -> Iterator[Attention]:
    """Every attention of a graph."""
    for position, node in enumerate(graph.nodes):
        if isinstance(node.form, Softmax):
            before, after = _before(graph, node.inputs[0], position), _after(graph, node.outputs[0])
            if before is not None and after is not None:
                scores, maps, views = before
                product, more = after
                yield Attention(scores, maps, position, product, (*views, *more))


Before = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Positions of the MatMul of the scores, of the Maps after it, and of the Views between."""


def _before(graph: Graph, index: int, reader: int) -> Before | None:
    """How tensor `index`, which `reader` alone reads, comes from a product; None if it does not."""
    position, tensor = graph.writer[index], graph.tensors[index]
    if position is None or graph.only_reader(index) != reader or tensor.dtype != "float32":
        return None
    node = graph.nodes[position]
    if isinstance(node.form, MatMul):
        is_plain = node.form.accumulator == "float32" and not node.form.order
        return (position, (), ()) if is_plain else None
    if isinstance(node.form, View):
        source = node.inputs[0]
        is_row = graph.tensors[source].shape[-1:] == tensor.shape[-1:] != ()
        inner = _before(graph, source, position) if is_row else None
        return inner and (inner[0], inner[1], (*inner[2], position))
    for operand in _unmoved(graph, node):
        if (inner := _before(graph, operand, position)) is not None:
            return inner[0], (*inner[1], position), inner[2]
    return None


def _unmoved(graph: Graph, node: Node) -> Iterator[int]:
    """The operands of a Map that have the shape of its result and are read at the result's own index only."""
    if not isinstance(node.form, Map):
        return
    shape = graph.tensors[node.outputs[0]].shape
    for index, index_map in zip(node.inputs, node.form.operands, strict=True):
        own = graph.tensors[index].shape
        shift = len(shape) - len(own)
        if shift < 0 or (1,) * shift + own != shape or node.inputs.count(index) > 1:
            continue
        is_along = all(dim == shift + axis or own[axis] == 1 for axis, dim in enumerate(index_map.dims))
        if is_along and not any(index_map.starts) and all(step == 1 for step in index_map.steps):
            yield index


def _after(graph: Graph, index: int) -> tuple[int, tuple[int, ...]] | None:
    """Positions of the MatMul that alone takes tensor `index` as its a, and of the Views between; None if none does."""
    views, keys = list[int](), graph.tensors[index].shape[-1:]
    while (position := graph.only_reader(index)) is not None:
        form = graph.nodes[position].form
        if isinstance(form, MatMul):
            return (position, tuple(views)) if _takes_weights(graph, position, index) else None
        if not isinstance(form, View):
            return None
        views.append(position)
        index = graph.nodes[position].outputs[0]
        if graph.tensors[index].shape[-1:] != keys:
            return None
    return None


def _takes_weights(graph: Graph, position: int, data: int) -> bool:
    """Whether a MatMul's a is `data`, each matrix of it once."""
    node = graph.nodes[position]
    form = node.form
    assert isinstance(form, MatMul)
    if form.adj_x or form.a_order or node.inputs[0] != data or data in node.inputs[1:]:
        return False
    return permuted(graph.tensors[node.outputs[0]].shape, form.order)[:-2] == graph.tensors[data].shape[:-2]
