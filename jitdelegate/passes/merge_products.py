"""Merges convolutions and fully connected layers that read the same data: queries, keys and values, or heads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Contract, IndexMap, Map
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.passes.graph_builder import GraphBuilder

InPlace = Callable[[Graph], Collection[int]]
"""A lowered graph -> the results of slices that a target's kernels read in place, so that nothing copies them."""


def merge_products(graph: Graph, in_place: InPlace) -> Graph:
    """%1 = CONV_2D(%0, %w) by Contract(); %2 = CONV_2D(%0, %v) by Contract() -> %3 = CONV_2D(%0, %w and %v) by
    Contract(); %1 = SLICE(%3) by Map(); %2 = SLICE(%3) by Map(), the channels of one after those of the other.

    Requires the same window, the same expression as epilogue with constants as its operands, and that the target reads
    the slices in place: a copy costs as much as a product saves. A target calls it where launches take time; on the CPU
    merged products are not faster.
    """
    groups = list(_groups(graph))
    while groups:
        merged = _merged(graph, groups)
        found = set(in_place(merged))
        if found.issuperset(index for group in groups for index in group.results):
            return merged
        groups = [left for group in groups if len((left := group.within(found)).nodes) > 1]
    return graph


@dataclass(frozen=True)
class _Group:
    """Sibling products in order: their positions, nodes and results."""

    positions: tuple[int, ...]
    nodes: tuple[Node, ...]

    @property
    def results(self) -> tuple[int, ...]:
        return tuple(node.outputs[0] for node in self.nodes)

    def within(self, results: Collection[int]) -> _Group:
        """The members with some of the results."""
        pairs = [pair for pair in zip(self.positions, self.nodes, strict=True) if pair[1].outputs[0] in results]
        return _Group(tuple(position for position, _ in pairs), tuple(node for _, node in pairs))


def _groups(graph: Graph) -> Iterator[_Group]:
    found: dict[Hashable, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        key = _kind(graph, node, node.form) if isinstance(node.form, Contract) else None
        if key is not None:
            found.setdefault(key, []).append(position)
    for positions in found.values():
        if len(positions) > 1:
            yield _Group(tuple(positions), tuple(graph.nodes[position] for position in positions))


def _kind(graph: Graph, node: Node, form: Contract) -> Hashable | None:
    """What siblings have in common; None for products without siblings."""
    data, weights, bias, *extra = (None if index == ABSENT else graph.tensors[index] for index in node.inputs)
    result = graph.tensors[node.outputs[0]]
    if form.groups > 1 or form.transposed or data is None or data.is_constant or weights is None:
        return None
    if node.outputs[0] in graph.outputs:
        return None  # it needs memory of its own
    constants = [each for each in (weights, bias, *extra) if each is not None]
    is_known = all(each.is_constant for each in constants) and _is_plain(weights.grid)
    if not is_known or not all(_is_per_channel(each, result) for each in extra if each) or result.size == 0:
        return None
    types = tuple(each.dtype if each else "" for each in (weights, bias, *extra, result))
    alone = replace(form, operands=())
    return node.inputs[0], alone, result.shape[:-1], weights.shape[1:], weights.grid is None, types


def _is_per_channel(operand: Tensor, result: Tensor) -> bool:
    """Whether an operand of an epilogue is one number, or one for each channel of the result."""
    return operand.size == 1 or (operand.size == operand.shape[-1] == result.shape[-1])


def _is_plain(grid: Quant | None) -> bool:
    """Whether there is no grid, or one whose scales are those of whole channels."""
    return grid is None or (not grid.block_size and (len(grid.scales) == 1 or grid.axis == 0))


def _merged(graph: Graph, groups: Iterable[_Group]) -> Graph:
    draft = GraphBuilder(graph)
    first = {group.positions[0]: group for group in groups}
    members = {position for group in first.values() for position in group.positions}
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        if position in first:
            nodes += _product(graph, draft, first[position])
        elif position not in members:
            nodes.append(node)
    return draft.graph(nodes)


def _product(graph: Graph, draft: GraphBuilder, group: _Group) -> Iterator[Node]:
    """One product for a group, and the slices that are the results of its members."""
    head, operands = group.nodes[0], list(zip(*(node.inputs[1:] for node in group.nodes), strict=True))
    results = [graph.tensors[index] for index in group.results]
    channels = [result.shape[-1] for result in results]
    *pixels, _ = results[0].shape
    weights, bias, *extra = operands
    rank = len(results[0].shape)
    inputs = [head.inputs[0], draft.add(_joined([graph.tensors[index] for index in weights]))]
    inputs.append(ABSENT if bias[0] == ABSENT else draft.add(_joined([graph.tensors[index] for index in bias])))
    for indices in extra:
        rows = [_row(graph.tensors[index], count) for index, count in zip(indices, channels, strict=True)]
        inputs.append(draft.constant(graph.tensors[indices[0]].name, np.concatenate(rows)))
    form = head.form
    assert isinstance(form, Contract)
    output = draft.add(replace(results[0], shape=(*pixels, sum(channels))))
    origin = tuple(sorted({position for node in group.nodes for position in node.origin}))
    form = replace(form, operands=(IndexMap.along(rank - 1),) * len(extra))
    yield replace(head, inputs=tuple(inputs), outputs=(output,), origin=origin, form=form)
    for node, start in zip(group.nodes, accumulate(channels[:-1], initial=0), strict=True):
        access = IndexMap.along(*range(rank), starts=(0,) * (rank - 1) + (start,))
        yield replace(node, op="SLICE", inputs=(output,), attrs={}, form=Map(Arg(0), (access,)))


def _row(operand: Tensor, channels: int) -> np.ndarray:
    """One number per channel."""
    assert operand.data is not None
    return np.broadcast_to(operand.data.reshape(-1), channels)


def _joined(constants: Sequence[Tensor]) -> Tensor:
    """Constants one after another along their first axis."""
    data = np.concatenate([data for each in constants if (data := each.data) is not None])
    first = constants[0]
    joined = replace(first, shape=data.shape, shape_signature=(), grid=_joined_grid(constants), quant=None)
    return replace(joined, is_matrix=any(each.is_matrix for each in constants)).holding(data)


def _joined_grid(constants: Sequence[Tensor]) -> Quant | None:
    pairs = [(each.grid, each.shape[:1]) for each in constants if each.grid is not None]
    if not pairs:
        return None
    scales = np.concatenate([np.broadcast_to(grid.scales, channels) for grid, channels in pairs])
    zeros = np.concatenate([np.broadcast_to(grid.zero_points or (0,), channels) for grid, channels in pairs])
    return Quant(tuple(scales.tolist()), tuple(zeros.tolist()))
