"""Work and bytes of a subgraph's operators, with the shapes that the program is compiled for."""

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
from jitdelegate.targets.find import target_named

LITERT = "litert"


@dataclass(frozen=True)
class Measure:
    """Attributes:
    original: the subgraph as the file has it.
    folded: the same as the compiler sees it: true shapes, without what is known beforehand.
    """

    original: Graph
    folded: Graph

    @classmethod
    def of(cls, model: Model, number: int, *, hosted: bool) -> Measure:
        entered = specialize_subgraph(model, number, hosted=hosted).graphs[number]
        return cls(model.graphs[number], passes.run(entered, passes=passes.FOLD))

    @cached_property
    def _positions(self) -> dict[int, list[int]]:
        """The folded graph's nodes that stand for each operator of the file."""
        found: dict[int, list[int]] = {}
        for position, node in enumerate(self.folded.nodes):
            for origin in node.origin:
                found.setdefault(origin, []).append(position)
        return found

    def nodes(self, index: int) -> list[tuple[Graph, Node]]:
        """What an operator of the file is to the compiler, or itself where nothing of it is left."""
        found = [(self.folded, self.folded.nodes[position]) for position in self._positions.get(index, ())]
        return found or [(self.original, self.original.nodes[index])]

    def work(self, index: int) -> int | None:
        """Multiply-adds of an operator of the file; None where nobody knows."""
        known = [node_work(graph, node) for graph, node in self.nodes(index) if _knows(graph, node)]
        return sum(known) if known else None

    def bytes(self, index: int) -> int:
        """Bytes that an operator of the file reads and writes."""
        return sum(node_bytes(graph, node) for graph, node in self.nodes(index))

    def saved_seconds(self, operators: Iterable[int], place: str, loader: str) -> float | None:
        """The cost model's estimate of what compiling these operators together saves; None on LiteRT.

        Args:
            place, loader: of the partition and of its program.
        """
        positions = sorted({position for index in operators for position in self._positions.get(index, ())})
        if place == LITERT or not positions:
            return None
        return saved_seconds(self.folded, positions, target_named(place).rates(loader))


def _knows(graph: Graph, node: Node) -> bool:
    op = find(node)
    return op is not None and op.knows_shapes(Call(graph, node))
