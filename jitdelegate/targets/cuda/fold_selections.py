"""Channel shuffles folded into the weights of the 1x1 convolutions that read them.

A convolution of some channels in some order is one of all channels with its weights in that order, and zeros. It
multiplies more, but nobody has to move the channels: with few pixels that costs less than a launch. Neighbouring
channels, in any order, are a slice, which is read where it lies.

Zeros times infinity or NaN are NaN. So where the selected channels have others between them, as in ShuffleNet, which
takes 13 launches less this way, and a channel that was not selected is infinite or NaN, all results of its pixel are
NaN, also those that LiteRT has as finite numbers. In float16 that may come of a number above 65504.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Contract, IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.remove_dead import remove_dead
from jitdelegate.targets.cuda.cost import LATENCY_CYCLES
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.index_map import walk

MOST_ELEMENTS = 1 << 22
"""Most elements of a tensor that is looked at: each has its index in an array."""

SAMPLES = 6
"""About how many pixels are looked at before all."""


def fold_selections(graph: Graph, gpu: Gpu) -> Graph:
    """%2 = SHUFFLE(%0); %3 = SLICE(%2); %4 = SLICE(%2); CONV(%3, w) -> CONV(%0, w with zeros); %4 = SELECT(%0), if
    nothing else reads the shuffle, and at most one Map is left."""
    return remove_dead(_Folding(graph, gpu).graph())


@dataclass(frozen=True, slots=True)
class _Selection:
    """Channel c of each pixel of a tensor is channel `channels[c]` of the same pixel of tensor `source`, which has
    `depth` channels per pixel."""

    source: int
    channels: np.ndarray
    depth: int

    @property
    def run(self) -> tuple[int, int]:
        """(first, number) of neighbouring channels to multiply: the selected ones if they are a run, else all."""
        first, end = int(self.channels.min()), int(self.channels.max()) + 1
        return (first, end - first) if len(np.unique(self.channels)) == end - first else (0, self.depth)

    @property
    def axes(self) -> tuple[Shape, Shape] | None:
        """(sizes, strides) of two axes that the channels run along, one with stride 1; None if they run otherwise."""
        channels = self.channels
        steps = np.asarray(np.diff(channels))
        breaks = np.flatnonzero(steps != steps[:1])
        inner = int(breaks[0]) + 1 if len(breaks) else 1
        if inner == 1 or len(channels) % inner:
            return None
        sizes, strides = (len(channels) // inner, inner), (int(channels[inner] - channels[0]), int(steps[0]))
        runs = [np.arange(size) * stride for size, stride in zip(sizes, strides, strict=True)]
        is_grid = np.array_equal((channels[0] + np.add.outer(*runs)).ravel(), channels)
        if not is_grid or min(strides) != 1 or self.depth % max(strides):
            return None
        is_inside = channels[0] % max(strides) + sizes[strides.index(1)] <= max(strides)
        return (sizes, strides) if is_inside else None


class _Folding:
    def __init__(self, graph: Graph, gpu: Gpu) -> None:
        self._graph, self._gpu = graph, gpu
        self._draft = GraphBuilder(graph)
        self._changed: dict[int, list[Node]] = {}

    def graph(self) -> Graph:
        for position, node in enumerate(self._graph.nodes):
            if self._moves(node) and not self._cuts(node):
                self._fold(position)
        nodes = enumerate(self._graph.nodes)
        return self._draft.graph([one for at, node in nodes for one in self._changed.get(at, [node])])

    def _moves(self, node: Node) -> bool:
        """Whether a node is a Map that only moves the elements of a tensor."""
        form, tensors = node.form, self._graph.tensors
        if not isinstance(form, Map) or not form.moves_only or len(node.inputs) != 1:
            return False
        is_small = tensors[node.outputs[0]].size <= MOST_ELEMENTS
        return is_small and form.operands[0].fill is None and not tensors[node.inputs[0]].is_constant

    def _cuts(self, node: Node) -> bool:
        """Whether a Map that moves elements only leaves some out."""
        form = node.form
        assert isinstance(form, Map)
        access, rank = form.operands[0], len(self._graph.tensors[node.outputs[0]].shape)
        return access.dims == tuple(range(rank)) and set(access.steps) <= {1}

    def _ends(self, index: int) -> Iterator[int]:
        """The tensors that are slices and Views of a tensor and are read by other nodes; outputs count too."""
        for position in self._graph.readers[index]:
            node = self._graph.nodes[position]
            if isinstance(node.form, View) or (self._moves(node) and self._cuts(node)):
                yield from self._ends(node.outputs[0])
            else:
                yield index
        if index in self._graph.outputs:
            yield index

    def _fold(self, position: int) -> None:
        """Folds a shuffle into all that reads it, if that pays."""
        shuffle = self._graph.nodes[position]
        folded: list[tuple[int, _Selection]] = []
        moved: dict[int, _Selection] = {}
        ends = dict.fromkeys(self._ends(shuffle.outputs[0]))
        if not any(self._is_pointwise(at, end) for end in ends for at in self._graph.readers[end]):
            return
        for end in ends:
            selection = self._selection(end, position)
            readers = [] if end in self._graph.outputs else self._graph.readers[end]
            if selection is None or not readers:
                return
            others = [at for at in readers if not self._takes(at, end, selection)]
            if others and (selection.axes is None or self._is_all(end, position)):
                return
            folded += [(at, selection) for at in readers if at not in others]
            if others:
                moved[end] = selection
        if not folded or len(moved) > 1:
            return
        for at, selection in folded:
            self._changed[at] = self._spread(self._graph.nodes[at], selection)
        for end, selection in moved.items():
            writer = self._graph.writer[end]
            assert writer is not None
            self._changed[writer] = self._selected(self._graph.nodes[writer], selection)

    def _is_all(self, end: int, position: int) -> bool:
        """Whether a tensor has all that the shuffle moves: then nothing is gained."""
        return self._graph.tensors[end].size == self._graph.tensors[self._graph.nodes[position].outputs[0]].size

    def _selection(self, end: int, position: int) -> _Selection | None:
        """What a tensor selects from the operand of the Map at `position`, of which it is a slice or View."""
        tensors, source = self._graph.tensors, self._graph.nodes[position].inputs[0]
        while (writer := self._graph.writer[source]) is not None and isinstance(self._graph.nodes[writer].form, View):
            source = self._graph.nodes[writer].inputs[0]
        *image, channels = tensors[end].shape or (1,)
        pixels = prod(image)
        depth, rest = divmod(tensors[source].size, pixels)
        if rest or tensors[source].dtype != tensors[end].dtype:
            return None
        first = self._read(np.arange(channels), end, position)
        for some in (np.arange(0, pixels, pixels // SAMPLES + 1), np.arange(pixels)):  # a few rule most others out
            elements = (some[:, None] * channels + np.arange(channels)).ravel()
            wanted = (some[:, None] * depth + first).ravel()
            if first.max() >= depth or not np.array_equal(self._read(elements, end, position), wanted):
                return None
        return _Selection(source, first, depth)

    def _read(self, elements: np.ndarray, index: int, position: int) -> np.ndarray:
        """Which elements of the operand of the Map at `position` these elements of a tensor are."""
        at, tensors = -1, self._graph.tensors
        while at != position:
            writer = self._graph.writer[index]
            assert writer is not None
            node, at = self._graph.nodes[writer], writer
            if isinstance(node.form, Map):
                shapes = tensors[node.inputs[0]].shape, tensors[index].shape
                elements = _through(elements, node.form.operands[0], *shapes)
            index = node.inputs[0]
        return elements

    def _is_pointwise(self, position: int, index: int) -> bool:
        """Whether a node is a 1x1 convolution of a tensor."""
        form, inputs = self._graph.nodes[position].form, self._graph.nodes[position].inputs
        return isinstance(form, Contract) and form.is_pointwise and inputs[0] == index and inputs.count(index) == 1

    def _takes(self, position: int, index: int, selection: _Selection) -> bool:
        """Whether a node is a 1x1 convolution of the selected channels, to which the other channels cost little."""
        if not self._is_pointwise(position, index):
            return False
        node, tensors = self._graph.nodes[position], self._graph.tensors
        weights = tensors[node.inputs[1]]
        if weights.data is None or weights.grid is not None:
            return False
        is_port = selection.source in (*self._graph.inputs, *self._graph.outputs)
        if is_port and selection.run[1] < selection.depth:
            return False  # these may be stored in another type than a slice of them, which is a launch then
        image = prod(tensors[index].shape[:-1])
        products = image * weights.shape[0] * (selection.depth - len(selection.channels))
        is_float = tensors[index].dtype == weights.dtype == "float32"
        return is_float and products <= LATENCY_CYCLES * self._gpu.lanes * self._gpu.multiprocessors

    def _spread(self, node: Node, selection: _Selection) -> list[Node]:
        """A convolution of all channels of the source, or of a slice that has the selected ones."""
        tensors, (first, count) = self._graph.tensors, selection.run
        weights, image = tensors[node.inputs[1]], tensors[node.inputs[0]].shape[:-1]
        assert weights.data is not None
        spread = np.matmul(weights.data, np.eye(count, dtype=np.float32)[selection.channels - first])
        before, data = self._seen(node, selection.source, (*image, selection.depth))
        if count < selection.depth:
            starts, steps = (*(0 for _ in image), first), (1,) * (len(image) + 1)
            cut = Map(RESULT, (IndexMap(tuple(range(len(steps))), starts, steps),))
            whole, data = data, self._draft.add_like(data, (*image, count))
            before.append(replace(node, inputs=(whole,), outputs=(data,), form=cut))
        constant = self._draft.constant(weights.name, spread)
        return [*before, replace(node, inputs=(data, constant, *node.inputs[2:]))]

    def _selected(self, node: Node, selection: _Selection) -> list[Node]:
        """The Map that selects what `node` writes, and a View as that."""
        output, axes = node.outputs[0], selection.axes
        assert axes is not None
        (sizes, strides), far = axes, max(axes[1])
        pixels, start = prod(self._graph.tensors[output].shape[:-1]), int(selection.channels[0])
        view, data = self._seen(node, selection.source, (pixels, selection.depth // far, far))
        dims = (0, 1, 2) if strides[0] == far else (0, 2, 1)
        access = IndexMap(dims, (0, start // far, start % far), (1, 1, 1))
        moved = self._draft.add_like(output, (pixels, *sizes))
        select = replace(node, inputs=(data,), outputs=(moved,), form=Map(RESULT, (access,)))
        return [*view, select, reshape(node, moved, output)]

    def _seen(self, node: Node, source: int, shape: Shape) -> tuple[list[Node], int]:
        """The tensor `source` under a shape, after these nodes."""
        if self._graph.tensors[source].shape == shape:
            return [], source
        seen = self._draft.add_like(source, shape)
        return [reshape(node, source, seen)], seen


def _through(indices: np.ndarray, access: IndexMap, operand: Shape, output: Shape) -> np.ndarray:
    """Which elements of an operand are read for these elements of an output."""
    found, places = walk(operand, access, output), np.unravel_index(indices, output or (1,))
    steps = (stride * place for stride, place in zip(found.strides, places, strict=True))
    return sum(steps, np.full_like(indices, found.offset))
