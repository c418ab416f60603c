"""Shape inputs: inputs whose values decide shapes, such as the new shape of a RESHAPE; models specialize on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.ops import find
from jitdelegate.ops.call import INTEGERS
from jitdelegate.passes.infer_shapes import unsure_tensors
from jitdelegate.passes.support import node_reason

MOST_ELEMENTS = 64
"""Most elements of one shape input; larger inputs are data."""


def shape_inputs(graph: Graph) -> tuple[int, ...]:
    """Positions of the integer inputs whose values a folded graph needs to be compiled; none if it also needs values of
    other tensors."""
    found: set[int] = set()
    pending = [index for index in _undecided(graph) if index != ABSENT]
    seen = set(pending)
    while pending:
        index = pending.pop()
        tensor, writer = graph.tensors[index], graph.writer[index]
        if tensor.is_constant:
            continue
        if index in graph.given and tensor.dtype in INTEGERS and tensor.size <= MOST_ELEMENTS:
            found.add(graph.given.index(index))
        elif writer is None:
            return ()
        else:
            further = set(graph.nodes[writer].inputs) - {ABSENT} - seen
            seen |= further
            pending += further
    return tuple(sorted(found))


def _undecided(graph: Graph) -> Iterator[int]:
    """Tensors whose values operators need to be compiled: axes, sizes, begin and end of slices. Tensors of unknown
    shape are left out: they become known with the others, or never, like values that LiteRT computes."""
    unsure = unsure_tensors(graph)
    for node in graph.nodes:
        if not unsure.isdisjoint(node.inputs) or any(graph.tensors[index].is_static for index in node.outputs):
            unsure.update(node.outputs)
    for node in graph.nodes:
        op = find(node)
        if op is not None and node_reason(graph, node) is not None:
            needed = (*op.parameters, *op.shape_inputs)
            operands = (node.inputs[operand] for operand in needed if operand < len(node.inputs))
            yield from (index for index in operands if index not in unsure)


def fix_inputs(graph: Graph, values: Sequence[tuple[int, tuple[int, ...]]]) -> Graph:
    """%1: i32[2], an input -> the constant %1 = [3, 4], for every (position, elements) pair."""
    tensors = list(graph.tensors)
    for position, elements in values:
        index = graph.given[position]
        tensors[index] = tensors[index].holding(np.reshape(elements, tensors[index].shape))
    return replace(graph, tensors=tuple(tensors))
