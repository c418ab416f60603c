"""Groups the delegated nodes of a graph, and the others, into partitions that run one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jitdelegate.ir.graph import ABSENT, Graph, Node


@dataclass(frozen=True, slots=True)
class Subset:
    """The nodes of one partition. All nodes that they read from have run before the partition begins.

    Attributes:
        nodes: positions of the nodes, in order.
        delegated: whether the partition is compiled.
    """

    nodes: tuple[int, ...]
    delegated: bool


def partition(nodes: Sequence[Node], delegated: Collection[int]) -> list[Subset]:
    """Partitions in the order in which they run; delegated ones and LiteRT's alternate.

    This is LiteRT's own algorithm (PartitionGraphIntoIndependentNodeSubsets in tflite/graph_info.cc), so LiteRT groups
    the same nodes when it hands them to a delegate. The first ready node decides whether the first partition is
    delegated. Each partition takes every node of its kind that is ready or becomes ready.
    """
    return list(_Partitioning(nodes, delegated).subsets())


class _Partitioning:
    """Visits each node once, in linear time: a graph may have as many partitions as nodes."""

    def __init__(self, nodes: Sequence[Node], delegated: Collection[int]) -> None:
        self._nodes = nodes
        self._delegated = frozenset(delegated)
        self._missing = {index for node in nodes for index in node.outputs}
        self._readers: dict[int, list[int]] = {index: [] for index in self._missing}
        self._lacking = [self._missing.intersection(node.inputs) for node in nodes]
        self._ready: dict[bool, list[int]] = {False: [], True: []}
        for position, lacking in enumerate(self._lacking):
            for index in lacking:
                self._readers[index].append(position)
            if not lacking:
                self._enter(position)

    def subsets(self) -> Iterator[Subset]:
        delegated = min(chain(*self._ready.values()), default=-1) in self._delegated
        while any(self._ready.values()):
            yield self._subset(delegated)
            delegated = not delegated

    def _subset(self, delegated: bool) -> Subset:
        """All nodes of this kind that are ready or become ready."""
        found: list[int] = []
        ready = self._ready[delegated]
        while ready:
            found.append(ready.pop())
            self._write(self._nodes[found[-1]].outputs)
        return Subset(tuple(sorted(found)), delegated)

    def _write(self, outputs: Sequence[int]) -> None:
        for index in self._missing.intersection(outputs):
            self._missing.remove(index)
            for position in self._readers[index]:
                self._lacking[position].remove(index)
                if not self._lacking[position]:
                    self._enter(position)

    def _enter(self, position: int) -> None:
        self._ready[position in self._delegated].append(position)


def borders(graph: Graph, nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(tensors that these nodes read from other nodes, tensors that they write for others): indices, no constants."""
    inside = {index for position in nodes for index in graph.nodes[position].outputs}
    read = {index for position in nodes for index in graph.nodes[position].inputs} - inside - {ABSENT}
    own = set(nodes)
    outputs = {index for index in inside if index in graph.outputs or not own.issuperset(graph.readers[index])}
    inputs = {index for index in read if not graph.tensors[index].is_constant}
    return tuple(sorted(inputs)), tuple(sorted(outputs))


def extract(graph: Graph, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """These nodes as a separate graph over the same tensors, with the states that they update.

    Args:
        inputs, outputs: tensors that come from and go to other nodes; tensors of states may be left out.
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
