"""What is known when the model is compiled is found out then: every shape, and the values that depend on no input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.uncompiled import keeps_shape
from jitdelegate.passes.resize_inputs import reshaped

MAX_FOLDED = 1 << 25
"""More than this, or than GROWTH times the file's constants, is left to the run: a short file can ask for constants
that fill the memory."""

GROWTH = 8


@dataclass
class Room:
    """How many elements may still be made constants of."""

    elements: int

    @classmethod
    def beside(cls, graphs: Iterable[Graph]) -> Room:
        """What is right for the constants of these graphs."""
        stored = (tensor.data.size for graph in graphs for tensor in graph.tensors if tensor.data is not None)
        return cls(max(MAX_FOLDED, GROWTH * sum(stored)))


def infer_shapes(graph: Graph, room: Room | None = None) -> Graph:
    """%2 = RELU(%1: f32[8,4]): f32[1,4] -> %2: f32[8,4]; %2 = DEQUANTIZE(%1: f16[8]) -> the constant %2: f32[8].

    The shapes in a file are hints; what operators make of the inputs' shapes and of constants is true. The two go
    together, since SHAPE makes constants of shapes and RESHAPE shapes of constants. Nodes that their operator finds a
    fault in, and those that nobody knows, keep the file's shapes, for the check that reports them; from what they
    write nothing follows, since it may have another shape.

    Args:
        room: what several graphs share, such as the rounds of a loop.
    """
    room = room or Room.beside([graph])
    tensors, nodes, unsure = list(graph.tensors), [], set[int]()
    for node in graph.nodes:
        call = _apart(tensors, node)
        if not unsure.isdisjoint(node.inputs) or not knows_shapes(call):
            unsure.update(node.outputs)
            nodes.append(node)
            continue
        made = _outputs(call, room.elements)
        for index, tensor in zip(node.outputs, made, strict=True):
            tensors[index] = tensor
            room.elements -= tensor.size if tensor.is_constant else 0
        if not made or not all(tensor.is_constant for tensor in made):
            nodes.append(node)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def knows_shapes(call: Call) -> bool:
    """Whether the shapes of what a node writes follow from its operands."""
    op = find(call.node)
    return op.knows_shapes(call) if op is not None else keeps_shape(call)


def unsure_tensors(graph: Graph) -> set[int]:
    """Runtime tensors whose shapes in the file are hints that nothing confirms: LiteRT finds them out as it runs."""
    unsure: set[int] = set()
    for node in graph.nodes:
        if not unsure.isdisjoint(node.inputs) or not knows_shapes(Call(graph, node)):
            unsure.update(node.outputs)
    return unsure


def _apart(tensors: list[Tensor], node: Node) -> Call:
    """The node in a graph of its own tensors, so that what it takes to look at it does not grow with the graph."""
    indices = [index for index in dict.fromkeys((*node.inputs, *node.outputs)) if index != ABSENT]
    places = {ABSENT: ABSENT} | {index: place for place, index in enumerate(indices)}
    inputs, outputs = (tuple(places[index] for index in side) for side in (node.inputs, node.outputs))
    apart = replace(node, inputs=inputs, outputs=outputs)
    return Call(Graph(tuple(tensors[index] for index in indices), (apart,), (), ()), apart)


def _outputs(call: Call, most: int) -> list[Tensor]:
    """What a node with known shapes writes: with these, and with its values if known and of at most `most` elements."""
    op = find(call.node)
    if op is None:
        return [reshaped(call.output, call.shape(0))]
    outputs = [reshaped(tensor, shape) for tensor, shape in zip(call.outputs, op.shapes(call), strict=True)]
    if next(op.structure(call), None) is not None:
        return outputs
    if outputs and all(_is_empty(tensor.shape) for tensor in outputs):
        return [tensor.holding(np.zeros(tensor.shape)) for tensor in outputs]
    most = min(most, op.folds)
    if not op.foldable(call) or sum(prod(tensor.shape) for tensor in outputs) > most or next(op.sizes(outputs), None):
        return outputs
    with np.errstate(all="ignore"):
        return [tensor.holding(data) for tensor, data in zip(outputs, op.fold(call), strict=True)]


def _is_empty(shape: Shape) -> bool:
    """Whether there are no elements, in a shape that numpy can have."""
    return min(shape, default=1) == 0 and prod(size for size in shape if size) <= MAX_FOLDED
