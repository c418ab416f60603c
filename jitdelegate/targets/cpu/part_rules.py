"""Which tensors lie in larger ones, and where: kernels that go by the distances of a `Layout` take such parts.

A part along the channels has the distances of the whole, and its halo, which is filled once for both. It may be blocked
where it begins with a whole block, and ends with one or with the whole. Every other part is row-major and has no halo.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from jitdelegate.ir.forms import (
    NO_HALO,
    Concat,
    Contract,
    Depthwise,
    Form,
    Halo,
    Map,
    MatMul,
    Pool,
    Reduce,
    Resize,
)
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.planning.buffer_plan import view_roots
from jitdelegate.targets.planning.parts import Part, Parts, find_parts

ANY_STRIDES: frozenset[type[Form]] = frozenset({Concat, Map, MatMul})
"""Forms whose kernels have a distance for each axis of their own operands and results, of any rank. Otherwise only
images have one for each axis; tensors of other ranks are rows of pixels, with a distance between these."""
PIXELS: frozenset[type[Form]] = frozenset({Contract, Depthwise, Pool, Resize})


@dataclass(frozen=True)
class PlacedParts:
    """The parts of a graph on the CPU.

    Attributes:
        found: the parts, and what Concats and slices still copy.
        layouts: of all tensors, those of parts with the distances of the whole.
        starts: part -> bytes from the whole's element (0, 0, 0, 0) to its own.
    """

    found: Parts
    layouts: dict[int, Layout]
    starts: Mapping[int, int]


def place_parts(graph: Graph, layouts: Mapping[int, Layout], fixed: Collection[int]) -> PlacedParts:
    """The parts of a lowered graph whose tensors have these layouts.

    Args:
        fixed: tensors that are overwritten, or are never in memory as a whole.
    """
    rules = _Rules(graph, layouts)
    found = find_parts(graph, rules, fixed)
    halos, values = dict[int, Halo](), dict[int, float]()
    for index, part in found.places.items():
        for layout in (layouts[index], layouts[part.whole]):
            top, bottom, left, right = map(max, zip(halos.get(part.whole, NO_HALO), layout.halo, strict=True))
            halos[part.whole] = top, bottom, left, right
            values[part.whole] = values.get(part.whole) or layout.halo_value
    placed = dict(layouts)
    for index, halo in halos.items():
        placed[index] = replace(layouts[index], halo=halo, halo_value=values[index])
    for index, part in found.places.items():
        whole = placed[part.whole]
        layout = replace(layouts[index], halo=whole.halo, halo_value=whole.halo_value)
        if any(whole.halo):
            layout = replace(layout, length=layout.shape[3], pitch=whole.shape[3])
        elif not part.is_dense:
            layout = replace(layout, length=part.length, pitch=part.pitch)
        placed[index] = layout
    starts = {index: _start(placed[part.whole], part.first) for index, part in found.places.items()}
    return PlacedParts(found, placed, starts)


def _start(whole: Layout, first: int) -> int:
    """Bytes from a tensor's element (0, 0, 0, 0) to its element number `first`, counted row-major."""
    _, rows, columns, channels = whole.shape
    pixel, channel = divmod(first, channels)
    row, column = divmod(pixel, columns)
    image, row = divmod(row, rows)
    block, lane = divmod(channel, whole.lanes)
    start = image * whole.image + row * whole.row + column * whole.pixel
    return start + block * whole.block + lane * whole.element


class _Rules:
    def __init__(self, graph: Graph, layouts: Mapping[int, Layout]) -> None:
        self._graph, self._layouts, self._roots = graph, layouts, view_roots(graph)

    def may_write(self, node: Node, part: Part) -> bool:
        return self._fits(node, node.outputs[0], part, own=True)

    def may_read(self, node: Node, operand: int, part: Part) -> bool:
        own = operand < form_of(node).core or isinstance(node.form, Map | Concat)
        return self._fits(node, node.inputs[operand], part, own=own)

    def _fits(self, node: Node, index: int, part: Part, *, own: bool) -> bool:
        """Whether a node's kernels can write or read tensor `index`, or what it is a View of, as the part."""
        form, shape = form_of(node), self._graph.tensors[index].shape
        if isinstance(form, Reduce) and own:
            known = form.reads_images(shape, self._graph.tensors[node.outputs[0]].shape)
        else:
            known = type(form) in ANY_STRIDES | PIXELS
        layouts = [self._layouts[each] for each in (index, self._roots[index], part.whole)]
        if not known or any(layout.dtype != "float32" for layout in layouts):
            return False
        if len(shape) == 4 or (type(form) in ANY_STRIDES and own):
            strides = part.strides(shape)
            # Kernels on images, and products, load and store vectors of neighbours along the last axis. A Map stores
            # lanes that lie apart one by one, which takes longer than the copy of a Concat.
            spread = len(shape) == 4 or isinstance(form, MatMul) or index in node.outputs
            if strides is None or (spread and shape[-1:] > (1,) and strides[-1] > 1):
                return False
            return self._is_placed(part, *layouts)
        return self._is_placed(part, *layouts) and part.pitch_of(shape[-1] if shape else 1) is not None

    def _is_placed(self, part: Part, seen: Layout, own: Layout, whole: Layout) -> bool:
        """Whether the layouts of a tensor, of what it is a View of, and of the whole allow the part."""
        if all(layout.plain and not layout.blocked for layout in (seen, own, whole)):
            return True
        channels = own.shape[3]
        is_along_channels = own.shape[:3] == whole.shape[:3] and part.first + channels <= whole.shape[3]
        if seen is not own or own.blocked != whole.blocked or not is_along_channels:
            return False
        if any(own.halo) and (not any(whole.halo) or own.halo_value != whole.halo_value):
            return False  # other parts of a whole without a halo need not be along its channels
        is_last = part.first + channels == whole.shape[3]
        return not own.blocked or (part.first % own.lanes == 0 and (channels % own.lanes == 0 or is_last))
