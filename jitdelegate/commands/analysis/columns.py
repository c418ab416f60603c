"""Columns of a tall graph, to stand side by side: the graph is cut between layers, where few edges pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from jitdelegate.commands.analysis.layout import find_layers

COLUMNS = 5
"""How many stand side by side on a common screen."""
LEAST_ROWS, MOST_ROWS = 5, 10
"""Layers that a column should have."""
ROW_COST = 0.1
"""Cost of a column that has a layer too many or too few, as its square; each edge beyond one that is cut costs 1."""


@dataclass(frozen=True, slots=True)
class Column:
    """Attributes:
    vertices: in order.
    inside: edges between them.
    entering: of an earlier column's vertex, the vertices here that read it.
    leaving: of a vertex here, the vertices of later columns that read it.
    """

    vertices: list[int]
    inside: list[tuple[int, int]]
    entering: dict[int, list[int]]
    leaving: dict[int, list[int]]


def columns(count: int, edges: Collection[tuple[int, int]]) -> list[Column]:
    """The columns of a graph with vertices 0 ... count - 1.

    Args:
        edges: (source, target) with source < target.
    """
    layers = find_layers(count, edges)
    starts = _starts(_cut_edges(layers, edges))
    column_of_layer = [number for number, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]
    home = [column_of_layer[layer] for layer in layers]
    found = [Column([], [], {}, {}) for _ in starts[1:]]
    for vertex, column in enumerate(home):
        found[column].vertices.append(vertex)
    for source, target in sorted(edges):
        if home[source] == home[target]:
            found[home[source]].inside.append((source, target))
        else:
            found[home[source]].leaving.setdefault(source, []).append(target)
            found[home[target]].entering.setdefault(source, []).append(target)
    return found


def _cut_edges(layers: Sequence[int], edges: Collection[tuple[int, int]]) -> list[int]:
    """How many vertices above each layer are read in it or below."""
    last: dict[int, int] = {}
    for source, target in edges:
        last[source] = max(last.get(source, 0), layers[target])
    changes = [0] * (max(layers, default=-1) + 3)
    for source, end in last.items():
        changes[layers[source] + 1] += 1
        changes[end + 1] -= 1
    return list(accumulate(changes))[: max(layers, default=-1) + 1]


def _starts(cut_edges: Sequence[int]) -> list[int]:
    """The first layer of each column, and the number of layers: the cheapest way to cut."""
    count = len(cut_edges)
    wished = min(max(-(-count // COLUMNS), LEAST_ROWS), MOST_ROWS)
    costs, before = [0.0] * (count + 1), [0] * (count + 1)
    for end in range(1, count + 1):
        costs[end], before[end] = min(
            (costs[start] + max(cut_edges[start] - 1, 0) + ROW_COST * (end - start - wished) ** 2, start)
            for start in range(max(end - 2 * wished, 0), end)
        )
    starts = [count]
    while starts[-1]:
        starts.append(before[starts[-1]])
    return starts[::-1]
