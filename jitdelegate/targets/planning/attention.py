"""Finds attention in lowered graphs: a product, work on each of its elements, a Softmax along rows, and the product of
that with a third matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jitdelegate.ir.forms import Map, MatMul, Softmax, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.targets.planning.implicit_gemm import permuted


@dataclass(frozen=True, slots=True)
class Attention:
    """Positions of the nodes of one attention. Nothing else reads what is between them.

    Attributes:
        scores: the MatMul whose result is the scores.
        maps: Maps that change each score by itself, in order; they may read other tensors besides.
        softmax: the Softmax of the last Map's result.
        product: the MatMul that has the Softmax's result as a, each matrix of it once.
        views: Views between these, which keep the last axis.
    """

    scores: int
    maps: tuple[int, ...]
    softmax: int
    product: int
    views: tuple[int, ...]


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
        return (position, (), ()) if not node.form.order else None
    if isinstance(node.form, View):
        source = node.inputs[0]
        is_row = graph.tensors[source].shape[-1:] == tensor.shape[-1:] != ()
        found = _before(graph, source, position) if is_row else None
        return found and (found[0], found[1], (*found[2], position))
    for operand in _unmoved(graph, node):
        if (found := _before(graph, operand, position)) is not None:
            return found[0], (*found[1], position), found[2]
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
