"""Work and bytes of a subgraph's operators, for the program's shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from jitdelegate import passes
from jitdelegate.ir.graph import Graph, Model, Node
from jitdelegate.ops import find
from jitdelegate.ops.call import Call
from jitdelegate.passes.cost import node_bytes, node_work, saved_seconds
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.program.program import LITERT
from jitdelegate.targets import target_named


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


def _knows(graph: Graph, node: Node) -> bool:
    op = find(node)
    return op is not None and op.knows_shapes(Call(graph, node))
