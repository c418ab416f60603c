"""Work and bytes of a subgraph's operators, for the program's shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.passes.cost import (
    compiled_seconds,
    litert_seconds,
    node_bytes,
    node_work,
    quantized_constants,
    saved_seconds,
    tensor_bytes,
)
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.program.program import LITERT, Program
from jitdelegate.targets import target_named

FLOATS = ("float32", "float16")
SCALE_BYTES = 4


@dataclass(frozen=True)
class Measure:
    """Attributes:
    original: the file's subgraph.
    folded: the same after folding, with true shapes.
    """

    original: Graph
    folded: Graph

    @classmethod
    def of(cls, model: Model, number: int, *, hosted: bool) -> Measure:
        entered = specialize_subgraph(model, number, hosted=hosted).graphs[number]
        return cls(model.graphs[number], passes.run(entered, passes=passes.FOLD))

    @cached_property
    def _positions(self) -> dict[int, list[int]]:
        """Position of an operator of the file to its nodes in the folded graph."""
        found: dict[int, list[int]] = {}
        for position, node in enumerate(self.folded.nodes):
            for origin in node.origin:
                found.setdefault(origin, []).append(position)
        return found

    def nodes(self, index: int) -> list[tuple[Graph, Node]]:
        """The folded nodes of an operator of the file; the operator itself if it was folded away."""
        found = [(self.folded, self.folded.nodes[position]) for position in self._positions.get(index, ())]
        return found or [(self.original, self.original.nodes[index])]

    def work(self, index: int) -> int | None:
        """Multiply-adds of an operator of the file; None if unknown."""
        known = [node_work(graph, node) for graph, node in self.nodes(index) if _knows(graph, node)]
        return sum(known) if known else None

    def bytes(self, index: int) -> int:
        """Bytes that an operator of the file reads and writes."""
        return sum(node_bytes(graph, node) for graph, node in self.nodes(index))

    def saved_seconds(self, operators: Iterable[int], place: str, loader: str, features: str) -> float | None:
        """Seconds that compiling these operators together saves, by the cost model; None on LiteRT.

        Args:
            place, loader, features: of the partition and of its program.
        """
        positions = sorted({position for index in operators for position in self._positions.get(index, ())})
        if place == LITERT or not positions:
            return None
        return saved_seconds(self.folded, positions, target_named(place).rates(loader, features))

    def run_seconds(self, partitions: Iterable[tuple[str, Iterable[int]]], program: Program, asked: str = "") -> float:
        """Seconds of one run on one thread, by the cost model.

        Args:
            partitions: (place, operators of the file) of each; operators in no partition are LiteRT's, or folded.
            asked: as `compiled_seconds`.
        """
        left, total = set(range(len(self.folded.nodes))), 0.0
        for place, operators in partitions:
            positions = sorted({position for index in operators for position in self._positions.get(index, ())})
            if place != LITERT and positions:
                rates = target_named(place).rates(program.loader, program.features)
                total += compiled_seconds(self.folded, positions, rates, asked)
                left -= {*positions}
        return total + sum(litert_seconds(self.folded, self.folded.nodes[position]) for position in left)

    def float_weights(self, asked: str) -> tuple[int, int]:
        """(bytes in the file, bytes after quantizing to 8 bits) of the weights that this kind of quantizing takes."""
        calls = [Call(self.folded, node) for node in self.folded.nodes]
        indices = {call.index(k): None for call in calls for k in quantized_constants(call, asked)}
        tensors = [stored for index in indices if (stored := self._stored(index)) is not None]
        scales = sum(SCALE_BYTES * max(each.shape[:1] + each.shape[-1:], default=1) for each in tensors)
        return sum(map(tensor_bytes, tensors)), sum(each.size for each in tensors) + scales

    @cached_property
    def _sources(self) -> dict[int, int]:
        """The first operand of each tensor's writer, such as the weights that a DEQUANTIZE unpacks."""
        nodes = [node for node in self.original.nodes if node.inputs and node.inputs[0] != ABSENT]
        return {index: node.inputs[0] for node in nodes for index in node.outputs}

    def _stored(self, index: int) -> Tensor | None:
        """The floats of the file that a constant comes from; None for others. Weights of float16 have a DEQUANTIZE."""
        number = self._sources.get(index, index)
        if number >= len(self.original.tensors):  # what folding made of others
            return None
        tensor = self.original.tensors[number]
        return tensor if tensor.is_constant and tensor.dtype in FLOATS and not tensor.is_quantized else None


def _knows(graph: Graph, node: Node) -> bool:
    op = find(node)
    return op is not None and op.knows_shapes(Call(graph, node))
