"""A subgraph as a picture: an inline SVG with its partitions coloured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from jitdelegate.analysis.colours import FIXED, colour, label
from jitdelegate.analysis.facts import NodeFact, SubgraphFacts, TensorFact
from jitdelegate.analysis.layout import HEIGHT, WIDTH, Layout, Point, layout
from jitdelegate.analysis.text import printable

LONGEST = 22
"""Most characters in a node."""


def picture(facts: SubgraphFacts) -> str:
    """The graph; a node links to its row of the table, `row_id`, and shows its facts under the pointer."""
    vertices = _Vertices(facts)
    found = layout(vertices.count, vertices.edges)
    width, height = found.size
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="The graph of subgraph {facts.index}">',
        *_edges(found),
        *_ports(vertices, found),
        *(_node(facts, node, found.nodes[place]) for place, node in enumerate(vertices.nodes, vertices.first)),
        "</svg>",
    ]
    return "\n".join(parts)


def row_id(facts: SubgraphFacts, node: NodeFact) -> str:
    """The id of an operator's row in the table."""
    return f"n{facts.index}-{node.index}"


def safe(text: object) -> str:
    """Text for any place in a page: no markup, no quotes, printable characters only."""
    return escape(printable(str(text)), quote=True)


def drawn(facts: SubgraphFacts) -> list[NodeFact]:
    """The operators, except folded ones that depend on constants alone, such as those that unpack weights."""
    known: set[int] = set()
    found = []
    for node in facts.nodes:
        read = {tensor.index for tensor in node.inputs if tensor is not None and not tensor.constant}
        if node.place == "folded" and read <= known:
            known.update(tensor.index for tensor in node.outputs)
        else:
            found.append(node)
    return found


class _Vertices:
    """Inputs, operators and outputs as the nodes of a layout, in this order.

    Attributes:
        nodes: the operators that are drawn.
        first: the number of the first operator.
        count: the number of vertices.
        edges: (writer, reader) to whether it crosses places or partitions.
    """

    def __init__(self, facts: SubgraphFacts) -> None:
        self.inputs, self.outputs, self.nodes = facts.inputs, facts.outputs, drawn(facts)
        self.first = len(facts.inputs)
        self.last = self.first + len(self.nodes)
        self.count = self.last + len(facts.outputs)
        self.edges: dict[tuple[int, int], bool] = {}
        writer = {tensor.index: place for place, tensor in enumerate(facts.inputs)}
        for target, node in enumerate(self.nodes, self.first):
            for tensor in node.inputs:
                if tensor is not None and tensor.index in writer:
                    self._add(writer[tensor.index], target)
            writer |= {tensor.index: target for tensor in node.outputs}
        for target, tensor in enumerate(facts.outputs, self.last):
            if tensor.index in writer:
                self._add(writer[tensor.index], target)

    def _add(self, source: int, target: int) -> None:
        inside = [self.nodes[vertex - self.first] for vertex in (source, target) if self.first <= vertex < self.last]
        self.edges[source, target] = len({label(node) for node in inside} - {"folded"}) > 1


def _edges(found: Layout) -> Iterator[str]:
    for line in found.lines:
        yield f'<path class="{"crossing" if line.marked else "edge"}" d="{_curve(line.points)}"/>'


def _curve(points: Sequence[Point]) -> str:
    """The path of a line that passes every point vertically."""
    text = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x, y), (u, v) in pairwise(points):
        middle = (y + v) / 2
        text += f"C{x:.0f} {middle:.0f} {u:.0f} {middle:.0f} {u:.0f} {v:.0f}"
    return text


def _ports(vertices: _Vertices, found: Layout) -> Iterator[str]:
    for kind, start, tensors in (("input", 0, vertices.inputs), ("output", vertices.last, vertices.outputs)):
        for place, tensor in enumerate(tensors):
            yield _box(
                found.nodes[start + place], tensor.name, FIXED[kind], f"{kind} {tensor_text(tensor)}", HEIGHT / 2
            )


def _node(facts: SubgraphFacts, node: NodeFact, point: Point) -> str:
    lines = [
        f"{node.index} {node.op}, {label(node)}",
        *([node.reason] if node.reason else []),
        *(f"reads {tensor_text(tensor)}" for tensor in node.inputs if tensor is not None),
        *(f"writes {tensor_text(tensor)}" for tensor in node.outputs),
        "multiply-adds not known" if node.multiply_adds is None else f"{node.multiply_adds:,} multiply-adds (estimate)",
        f"{node.bytes:,} bytes (estimate)",
    ]
    box = _box(point, f"{node.index} {node.op}", colour(node), "\n".join(lines), 4)
    return f'<a href="#{row_id(facts, node)}">{box}</a>'


def _box(point: Point, text: str, fill: str, title: str, rounding: float) -> str:
    x, y = point
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    told = "\n".join(safe(line) for line in title.split("\n"))
    return (
        f'<g><title>{told}</title><rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH:.0f}" '
        f'height="{HEIGHT:.0f}" rx="{rounding:.0f}" fill="{fill}"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}">{safe(shown)}</text></g>'
    )


def tensor_text(tensor: TensorFact) -> str:
    """A tensor in one line."""
    sizes = ",".join(map(str, tensor.shape))
    kinds = [name for name in ("constant", "quantized", "variable") if getattr(tensor, name)]
    return " ".join([f"{tensor.name} {tensor.type}[{sizes}]", *kinds])
