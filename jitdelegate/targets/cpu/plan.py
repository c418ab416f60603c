"""Plans the tasks of a graph, and where each tensor lies: in the arena or in the caller's own memory.

Each node is a task, except that Views which only rename a tensor are none, and that these are one: a large Depthwise
and the 1x1 Contract after it; a large product, its Softmax and the product after that. Copies are tasks too: of inputs
into layouts with halos or blocks, and of outputs that no kernel can write straight into the caller's memory. An Update
or a Softmax writes into the memory of the tensor that it changes where nothing needs that tensor later; the kernel of
an Update finds out whether the caller's input and output are the same memory. Operands of concatenations, and slices,
are parts of a larger tensor where kernels can write and read them so (`part_rules.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jitdelegate.ir.forms import Contract, Depthwise, Softmax, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.index_forms import Update
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.cpu.code.kernel import ALIGN, Memory
from jitdelegate.targets.cpu.code.tasks import Plan, Task
from jitdelegate.targets.cpu.part_rules import PlacedParts, place_parts
from jitdelegate.targets.planning.attention import attentions
from jitdelegate.targets.planning.buffer_plan import Buffers, check_steps, lives_of, place
from jitdelegate.targets.planning.in_place import updates_in_place

FUSE_BYTES = 1024 * 1024
"""A result larger than this leaves the second-level cache before the next layer reads it."""
FEWEST_FUSED_ROWS = 48
"""Fewest rows of a product that is fused with the Softmax after it: each chunk of rows copies the other matrix."""


def plan(graph: Graph, layouts: dict[int, Layout]) -> Plan:
    """Tasks and memories of a lowered graph.

    Raises:
        CompileError: there are too many tasks.
    """
    return Planner(graph, layouts).plan()


class Planner:
    """Builds one plan."""

    def __init__(self, graph: Graph, layouts: dict[int, Layout]) -> None:
        self.graph = graph
        self.result = Plan()
        self.lanes = next(iter(layouts.values())).lanes if layouts else 1
        self.fresh = ABSENT
        self.buffers = Buffers()
        self.external: dict[int, Memory] = {}
        self.fused: dict[int, tuple[int, ...]] = {**dict(self._separable(layouts)), **dict(self._attentions(layouts))}
        self.runs_at = {before: position for position, all_before in self.fused.items() for before in all_before}
        self.in_place = updates_in_place(self.graph, self.runs_at, (Softmax,))
        self.parts = self._parts(layouts)
        self.layouts = self.parts.layouts

    def _parts(self, layouts: Mapping[int, Layout]) -> PlacedParts:
        """The parts, which share the buffers of the wholes."""
        nodes = self.graph.nodes
        changed = (index for at in self.in_place for index in (nodes[at].inputs[0], nodes[at].outputs[0]))
        parts = place_parts(self.graph, layouts, {*changed, *(nodes[at].outputs[0] for at in self.runs_at)})
        for index, part in parts.found.places.items():
            self.buffers.alias(index, part.whole)
            self.result.wholes[index] = part.whole
        self.result.copied = {nodes[at].outputs[0]: numbers for at, numbers in parts.found.copied.items()}
        return parts

    def _new_number(self) -> int:
        self.fresh -= 1
        return self.fresh

    def _dense(self, index: int) -> Layout:
        """The layout of a tensor in the caller's memory."""
        tensor = self.graph.tensors[index]
        return Layout(image_shape(tensor.shape), self.lanes, dtype=tensor.dtype)

    def plan(self) -> Plan:
        """Plans inputs, nodes and outputs in order, then memory for all of them."""
        self._place_inputs()
        self._place_nodes()
        self._place_outputs()
        check_steps("steps", len(self.result.tasks))
        self._place_arena()
        return self.result

    # inputs

    def _place_inputs(self) -> None:
        for position, index in enumerate(self.graph.inputs):
            if self.graph.tensors[index].is_constant:
                continue
            shape = self.graph.tensors[index].shape
            buffer = Memory("io", position, self._dense(index))
            if self.layouts[index].plain and self._reads_exactly(index):
                self.external[index] = buffer
            else:
                number = self._new_number()
                self.external[number] = buffer
                self.result.tasks.append(Task(source=number, target=index, shape=shape))

    def _reads_exactly(self, index: int) -> bool:
        """True if no reader loads beyond the tensor's last element."""
        return all(self._loads_exactly(self.graph.nodes[i], index) for i in self.graph.readers[index])

    def _loads_exactly(self, node: Node, index: int) -> bool:
        if isinstance(node.form, View) or self.result.copied.get(node.outputs[0]) == ():
            return self._reads_exactly(node.outputs[0])
        return form_of(node).loads_exactly(self.graph.tensors[index].shape)

    # nodes

    def _place_nodes(self) -> None:
        for position, node in enumerate(self.graph.nodes):
            if position in self.runs_at or self.result.copied.get(node.outputs[0]) == ():
                continue
            if isinstance(node.form, View):
                self._place_view(node)
                continue
            *before, node = _without_views(
                [self.graph.nodes[each] for each in (*self.fused.get(position, ()), position)]
            )
            self.result.tasks.append(Task(node=node, before=tuple(before)))
            if position in self.in_place:
                self._place_in_place(node)

    def _place_in_place(self, node: Node) -> None:
        """Gives the result the memory of the data, unless that is the caller's input."""
        data, result = node.inputs[0], node.outputs[0]
        if self.buffers[data] not in self.external and self.layouts[data] == self.layouts[result]:
            self.buffers.alias(result, data)

    def _place_view(self, node: Node) -> None:
        """Makes the result an alias if both sides are dense; else adds a copy, or two copies through a dense buffer. A
        View of a part is one already."""
        source, target = node.inputs[0], node.outputs[0]
        if target in self.result.wholes:
            return
        shapes = [self.graph.tensors[i].shape for i in (source, target)]
        dense = [self.graph.tensors[source].is_constant or self.layouts[source].plain, self.layouts[target].plain]
        root = self.buffers[source]
        renamable = not self.graph.tensors[root].is_constant and (
            root not in self.external or self._reads_exactly(target)
        )
        if all(dense) and renamable:
            self.buffers.alias(target, source)
        elif any(dense):
            shape = shapes[0] if dense[1] else shapes[1]
            self.result.tasks.append(Task(source=source, target=target, shape=shape, origin=node.origin))
        else:
            between = self._new_number()
            self.layouts[between] = self._dense(source)
            self.result.tasks.append(Task(source=source, target=between, shape=shapes[0], origin=node.origin))
            self.result.tasks.append(Task(source=between, target=target, shape=shapes[1], origin=node.origin))

    def _separable(self, layouts: Mapping[int, Layout]) -> Iterator[tuple[int, tuple[int]]]:
        """(position of a 1x1 Contract, position of the Depthwise that only it reads)."""
        for position, node in enumerate(self.graph.nodes):
            if not isinstance(node.form, Depthwise) or node.form.multiplier > 1 or node.form.accumulator != "float32":
                continue
            output = node.outputs[0]
            reader = self.graph.only_reader(output)
            if layouts[output].size < FUSE_BYTES or reader is None:
                continue
            if _is_pointwise(self.graph.nodes[reader], output):
                yield reader, (position,)

    def _attentions(self, layouts: Mapping[int, Layout]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(position of a MatMul, positions of the Softmax that makes its a, of the MatMul before that, and of Views
        between)."""
        graph = self.graph
        for found in attentions(graph):
            scores, weights = graph.nodes[found.scores].outputs[0], graph.nodes[found.product].inputs[0]
            shape = graph.tensors[scores].shape
            is_large = layouts[scores].size >= FUSE_BYTES and shape[-2] >= FEWEST_FUSED_ROWS
            if is_large and not found.maps and graph.tensors[weights].shape == shape:
                yield found.product, tuple(sorted((found.scores, found.softmax, *found.views)))

    # outputs

    def _place_outputs(self) -> None:
        """Places an output in the caller's memory if it is dense and nothing else reads it, or an Update makes it and
        nothing loads beyond its end; else adds a copy."""
        read = {self.buffers[i] for task in self.result.tasks for i in task.reads()} - set(self._updated())
        uses = Counter(self.buffers[index] for index in self.graph.outputs)
        for position, index in enumerate(self.graph.outputs):
            root = self.buffers[index]
            shape = self.graph.tensors[index].shape
            if 0 in shape:
                continue
            buffer = Memory("io", len(self.graph.inputs) + position, self._dense(index))
            if uses[root] == 1 and root not in read and self._is_writable(root):
                self.external[root] = replace(buffer, layout=self.layouts[root])
            else:
                number = self._new_number()
                self.external[number] = buffer
                self.result.tasks.append(Task(source=index, target=number, shape=shape))

    def _updated(self) -> Iterator[int]:
        """Buffers that an Update writes and that are read up to their end only."""
        for task in self.result.tasks:
            if task.node is not None and isinstance(task.node.form, Update):
                root = self.buffers[task.writes()]
                members = {root, *(index for index, own in self.buffers.items() if own == root)}
                if all(map(self._reads_exactly, members)):
                    yield root

    def _is_writable(self, root: int) -> bool:
        """True if a kernel can write the tensor straight into the caller's memory."""
        if root in self.external or self.graph.tensors[root].is_constant or not self.layouts[root].plain:
            return False
        # Kernels store whole vectors even in a last block that is not full, beyond the end of the caller's memory.
        return not (self.layouts[root].blocked and self.layouts[root].tail) and root not in self.graph.inputs

    # the arena

    def _place_arena(self) -> None:
        # a vector load of a row-major tail may read beyond the end
        lives = lives_of(map(self._touched, self.result.tasks), lambda root: self.layouts[root].size + ALIGN)
        self.result.arena_bytes, offsets = place(lives, ALIGN)
        memories = dict(self.external)
        for root, offset in offsets.items():
            memories[root] = Memory("arena", offset, self.layouts[root])
        for index, root in self.buffers.items():
            start = self.parts.starts.get(index, 0)
            memories[index] = replace(memories[root], layout=self.layouts[index], start=start)
        self.result.memories = memories

    def _touched(self, task: Task) -> Iterator[int]:
        """The buffers in the arena that a task reads or writes."""
        for root in (self.buffers[index] for index in (*task.reads(), task.writes())):
            if root not in self.external and not (root >= 0 and self.graph.tensors[root].is_constant):
                yield root


def _is_pointwise(node: Node, data: int) -> bool:
    """Whether the node is a 1x1 Contract whose image is `data`."""
    is_pointwise = isinstance(node.form, Contract) and node.form.is_pointwise
    return is_pointwise and node.inputs[0] == data and data not in node.inputs[1:]


def _without_views(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that run together, of which the others read what Views show."""
    shown = {node.outputs[0]: node.inputs[0] for node in nodes if isinstance(node.form, View)}

    def source(index: int) -> int:
        return source(shown[index]) if index in shown else index

    return [
        replace(node, inputs=tuple(map(source, node.inputs))) if shown else node
        for node in nodes
        if not isinstance(node.form, View)
    ]
