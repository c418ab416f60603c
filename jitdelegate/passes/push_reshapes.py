"""Moves reshapes behind elementwise work and 1x1 convolutions, so that kernels beside them take up that work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import prod

from jitdelegate.ir.forms import Contract, IndexMap, Map, MatMul, Shape, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.passes.arrangement import common_sizes, reshaped
from jitdelegate.passes.graph_builder import GraphBuilder, reshape
from jitdelegate.passes.works_on import works_on


@works_on(View, Map, MatMul)
def push_reshapes(graph: Graph) -> Graph:
    """%1 = RESHAPE(%0) by View(); %2 = GELU(%1) by Map() -> %3 = GELU(%0) by Map(); %2 = RESHAPE(%3) by View(), if
    nothing else reads %0 and its kernel takes an epilogue, to which `fuse_elementwise` then adds the GELU.

    A 1x1 convolution (FULLY_CONNECTED) before or after a reshape from or to an image is computed on the image itself,
    and a product of as many leading axes as its operands have before a reshape, or its readers see after one. A product
    of matrices that are repeated reads each of them once.
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
        if isinstance(node.form, Contract) and node.form.is_pointwise:
            return self._pointwise(node)
        if isinstance(node.form, MatMul):
            return self._product(node)
        return None

    def _seen(self, node: Node, index: int, shape: Shape) -> int:
        """A tensor with this shape and the elements of another one."""
        root = self._root(index)
        tensor = self._draft.tensors[root]
        if tensor.shape == shape:
            return root
        if (data := tensor.data) is not None:
            return self._draft.constant(tensor.name, data.reshape(shape))
        seen = self._draft.add_like(root, shape)
        self._nodes.append(reshape(node, root, seen))
        self._roots[seen] = root
        return seen

    def _reformed(self, node: Node, core: dict[int, Shape], target: Shape) -> Node | None:
        """The node with a result of shape `target`; None where an operand of its epilogue cannot be read along that.

        Args:
            core: the tensors that are the form's own operands -> the shapes to read them in.
        """
        form, shape = form_of(node), self._shape(node.outputs[0])
        extra = [
            reshaped(self._shape(index), access, shape, target)
            for index, access in zip(node.inputs[form.core :], form.operands, strict=True)
        ]
        known = [each for each in extra if each is not None]
        accesses = tuple(IndexMap.broadcast(each, target) for each in known)
        if len(known) < len(extra) or not all(access.runs_along(target) for access in accesses):
            return None
        own, others = node.inputs[: form.core], node.inputs[form.core :]
        inputs = [self._seen(node, index, core[index]) if index in core else index for index in own]
        inputs += [self._seen(node, index, each) for index, each in zip(others, known, strict=True)]
        inside = self._draft.add_like(node.outputs[0], target)
        return replace(node, inputs=tuple(inputs), outputs=(inside,), form=replace(form, operands=accesses))

    # elementwise work

    def _elementwise(self, position: int, node: Node, form: Map) -> Node | None:
        shape = self._shape(node.outputs[0])
        roots = [root for root in dict.fromkeys(map(self._root, node.inputs)) if self._is_joinable(root, position)]
        for root in sorted(roots, key=lambda root: not self._has_kernel(root)):
            target = self._shape(root)
            if prod(target) != prod(shape):
                continue
            seen = {self._shape(index) for index in node.inputs if self._root(index) == root}
            if {target, shape} == seen and all(access.runs_along(target) for access in form.operands):
                self._joining.add(node.outputs[0])
                return None
            moved = self._reformed(node, {}, target)
            if moved is not None:
                return moved
        return None

    def _is_joinable(self, root: int, position: int) -> bool:
        """Whether the node that writes a tensor may be joined with the only node that reads it."""
        writer = self._writers.get(root)
        if writer is None or self._readers[root] != [position] or not form_of(writer).takes_epilogue:
            return False
        before = self._writers.get(self._root(writer.inputs[0])) if form_of(writer).moves_only else None
        return before is None or not isinstance(before.form, MatMul)  # which may write its result transposed itself

    def _has_kernel(self, root: int) -> bool:
        """Whether a tensor has its kernel for another reason than elementwise work, such as transposing it."""
        return root in self._joining or form_of(self._writers[root]).has_result

    # 1x1 convolutions

    def _pointwise(self, node: Node) -> Node | None:
        data, output = node.inputs[0], node.outputs[0]
        shape = self._shape(output)
        image = next(chain(self._image_before(data), self._image_after(output)), None)
        if image is None or image == shape[:-1] or self._draft.tensors[self._root(data)].is_constant:
            return None
        if not _cuts(shape[:-1], image):  # elementwise work behind the convolution could not follow
            return None
        return self._reformed(node, {data: (*image, self._shape(data)[-1])}, (*image, shape[-1]))

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

    # products

    def _product(self, node: Node) -> Node | None:
        (output,), own = node.outputs, node.inputs[:2]
        shape, shapes = self._shape(output), [self._shape(index) for index in own]
        if any(each[:-2] != shape[:-2] for each in shapes):
            return None
        for number, index in enumerate(own):
            if (repeated := self._repeated(node, number, index)) is not None:
                return repeated
        leads = [lead for index in (*own, output) for lead in self._leads(index)]
        leading = max((lead for lead in leads if _cuts(shape[:-2], lead)), key=len, default=shape[:-2])
        if len(leading) <= len(shape) - 2:
            return None
        core = {index: (*leading, *each[-2:]) for index, each in zip(own, shapes, strict=True)}
        return self._reformed(node, core, (*leading, *shape[-2:]))

    def _repeated(self, node: Node, number: int, index: int) -> Node | None:
        """The product that reads each matrix once of those that are repeated for it, as a head of keys is for a group
        of heads; None where none are."""
        turn = self._turned(index)
        rows = self._shape(index if turn is None else turn.inputs[0])[-2:]
        root = self._root(index if turn is None else turn.inputs[0])
        writer, repeated = self._writers.get(root), self._shape(root)
        if writer is None or not isinstance(writer.form, Map) or not writer.form.moves_only or repeated[-2:] != rows:
            return None
        source, access, shape = writer.inputs[0], writer.form.operands[0], self._shape(node.outputs[0])
        once = self._shape(source)
        if len(once) != len(repeated) or once[-2:] != rows or access != IndexMap.broadcast(once, repeated):
            return None
        axes = [axis for axis, size in enumerate(repeated[:-2]) if size > 1]
        leading = tuple(repeated[axis] for axis in axes)
        is_repeated = once != repeated and all(one in (1, size) for one, size in zip(once, repeated, strict=True))
        if not is_repeated or not _cuts(shape[:-2], leading):
            return None
        matrices = self._seen(node, source, (*(once[axis] for axis in axes), *once[-2:]))
        if turn is not None:
            matrices = self._turn(turn, matrices)
        other = node.inputs[1 - number]
        inputs = (*node.inputs[:number], matrices, *node.inputs[number + 1 :])
        core = {other: (*leading, *self._shape(other)[-2:])}
        return self._reformed(replace(node, inputs=inputs), core, (*leading, *shape[-2:]))

    def _turned(self, index: int) -> Node | None:
        """The node that transposes the matrices of a tensor; None where none does."""
        root = self._root(index)
        writer, shape = self._writers.get(root), self._shape(root)
        if writer is None or not isinstance(writer.form, Map) or not writer.form.moves_only:
            return None
        last = len(shape) - 1
        is_turned = last > 0 and writer.form.operands == (IndexMap.along(*range(last - 1), last, last - 1),)
        return writer if is_turned and shape[-2:] == self._shape(index)[-2:] else None

    def _turn(self, turn: Node, matrices: int) -> int:
        """The result of a node that transposes matrices, for other ones."""
        *leading, rows, columns = self._shape(matrices)
        turned, last = self._draft.add_like(matrices, (*leading, columns, rows)), len(leading)
        form = Map(operands=(IndexMap.along(*range(last), last + 1, last),))
        self._append(replace(turn, inputs=(matrices,), outputs=(turned,), form=form))
        return turned

    def _leads(self, index: int) -> Iterator[Shape]:
        """The leading sizes that a product's operand or result has before or after reshapes, of an image at most."""
        root, last = self._root(index), self._shape(index)[-2:]
        seen = [self._shape(root)]
        for position in self._readers.get(root, ()):
            node = self._graph.nodes[position] if position < len(self._graph.nodes) else None
            seen += [self._shape(read) for read in node.inputs if self._root(read) == root] if node else []
            if node and isinstance(node.form, Map) and prod(self._shape(node.outputs[0])) == prod(seen[0]):
                seen.append(self._shape(node.outputs[0]))  # which may have further axes of size 1
        yield from (each[:-2] for each in seen if len(each) == 4 and each[-2:] == last)


def _cuts(shape: Shape, target: Shape) -> bool:
    """Whether the axes of `shape` are products of axes of `target`."""
    sizes, parts = (tuple(size for size in each if size != 1) for each in (shape, target))
    return common_sizes(sizes, parts) == parts
