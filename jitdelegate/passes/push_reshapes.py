"""Moves reshapes behind elementwise work and 1x1 convolutions, so that kernels beside them take up that work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import prod

from jitdelegate.ir.forms import Contract, IndexMap, Map, Shape, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.passes.arrangement import common_sizes, grouped
from jitdelegate.passes.graph_builder import GraphBuilder, reshape


def push_reshapes(graph: Graph) -> Graph:
    """%1 = RESHAPE(%0) by View(); %2 = GELU(%1) by Map() -> %3 = GELU(%0) by Map(); %2 = RESHAPE(%3) by View(), if
    nothing else reads %0 and its kernel takes an epilogue, to which `fuse_elementwise` then adds the GELU.

    A 1x1 convolution (FULLY_CONNECTED) before or after a reshape from or to an image is computed on the image itself.
    """
    return _Pushing(graph).graph()


class _Pushing:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._draft = GraphBuilder(graph)
        self._nodes: list[Node] = []
        self._roots: dict[int, int] = {}
        self._writers: dict[int, Node] = {}
        self._readers: dict[int, list[int]] = {}
        self._joining: set[int] = set()
        for position, node in enumerate(graph.nodes):
            if isinstance(node.form, View):
                self._roots[node.outputs[0]] = self._root(node.inputs[0])
                continue
            for index in dict.fromkeys(node.inputs):
                self._readers.setdefault(self._root(index), []).append(position)
        for index in graph.outputs:
            self._readers.setdefault(self._root(index), []).append(len(graph.nodes))

    def _root(self, index: int) -> int:
        """The tensor whose elements a chain of reshapes shows."""
        while index in self._roots:
            index = self._roots[index]
        return index

    def _shape(self, index: int) -> Shape:
        return self._draft.tensors[index].shape

    def graph(self) -> Graph:
        for position, node in enumerate(self._graph.nodes):
            moved = self._moved(position, node)
            if moved is None:
                self._append(node)
                continue
            output, (inside,) = node.outputs[0], moved.outputs
            self._append(moved)
            if isinstance(moved.form, Map):
                self._joining.add(inside)
            self._roots[output] = inside
            self._readers[inside] = self._readers.pop(output, [])
            self._nodes.append(reshape(node, inside, output))
        return self._draft.graph(self._nodes)

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        if not isinstance(node.form, View):
            self._writers |= dict.fromkeys(node.outputs, node)

    def _moved(self, position: int, node: Node) -> Node | None:
        """The node with another shape of its result; None where it stays."""
        if isinstance(node.form, Map):
            return self._elementwise(position, node, node.form)
        if isinstance(node.form, Contract) and node.form.is_pointwise and len(node.inputs) == node.form.core:
            return self._pointwise(node)
        return None

    def _seen(self, node: Node, index: int, shape: Shape) -> int:
        """A tensor with this shape and the elements of another one."""
        root = self._root(index)
        tensor = self._draft.tensors[root]
        if tensor.shape == shape:
            return root
        if tensor.data is not None:
            return self._draft.constant(tensor.name, tensor.data.reshape(shape))
        seen = self._draft.add_like(root, shape)
        self._nodes.append(reshape(node, root, seen))
        self._roots[seen] = root
        return seen

    # elementwise work

    def _elementwise(self, position: int, node: Node, form: Map) -> Node | None:
        shape = self._shape(node.outputs[0])
        for root in dict.fromkeys(map(self._root, node.inputs)):
            target = self._shape(root)
            if not self._may_join(root, position) or target == shape or prod(target) != prod(shape):
                continue
            shapes = [
                _reshaped(self._shape(index), access, shape, target)
                for index, access in zip(node.inputs, form.operands, strict=True)
            ]
            known = [each for each in shapes if each is not None]
            accesses = tuple(IndexMap.broadcast(each, target) for each in known)
            follows = all(access.runs_along(target) for access in accesses)
            if len(known) == len(shapes) and follows:
                inputs = tuple(self._seen(node, index, each) for index, each in zip(node.inputs, known, strict=True))
                moved = replace(form, operands=accesses)
                inside = self._draft.add_like(node.outputs[0], target)
                return replace(node, inputs=inputs, outputs=(inside,), form=moved)
        return None

    def _may_join(self, root: int, position: int) -> bool:
        """Whether the kernel that writes a tensor may take the only node that reads it into its epilogue."""
        writer = self._writers.get(root)
        if writer is None or self._readers[root] != [position]:
            return False
        form = form_of(writer)
        return root in self._joining or (form.has_result and form.takes_epilogue)

    # 1x1 convolutions

    def _pointwise(self, node: Node) -> Node | None:
        data, output = node.inputs[0], node.outputs[0]
        shape = self._shape(output)
        image = next(chain(self._image_before(data), self._image_after(output)), None)
        if image is None or image == shape[:-1] or self._draft.tensors[self._root(data)].is_constant:
            return None
        if not _cuts(shape[:-1], image):  # elementwise work behind the convolution could not follow
            return None
        seen = self._seen(node, data, (*image, self._shape(data)[-1]))
        inside = self._draft.add_like(output, (*image, shape[-1]))
        return replace(node, inputs=(seen, *node.inputs[1:]), outputs=(inside,))

    def _image_before(self, data: int) -> Iterator[Shape]:
        """The pixels of an image with the same channels as `data`, if only that shows it."""
        root = self._root(data)
        shape = self._shape(root)
        if len(shape) == 4 and shape[-1] == self._shape(data)[-1] < prod(shape) and len(self._readers[root]) == 1:
            yield shape[:-1]

    def _image_after(self, output: int) -> Iterator[Shape]:
        """The pixels of images as which the output is read."""
        for position in self._readers.get(output, ()):
            node = self._graph.nodes[position] if position < len(self._graph.nodes) else None
            if node is None or node.inputs[0] == ABSENT or self._root(node.inputs[0]) != output:
                continue
            shape = self._shape(node.inputs[0])
            is_image = form_of(node).reads_images(shape, self._shape(node.outputs[0]))
            if is_image and len(shape) == 4 and shape[-1] == self._shape(output)[-1]:
                yield shape[:-1]


def _cuts(shape: Shape, target: Shape) -> bool:
    """Whether the axes of `shape` are products of axes of `target`."""
    sizes, parts = (tuple(size for size in each if size != 1) for each in (shape, target))
    return common_sizes(sizes, parts) == parts


def _reshaped(operand: Shape, access: IndexMap, shape: Shape, target: Shape) -> Shape | None:
    """The shape in which an operand of a result of `shape` is read for `target`; None where it cannot be reshaped."""
    first = len(shape) - len(operand)
    if access != IndexMap.broadcast(operand, shape):
        return None
    is_read = [axis >= first and operand[axis - first] == size for axis, size in enumerate(shape)]
    long = [axis for axis, size in enumerate(shape) if size != 1]
    goal = [axis for axis, size in enumerate(target) if size != 1]
    sizes, goals = tuple(shape[axis] for axis in long), tuple(target[axis] for axis in goal)
    parts = common_sizes(sizes, goals)
    if parts is None:
        return None
    read = [is_read[axis] for axis, group in zip(long, grouped(parts, sizes), strict=True) for _ in group]
    found = [1] * len(target)
    for axis, group in zip(goal, grouped(parts, goals), strict=True):
        if len({read[part] for part in group}) > 1:
            return None
        found[axis] = target[axis] if read[group[0]] else 1
    return tuple(found)
