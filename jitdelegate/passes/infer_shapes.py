"""Infers shapes and folds constants in one walk: every shape, and every value that depends on no input."""

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
    """
    tensors = list(graph.tensors)
    inference = Inference(tensors, room or Room.beside([graph]))
    nodes = tuple(node for node in graph.nodes if inference.follow(node))
    return replace(graph, tensors=tuple(tensors), nodes=nodes)


class Inference:
    """Shapes and values, found node by node.

    Attributes:
        unsure: runtime tensors whose shapes are hints of the file that nothing confirms.
    """

    def __init__(self, tensors: list[Tensor], room: Room) -> None:
        """
        Args:
            tensors: of the graph; they are replaced as their shapes and values become known.
        """
        self._tensors = tensors
        self._room = room
        self.unsure: set[int] = set()

    def follow(self, node: Node) -> bool:
        """Find out what the node writes; whether anything is left to do at run time."""
        call = self.apart(node)
        if not self.is_sure(node) or not knows_shapes(call):
            self.unsure.update(node.outputs)
            return True
        made = _outputs(call, self._room.elements)
        for index, tensor in zip(node.outputs, made, strict=True):
            self._tensors[index] = tensor
            self._room.elements -= tensor.size if tensor.is_constant else 0
        return not made or not all(tensor.is_constant for tensor in made)

    def is_sure(self, node: Node) -> bool:
        """Whether the shapes of all that the node reads are true."""
        return self.unsure.isdisjoint(node.inputs)

    def apart(self, node: Node) -> Call:
        """The node in a graph of its own tensors, so that what it takes to look at it does not grow with the graph."""
        indices = [index for index in dict.fromkeys((*node.inputs, *node.outputs)) if index != ABSENT]
        places = {ABSENT: ABSENT} | {index: place for place, index in enumerate(indices)}
        inputs, outputs = (tuple(places[index] for index in side) for side in (node.inputs, node.outputs))
        alone = replace(node, inputs=inputs, outputs=outputs)
        return Call(Graph(tuple(self._tensors[index] for index in indices), (alone,), (), ()), alone)


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
