"""How the delegated nodes of a graph and the others are grouped: the subsets that run one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from jitdelegate.ir.graph import ABSENT, Graph, Node


@dataclass(frozen=True, slots=True)
class Subset:
    """Nodes that run in one place, all that they read from others having run before.

    Attributes:
        nodes: their positions, in order.
        delegated: whether they are compiled.
    """

    nodes: tuple[int, ...]
    delegated: bool


def partition(nodes: Sequence[Node], delegated: Collection[int]) -> list[Subset]:
    """Subsets in the order in which they run, delegated ones and others by turns.

    This is LiteRT's own algorithm (PartitionGraphIntoIndependentNodeSubsets in tflite/graph_info.cc), so that LiteRT
    groups the same nodes when it hands them to a delegate: the first node that is ready says of which kind the next
    subset is, which then takes every node of that kind that is ready or becomes so.
    """
    return list(_Partitioning(nodes, delegated).subsets())


class _Partitioning:
    def __init__(self, nodes: Sequence[Node], delegated: Collection[int]) -> None:
        self._nodes = nodes
        self._delegated = frozenset(delegated)
        self._missing = {index for node in nodes for index in node.outputs}
        self._left = list(range(len(nodes)))

    def subsets(self) -> Iterator[Subset]:
        while self._left:
            first = next(position for position in self._left if self._is_ready(position))
            yield self._subset(first in self._delegated)

    def _is_ready(self, position: int) -> bool:
        return self._missing.isdisjoint(self._nodes[position].inputs)

    def _subset(self, delegated: bool) -> Subset:
        """All nodes of this kind that are ready, as often as there are some."""
        found: list[int] = []
        while taken := self._pass(delegated):
            found += taken
        return Subset(tuple(sorted(found)), delegated)

    def _pass(self, delegated: bool) -> list[int]:
        taken, left = [], []
        for position in self._left:
            if (position in self._delegated) == delegated and self._is_ready(position):
                self._missing.difference_update(self._nodes[position].outputs)
                taken.append(position)
            else:
                left.append(position)
        self._left = left
        return taken


def borders(graph: Graph, nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The runtime tensors that these nodes read from others, and those that they write for others, by index."""
    inside = {index for position in nodes for index in graph.nodes[position].outputs}
    read = {index for position in nodes for index in graph.nodes[position].inputs} - inside - {ABSENT}
    own = set(nodes)
    outputs = {index for index in inside if index in graph.outputs or not own.issuperset(graph.readers[index])}
    inputs = {index for index in read if not graph.tensors[index].is_constant}
    return tuple(sorted(inputs)), tuple(sorted(outputs))


def extract(graph: Graph, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """These nodes as a graph of their own over the same tensors, with the states that they update.

    Args:
        inputs, outputs: what comes from and goes to others; what belongs to states may be left out.
    """
    inside = {index for position in nodes for index in graph.nodes[position].outputs}
    states = tuple(state for state in graph.states if state.after in inside)
    before, after = {state.before for state in states}, {state.after for state in states}
    return replace(
        graph,
        nodes=tuple(graph.nodes[position] for position in sorted(nodes)),
        inputs=(*(i for i in inputs if i not in before), *(state.before for state in states)),
        outputs=(*(i for i in outputs if i not in after), *(state.after for state in states)),
        states=states,
    )
