"""Chains: nodes that one kernel computes together, so that what is between them is never in memory.

A finder looks for chains in a graph. A chain names its nodes, and a function that writes their launches, which come
where the last node stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from jitdelegate.ir.graph import Node

Writer = TypeVar("Writer")
"""What writes the launches of a target."""


@dataclass(frozen=True)
class Chain(Generic[Writer]):
    """Nodes that are written together.

    Attributes:
        positions: of the nodes in the graph, in order. No other node reads the results of those before the last one,
            and they are no outputs of the graph.
        write: writes the launches, given these nodes.
        writes_rows: whether the last result may have rows with any pitch, and epilogue operands beside it too.
        width: elements of an access to the first node's data, whose rows may have any pitch that it divides; 0 where
            the data has to be dense.
    """

    positions: tuple[int, ...]
    write: Callable[[Writer, Sequence[Node]], None]
    writes_rows: bool = False
    width: int = 0


Finder = Callable[[Writer], Iterator[Chain[Writer]]]


def find_chains(writer: Writer, finders: Sequence[Finder[Writer]]) -> dict[int, Chain[Writer]]:
    """The chains of the writer's graph, by the position of their last node.

    A node belongs to one chain at most: that of the first finder that has one, and of its first chain.
    """
    found: dict[int, Chain[Writer]] = {}
    taken: set[int] = set()
    for finder in finders:
        for chain in finder(writer):
            if taken.isdisjoint(chain.positions):
                taken.update(chain.positions)
                found[chain.positions[-1]] = chain
    return found
