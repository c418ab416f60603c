"""Positions of a graph's nodes in a picture: layers by longest path, ordered within a layer by barycentre."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

HEIGHT = 46.0
"""Of a node."""
GAP, RISE = 14.0, 72.0
"""Gap between the nodes of a layer, and from one layer to the next."""
BEND = 10.0
"""Width of an edge that passes a layer."""
MARGIN = 2.0
"""Around the picture."""
SWEEPS = 12

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a line, downwards, and whether it is marked."""

    points: tuple[Point, ...]
    marked: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Attributes:
    nodes: the centre of each node.
    lines: parts of edges; edges of one source share lines where possible.
    size: (width, height) of the picture.
    """

    nodes: tuple[Point, ...]
    lines: tuple[Line, ...]
    size: Point


def layout(widths: Sequence[float], edges: Mapping[tuple[int, int], bool]) -> Layout:
    """Positions for nodes.

    Args:
        widths: of each node.
        edges: (source, target) with source < target, to whether its lines are marked.
    """
    count = len(widths)
    layers = find_layers(count, edges)
    chains = _Chains(layers, widths, edges)
    places = _places(chains, _ordered(chains))
    left = min((place - chains.width(vertex) / 2 for vertex, place in enumerate(places)), default=0.0) - MARGIN
    points = [(place - left, chains.layer[vertex] * RISE + HEIGHT / 2 + MARGIN) for vertex, place in enumerate(places)]
    width = max((x + chains.width(vertex) / 2 for vertex, (x, _) in enumerate(points)), default=0.0) + MARGIN
    lines = tuple(_line(chains, points, way, marked) for way, marked in chains.ways)
    return Layout(tuple(points[:count]), lines, (width, max(layers, default=0) * RISE + HEIGHT + 2 * MARGIN))


def _line(chains: _Chains, points: Sequence[Point], way: Sequence[int], marked: bool) -> Line:
    """A line from the bottom of a node, or a bend, to the top of a node, or a bend."""
    found = [points[vertex] for vertex in way]
    for end, sign in ((0, 1), (-1, -1)):
        if way[end] < chains.count:
            x, y = found[end]
            found[end] = (x, y + sign * HEIGHT / 2)
    return Line(tuple(found), marked)


def find_layers(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Layer of each node: one below its lowest source. A node with at most one source is right above its highest
    target, so that one edge leads there instead of several."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in sorted(edges):
        sources[target].append(source)
        targets[source].append(target)
    layers = [0] * count
    for node in range(count):
        layers[node] = max((layers[source] + 1 for source in sources[node]), default=0)
    for node in reversed(range(count)):
        if targets[node] and len(sources[node]) <= 1:
            layers[node] = min(layers[target] for target in targets[node]) - 1
    return layers


class _Chains:
    """The nodes, and after them the bends where edges pass a layer; edges of one source share its bends.

    Attributes:
        count: of the nodes.
        layer: of each vertex.
        ways: (vertices, whether marked) of every line.
        above, below: the neighbours of each vertex in the layers next to it.
    """

    def __init__(self, layers: Sequence[int], widths: Sequence[float], edges: Mapping[tuple[int, int], bool]) -> None:
        self.count = len(layers)
        self._widths = widths
        self.layer = list(layers)
        self._bends: dict[int, list[int]] = {}
        for source, target in sorted(edges):
            bends = self._bends.setdefault(source, [])
            while layers[source] + len(bends) + 1 < layers[target]:
                self.layer.append(layers[source] + len(bends) + 1)
                bends.append(len(self.layer) - 1)
        self.ways = list(self._ways(edges))
        self.above: list[list[int]] = [[] for _ in self.layer]
        self.below: list[list[int]] = [[] for _ in self.layer]
        for source, target in (step for way, _ in self.ways for step in pairwise(way)):
            self.above[target].append(source)
            self.below[source].append(target)

    def _ways(self, edges: Mapping[tuple[int, int], bool]) -> Iterator[tuple[list[int], bool]]:
        """The shared bends of each source, marked up to the last marked edge, and each edge's own line."""
        marked_until: dict[int, int] = {}
        for (source, target), marked in sorted(edges.items()):
            passed = self._bends[source][: max(self.layer[target] - self.layer[source] - 1, 0)]
            yield [passed[-1] if passed else source, target], marked
            if marked:
                marked_until[source] = max(marked_until.get(source, 0), len(passed))
        for source, bends in self._bends.items():
            whole, end = [source, *bends], marked_until.get(source, 0)
            yield from ((way, marked) for way, marked in ((whole[: end + 1], True), (whole[end:], False)) if way[1:])

    def width(self, vertex: int) -> float:
        return self._widths[vertex] if vertex < self.count else BEND


def _ordered(chains: _Chains) -> list[list[int]]:
    """The vertices of each layer from left to right."""
    rows: list[list[int]] = [[] for _ in range(max(chains.layer, default=-1) + 1)]
    for vertex, layer in enumerate(chains.layer):
        rows[layer].append(vertex)
    place = [0.0] * len(chains.layer)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = chains.above if downwards else chains.below
        for row in rows if downwards else reversed(rows):
            row.sort(key=lambda vertex: _mean([place[k] for k in neighbours[vertex]], place[vertex]))
            for number, vertex in enumerate(row):
                place[vertex] = (number + 0.5) / len(row)
    return rows


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _places(chains: _Chains, rows: Sequence[Sequence[int]]) -> list[float]:
    """Centre of each vertex: near its neighbours, in the order of its layer, without overlaps. Narrow vertices, such as
    bends, weigh next to nothing and give way, so that chains of nodes are straight."""
    places = [0.0] * len(chains.layer)
    weights = [chains.width(vertex) ** 6 for vertex in range(len(places))]
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = chains.above if downwards else chains.below
        for row in rows if downwards else reversed(rows):
            wished = [
                sum(weights[k] * places[k] for k in near) / sum(weights[k] for k in near) if near else places[vertex]
                for vertex, near in ((vertex, neighbours[vertex]) for vertex in row)
            ]
            found = _apart(wished, [chains.width(vertex) for vertex in row], [weights[vertex] for vertex in row])
            for vertex, place in zip(row, found, strict=True):
                places[vertex] = place
    return places


def _apart(wished: Sequence[float], widths: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Positions in the given order, without overlaps, with the least sum of weighted squared distances from the wished
    ones (isotonic regression: neighbours that would overlap move together)."""
    starts = [0.0, *accumulate((left + right) / 2 + GAP for left, right in pairwise(widths))]
    groups: list[tuple[float, float, int]] = []  # (place less the members' starts, weight, number of members)
    for wish, start, weight in zip(wished, starts, weights, strict=False):
        place, count = wish - start, 1
        while groups and groups[-1][0] > place:
            before, heavy, more = groups.pop()
            place, weight, count = (place * weight + before * heavy) / (weight + heavy), weight + heavy, count + more
        groups.append((place, weight, count))
    flat = [place for place, _, count in groups for _ in range(count)]
    return [place + start for place, start in zip(flat, starts, strict=False)]
