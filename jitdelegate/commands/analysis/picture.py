"""A subgraph as a picture: columns of layers, each an inline SVG, with partitions coloured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from jitdelegate.base.tables import printable
from jitdelegate.commands.analysis.amounts import percent, shortened
from jitdelegate.commands.analysis.colours import label, style_class
from jitdelegate.commands.analysis.columns import Column, columns
from jitdelegate.commands.analysis.facts import NodeFact, SubgraphFacts, TensorFact
from jitdelegate.commands.analysis.layout import HEIGHT, Layout, Point, layout

WIDTH, TAG_WIDTH, TAG_HEIGHT = 184, 76, 20
"""Of an operator's box, and of a tag where an edge goes on in another column."""
PAD = 10
UNPACKING = ("DEQUANTIZE", "DENSIFY")
"""Operators that, of constants, make the weights of others."""
LONGEST_NAME, LONGEST_SHAPE = 30, 19
"""Most characters of an operator's name and of a shape in a box."""
FULL_NAME, LETTER = 14, 7.8
"""Characters of a name that fit in any font, and the width of each in longer names, which may be squeezed."""
TIMES = "\N{MULTIPLICATION SIGN}"


def picture(facts: SubgraphFacts, key: str) -> Iterator[str]:
    """One SVG for each column. A box links to its row in the table, and shows facts under the pointer.

    Args:
        key: names the subgraph in the ids of the page.
    """
    graph = _Graph(facts, key)
    for column in columns(graph.count, graph.edges):
        yield from _column(graph, column)


def row_id(key: str, node: NodeFact) -> str:
    """The id of an operator's row in the table."""
    return f"n{key}-{node.index}"


def box_id(key: str, node: NodeFact) -> str:
    """The id of an operator's box in the picture."""
    return f"b{key}-{node.index}"


def safe(text: object) -> str:
    """Text for any place in a page: no markup, no quotes, printable characters only; no percent sign begins a line."""
    return escape(printable(str(text)), quote=True).replace(" %", "&nbsp;%")


def shape_text(tensor: TensorFact) -> str:
    """1×224×224×3, or "scalar"."""
    return TIMES.join(map(str, tensor.shape)) if tensor.shape else "scalar"


def drawn(facts: SubgraphFacts) -> list[NodeFact]:
    """The operators, except those that unpack weights, and folded ones that depend on constants alone."""
    known: set[int] = set()
    found = []
    for node in facts.nodes:
        read = {tensor.index for tensor in node.inputs if tensor is not None and not tensor.constant}
        if (node.place == "folded" or node.op in UNPACKING) and read <= known:
            known.update(tensor.index for tensor in node.outputs)
        else:
            found.append(node)
    return found


class _Graph:
    """Inputs, operators and outputs as the vertices of a layout, in this order.

    Attributes:
        facts, key: as of `picture`.
        vertices: what is drawn.
        count: the number of vertices.
        edges: (writer, reader) to whether it crosses places or partitions.
        most_work: multiply-adds of the operator that has most.
    """

    def __init__(self, facts: SubgraphFacts, key: str) -> None:
        self.facts, self.key = facts, key
        nodes = drawn(facts)
        self.vertices: list[NodeFact | TensorFact] = [*facts.inputs, *nodes, *facts.outputs]
        self.count = len(self.vertices)
        self.most_work = max((node.multiply_adds or 0 for node in nodes if node.place != "folded"), default=0)
        self.edges: dict[tuple[int, int], bool] = {}
        writer = {tensor.index: place for place, tensor in enumerate(facts.inputs)}
        for target, node in enumerate(nodes, len(facts.inputs)):
            for tensor in node.inputs:
                if tensor is not None and tensor.index in writer:
                    self._add(writer[tensor.index], target)
            writer |= {tensor.index: target for tensor in node.outputs}
        for target, tensor in enumerate(facts.outputs, self.count - len(facts.outputs)):
            if tensor.index in writer:
                self._add(writer[tensor.index], target)

    def _add(self, source: int, target: int) -> None:
        ends = [self.vertices[vertex] for vertex in (source, target)]
        places = {label(end) for end in ends if isinstance(end, NodeFact)}
        self.edges[source, target] = len(places - {"folded"}) > 1


def _column(graph: _Graph, column: Column) -> Iterator[str]:
    """The column's vertices between tags for what comes from earlier columns and goes to later ones."""
    first, last = len(column.entering), len(column.entering) + len(column.vertices)
    number = {vertex: place for place, vertex in enumerate(column.vertices, first)}
    edges = {(number[a], number[b]): graph.edges[a, b] for a, b in column.inside}
    for tag, (source, targets) in enumerate(column.entering.items()):
        edges |= {(tag, number[target]): graph.edges[source, target] for target in targets}
    for tag, (source, targets) in enumerate(column.leaving.items(), last):
        edges[number[source], tag] = any(graph.edges[source, target] for target in targets)
    widths = [TAG_WIDTH] * first + [WIDTH] * len(column.vertices) + [TAG_WIDTH] * len(column.leaving)
    found = layout(widths, edges)
    width, height = found.size
    yield f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
    yield from _edges(found)
    for source, point in zip(column.entering, found.nodes, strict=False):
        yield _tag(graph, f"from {_name(graph, source)}", source, point, HEIGHT - TAG_HEIGHT)
    for vertex, point in zip(column.vertices, found.nodes[first:], strict=False):
        yield _vertex(graph, vertex, point)
    for targets, point in zip(column.leaving.values(), found.nodes[last:], strict=True):
        more = "…" if len(targets) > 1 else ""
        yield _tag(graph, f"to {_name(graph, targets[0])}{more}", targets[0], point, 0)
    yield "</svg>"


