"""Columns of a picture: every vertex and edge is in them, and they are cut where little is torn apart."""

from __future__ import annotations

import pytest

from jitdelegate.commands.analysis.columns import COLUMNS, MOST_ROWS, columns
from jitdelegate.commands.analysis.layout import find_layers
from tests.commands.analysis.test_layout import GRAPHS

BLOCK = 7


def blocks(count: int) -> set[tuple[int, int]]:
    """A chain whose every BLOCK-th vertex also reads the one BLOCK before."""
    edges = {(vertex, vertex + 1) for vertex in range(count * BLOCK)}
    return edges | {(start, start + BLOCK) for start in range(0, count * BLOCK, BLOCK)}


@pytest.mark.parametrize("name", GRAPHS)
def test_columns_hold_every_vertex_once_and_every_edge(name: str) -> None:
    count, edges = GRAPHS[name]
    found = columns(count, edges)
    assert sorted(vertex for column in found for vertex in column.vertices) == list(range(count))
    inside = [edge for column in found for edge in column.inside]
    entering = [(a, b) for column in found for a, targets in column.entering.items() for b in targets]
    leaving = [(a, b) for column in found for a, targets in column.leaving.items() for b in targets]
    assert sorted(entering) == sorted(leaving)
    assert sorted(inside + entering) == sorted(edges)
    for column in found:
        own = set(column.vertices)
        assert own >= column.leaving.keys()
        assert own.isdisjoint(column.entering)


def test_a_chain_becomes_columns_of_about_equal_length() -> None:
    found = columns(33, {(vertex, vertex + 1) for vertex in range(32)})
    lengths = [len(column.vertices) for column in found]
    assert len(lengths) == COLUMNS
    assert max(lengths) - min(lengths) <= 1


def test_blocks_are_not_torn_apart() -> None:
    found = columns(6 * BLOCK + 1, blocks(6))
    assert len(found) > 1
    assert [len(column.entering) for column in found] == [0] + [1] * (len(found) - 1)


def test_columns_of_large_graphs_are_short() -> None:
    count, edges = GRAPHS["large"]
    layers = find_layers(count, edges)
    for column in columns(count, edges):
        own = [layers[vertex] for vertex in column.vertices]
        assert max(own) - min(own) < 2 * MOST_ROWS
