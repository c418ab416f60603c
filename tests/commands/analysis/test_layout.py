"""Places of a graph's nodes: every line leads downwards, nothing overlaps, and large graphs take seconds at most."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from jitdelegate.commands.analysis.layout import HEIGHT, RISE, Layout, Point, layout

WIDTH = 100.0


def laid_out(count: int, edges: dict[tuple[int, int], bool]) -> Layout:
    return layout([WIDTH] * count, edges)


def random_graph(count: int, seed: int = 0) -> dict[tuple[int, int], bool]:
    """A chain with branches, and skip connections over any distance."""
    random = np.random.default_rng(seed)
    edges = {(max(node - int(random.integers(1, 4)), 0), node): False for node in range(1, count)}
    for _ in range(count // 3):
        source, target = sorted(random.choice(count, 2, replace=False).tolist())
        edges[source, target] = bool(random.integers(2))
    return edges


GRAPHS: dict[str, tuple[int, dict[tuple[int, int], bool]]] = {
    "nothing": (0, {}),
    "alone": (1, {}),
    "chain": (4, {(0, 1): False, (1, 2): True, (2, 3): False}),
    "skip": (4, {(0, 1): False, (1, 2): False, (2, 3): False, (0, 3): True}),
    "fan": (40, {(0, node): node % 2 == 0 for node in range(1, 40)}),
    "funnel": (40, dict.fromkeys(((node, 39) for node in range(39)), False)),
    "random": (200, random_graph(200)),
    "large": (1500, random_graph(1500)),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> tuple[int, dict[tuple[int, int], bool]]:
    return GRAPHS[request.param]


def reached(found: Layout, start: Point) -> set[Point]:
    """The points to which lines lead from one."""
    following: dict[Point, list[Point]] = {}
    for line in found.lines:
        for point, after in pairwise(line.points):
            following.setdefault(point, []).append(after)
    seen, pending = set(), [start]
    while pending:
        point = pending.pop()
        if point not in seen:
            seen.add(point)
            pending += following.get(point, [])
    return seen


def test_no_two_nodes_overlap_and_all_are_inside(graph: tuple[int, dict[tuple[int, int], bool]]) -> None:
    count, edges = graph
    found = laid_out(count, edges)
    assert len(found.nodes) == count
    rows: dict[float, list[float]] = {}
    for x, y in found.nodes:
        rows.setdefault(y, []).append(x)
        assert WIDTH / 2 <= x <= found.size[0] - WIDTH / 2
        assert HEIGHT / 2 <= y <= found.size[1] - HEIGHT / 2
    for row in rows.values():
        gaps = np.diff(sorted(row))
        assert (gaps >= WIDTH).all()
    heights = sorted(rows)
    assert all(below - above >= RISE - 1e-9 for above, below in pairwise(heights))


def test_every_line_leads_downwards(graph: tuple[int, dict[tuple[int, int], bool]]) -> None:
    for line in laid_out(*graph).lines:
        heights = [y for _, y in line.points]
        assert heights == sorted(heights)
        assert len(set(heights)) == len(heights)


@pytest.mark.parametrize("name", ["chain", "skip", "fan", "funnel", "random"])
def test_lines_lead_from_every_source_to_its_targets_and_to_no_other_node(name: str) -> None:
    count, edges = GRAPHS[name]
    found = laid_out(count, edges)
    tops = {(x, y - HEIGHT / 2): node for node, (x, y) in enumerate(found.nodes)}
    for source, (x, y) in enumerate(found.nodes):
        targets = {tops[point] for point in reached(found, (x, y + HEIGHT / 2)) if point in tops}
        assert targets == {target for start, target in edges if start == source}


def test_the_way_of_a_marked_edge_is_marked_and_that_of_others_is_not() -> None:
    edges = {(0, 1): False, (1, 2): False, (2, 3): False, (3, 4): False, (0, 3): True, (0, 4): False}
    found = laid_out(5, edges)
    tops = {(x, y - HEIGHT / 2): node for node, (x, y) in enumerate(found.nodes)}
    marked = [line for line in found.lines if line.marked]
    assert [tops[line.points[-1]] for line in marked if line.points[-1] in tops] == [3]
    assert sum(len(line.points) - 1 for line in marked) == 3  # from node 0 through layers 1 and 2 to node 3


def test_a_skip_connection_passes_beside_the_nodes_between() -> None:
    found = laid_out(4, {(0, 1): False, (1, 2): False, (2, 3): False, (0, 3): False})
    bends = {point for line in found.lines for point in line.points} - {
        (x, y + sign * HEIGHT / 2) for x, y in found.nodes for sign in (-1, 1)
    }
    assert len(bends) == 2
    for x, y in bends:
        beside = next(place for place, height in found.nodes if height == y)
        assert abs(x - beside) > WIDTH / 2


def test_chains_are_straight_whatever_passes_them() -> None:
    edges = {(node, node + 1): False for node in range(8)}
    for passing in ({(0, 5): False}, {(0, 5): False, (2, 8): False}, {(0, 9): False, (3, 10): False}):
        places = layout([WIDTH] * 9 + [WIDTH / 3] * 2, edges | passing).nodes[:9]
        assert max(x for x, _ in places) - min(x for x, _ in places) < WIDTH / 10


def test_narrow_nodes_take_less_room() -> None:
    edges = {(0, node): False for node in range(1, 5)}
    wide, narrow = layout([WIDTH] * 5, edges), layout([WIDTH, WIDTH / 2, WIDTH / 2, WIDTH, WIDTH], edges)
    assert narrow.size[0] == wide.size[0] - WIDTH
    assert narrow.size[1] == wide.size[1]


def test_a_node_with_one_source_stands_by_its_target() -> None:
    found = laid_out(6, {(0, 1): False, (1, 2): False, (2, 3): False, (0, 4): False, (3, 5): False, (4, 5): False})
    assert found.nodes[5][1] - found.nodes[4][1] == RISE
    assert found.nodes[4][1] - found.nodes[0][1] == 3 * RISE


def test_equal_graphs_have_equal_pictures() -> None:
    count, edges = GRAPHS["random"]
    assert laid_out(count, edges) == laid_out(count, dict(reversed(edges.items())))
