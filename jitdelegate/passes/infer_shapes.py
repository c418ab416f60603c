"""Infers shapes and folds constants in one walk: every shape, and every value that depends on no input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.faults import reason_of
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call, Shape
from jitdelegate.passes.litert_shapes import litert_shapes
from jitdelegate.passes.resize_inputs import reshaped

MAX_FOLDED = 1 << 25
"""Most elements of all folded constants together, unless GROWTH times the file's constants is more. The rest is left to
the run: a short file can ask for constants that fill the memory."""

GROWTH = 8


@dataclass
class Room:
    """How many more elements may be folded into constants."""

    elements: int

    @classmethod
    def beside(cls, graphs: Iterable[Graph]) -> Room:
        """The limit for graphs with these constants."""
        stored = (tensor.data.size for graph in graphs for tensor in graph.tensors if tensor.data is not None)
        return cls(max(MAX_FOLDED, GROWTH * sum(stored)))


def infer_shapes(graph: Graph, room: Room | None = None) -> Graph:
    """%2 = RELU(%1: f32[8,4]): f32[1,4] -> %2: f32[8,4]; %2 = DEQUANTIZE(%1: f16[8]) -> the constant %2: f32[8].

    The shapes in a file are hints; shapes that operators compute from the inputs' shapes and from constants are true.
    Shapes and constants are inferred together, since SHAPE makes constants from shapes and RESHAPE shapes from
    constants. LiteRT is asked about unknown nodes, and about nodes that their operator refuses. Where it finds out a
    shape only as it runs, or an operator fails, the outputs keep the file's shapes, and nothing is inferred from these.
    """
    tensors = list(graph.tensors)
    inference = Inference(tensors, room or Room.beside([graph]), graph.called)
    nodes = tuple(left for node in graph.nodes if (left := inference.follow(node)) is not None)
    return replace(graph, tensors=tuple(tensors), nodes=nodes, called=())


class Inference:
    """Shapes and values, found node by node.

    Attributes:
        unsure: runtime tensors whose shapes are unconfirmed hints of the file.
    """

    def __init__(self, tensors: list[Tensor], room: Room, graphs: Sequence[Graph]) -> None:
        """
        Args:
            tensors: the graph's tensors; entries are replaced as their shapes and values become known.
            graphs: the model's subgraphs, by index; none where no node names one.
        """
        self._tensors = tensors
        self._room = room
        self._graphs = graphs
        self.unsure: set[int] = set()

    def follow(self, node: Node) -> Node | None:
        """Infer the node's outputs; the node if it still has to run, as one with trouble if its operator fails."""
        try:
            return node if self._has_to_run(node) else None
        except Exception as error:  # noqa: BLE001 - a fault of ours
            self.unsure.update(node.outputs)
            return replace(node, trouble=reason_of(error))

    def _has_to_run(self, node: Node) -> bool:
        call = self.apart(node)
        if not self.is_sure(node) or not knows_shapes(call):
            self._ask(node, call)
            return True
        made = _outputs(call, self._room.elements)
        for index, tensor in zip(node.outputs, made, strict=True):
            self._tensors[index] = tensor
            self._room.elements -= tensor.size if tensor.is_constant else 0
        return not made or not all(tensor.is_constant for tensor in made)

    def _ask(self, node: Node, call: Call) -> None:
        """Take the shapes of the outputs of a node that is not compiled from LiteRT, if it knows them."""
        shapes = litert_shapes(call, self._graphs) if self.is_sure(node) else None
        if shapes is None:
            self.unsure.update(node.outputs)
        for place, index in enumerate(node.outputs):
            tensor = self._tensors[index]
            known = tensor if shapes is None else reshaped(tensor, shapes[place])
            self._tensors[index] = replace(known, is_static=shapes is not None)

    def is_sure(self, node: Node) -> bool:
        """Whether the shapes of all the node's inputs are true."""
        return self.unsure.isdisjoint(node.inputs)

    def apart(self, node: Node) -> Call:
        """The node in a graph of only its own tensors, so that the cost of a node does not grow with the graph."""
        indices = [index for index in dict.fromkeys((*node.inputs, *node.outputs)) if index != ABSENT]
        places = {ABSENT: ABSENT} | {index: place for place, index in enumerate(indices)}
        inputs, outputs = (tuple(places[index] for index in side) for side in (node.inputs, node.outputs))
        alone = replace(node, inputs=inputs, outputs=outputs)
        return Call(Graph(tuple(self._tensors[index] for index in indices), (alone,), (), ()), alone)


def knows_shapes(call: Call) -> bool:
    """Whether the shapes of a node's outputs follow from its operands."""
    op = find(call.node)
    return op is not None and op.knows_shapes(call)


def unsure_tensors(graph: Graph) -> set[int]:
    """Runtime tensors whose shapes in the file are unconfirmed hints: LiteRT determines them at run time."""
    unsure: set[int] = set()
    for node in graph.nodes:
        if not unsure.isdisjoint(node.inputs) or not _is_settled(graph, node):
            unsure.update(node.outputs)
    return unsure


def _is_settled(graph: Graph, node: Node) -> bool:
    """Whether the shapes of a node's outputs follow from those of its inputs, or were LiteRT's answer for these."""
    return all(graph.tensors[index].is_static for index in node.outputs) or knows_shapes(Call(graph, node))


def _outputs(call: Call, most: int) -> list[Tensor]:
    """Outputs of a node with known shapes, with their values if these are known and have at most `most` elements."""
    op = find(call.node)
    assert op is not None
    outputs = [reshaped(tensor, shape) for tensor, shape in zip(call.outputs, op.shapes(call), strict=True)]
    are_empty = bool(outputs) and all(_is_empty(tensor.shape) for tensor in outputs)
    if not (are_empty or op.foldable(call)) or next(op.structure(call), None) is not None:
        return outputs
    if are_empty:
        return [tensor.holding(np.zeros(tensor.shape)) for tensor in outputs]
    if sum(prod(tensor.shape) for tensor in outputs) > min(most, op.folds) or next(op.sizes(outputs), None):
        return outputs
    with np.errstate(all="ignore"):
        grid = op.grid(call)
        return [replace(each.holding(data), grid=grid) for each, data in zip(outputs, op.fold(call), strict=True)]


def _is_empty(shape: Shape) -> bool:
    """Whether the shape has no elements and numpy can represent it."""
    return min(shape, default=1) == 0 and prod(size for size in shape if size) <= MAX_FOLDED