def _edges(found: Layout) -> Iterator[str]:
    """All lines of a kind as one path, which is much shorter."""
    for name, marked in (("edge", False), ("crossing", True)):
        if path := "".join(_curve(line.points) for line in found.lines if line.marked == marked):
            yield f'<path class="{name}" d="{path}"/>'


def _curve(points: Sequence[Point]) -> str:
    """The path of a line that passes every point vertically."""
    text = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x, y), (u, v) in pairwise(points):
        middle = (y + v) / 2
        text += f"V{v:.0f}" if x == u else f"C{x:.0f} {middle:.0f} {u:.0f} {middle:.0f} {u:.0f} {v:.0f}"
    return text


def _name(graph: _Graph, vertex: int) -> str:
    found = graph.vertices[vertex]
    if isinstance(found, NodeFact):
        return str(found.index)
    return "input" if vertex < len(graph.facts.inputs) else "output"


def _tag(graph: _Graph, text: str, vertex: int, point: Point, above: float) -> str:
    """Where an edge ends that another column goes on with; a link to the box there."""
    x, y = point[0] - TAG_WIDTH / 2, point[1] - HEIGHT / 2 + above
    found = graph.vertices[vertex]
    box = (
        f'<rect width="{TAG_WIDTH}" height="{TAG_HEIGHT}" rx="{TAG_HEIGHT / 2:.0f}"/>'
        f'<text x="{TAG_WIDTH / 2:.0f}" y="14">{text}</text>'
    )
    where = f'transform="translate({x:.0f} {y:.0f})" class="tag"'
    return (
        f'<a href="#{box_id(graph.key, found)}" {where}>{box}</a>'
        if isinstance(found, NodeFact)
        else f"<g {where}>{box}</g>"
    )


def _vertex(graph: _Graph, number: int, point: Point) -> str:
    vertex = graph.vertices[number]
    where = f'transform="translate({point[0] - WIDTH / 2:.0f} {point[1] - HEIGHT / 2:.0f})"'
    if isinstance(vertex, TensorFact):
        told = f"{vertex.name}\n{vertex.type} {shape_text(vertex)}"
        way = "in" if number < len(graph.facts.inputs) else "out"
        return f'<g {where} class="port">{_box(shortened(vertex.name, FULL_NAME), way, vertex, "", told)}</g>'
    share = graph.facts.share(vertex)
    told = f"{vertex.index} {vertex.op}, {label(vertex)}"
    told += f"\n{vertex.reason}" if vertex.reason else ""
    told += f"\n{percent(share)} of the multiply-adds (estimate)" if share is not None else ""
    box = _box(
        vertex.op,
        str(vertex.index),
        vertex.outputs[0] if vertex.outputs else None,
        percent(share) if share else "",
        told,
    )
    bar = ""
    if share and graph.most_work:
        length = (vertex.multiply_adds or 0) / graph.most_work * (WIDTH - 2 * PAD)
        bar = f'<path class="bar" d="M{PAD} {HEIGHT - 5:.0f}h{max(length, 1):.0f}"/>'
    names = f'id="{box_id(graph.key, vertex)}" href="#{row_id(graph.key, vertex)}"'
    return f'<a {names} {where} class="{style_class(vertex)}">{box}{bar}</a>'


def _box(name: str, number: str, tensor: TensorFact | None, share: str, told: str) -> str:
    """A box with two lines: name and number, shape and share."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    room = WIDTH - 2 * PAD - (7 * len(number) + 6 if number else 0)
    length = min(room, LETTER * len(shown))
    squeezed = f' textLength="{length:.0f}" lengthAdjust="spacingAndGlyphs"' if len(shown) > FULL_NAME else ""
    shape = shape_text(tensor) if tensor is not None else ""
    shape = shape if len(shape) <= LONGEST_SHAPE else f"{shape[: LONGEST_SHAPE - 1]}…"
    title = "\n".join(safe(line) for line in told.split("\n"))
    return (
        f'<title>{title}</title><rect width="{WIDTH}" height="{HEIGHT:.0f}" rx="5"/>'
        f'<text class="op" x="{PAD}" y="17"{squeezed}>{safe(shown)}</text>'
        f'<text x="{PAD}" y="34">{safe(shape)}</text>'
        + (f'<text class="end" x="{WIDTH - PAD}" y="17">{number}</text>' if number else "")
        + (f'<text class="end" x="{WIDTH - PAD}" y="34">{safe(share)}</text>' if share else "")
    )
