"""Plans the tasks of a graph, and where each tensor lies: in the arena or in the caller's own memory.

Each node is a task, except that Views which only rename a tensor are none, and that the nodes of a fusion are one.
Copies are tasks too: of inputs into layouts with halos or blocks, and of outputs that no kernel can write straight into
the caller's memory. An Update or a Softmax writes into the memory of the tensor that it changes where nothing needs
that tensor later; the kernel of an Update finds out whether the caller's input and output are the same memory. Operands
of concatenations, and slices, are parts of a larger tensor where kernels can write and read them so (`accepts.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jitdelegate.ir.forms import NO_HALO, Halo, Shape, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.cpu.accepts import ACCEPTS
from jitdelegate.targets.cpu.code.kernel import ALIGN, Memory
from jitdelegate.targets.cpu.code.tasks import Copy, Plan
from jitdelegate.targets.planning.buffer_plan import Buffers, check_steps, lives_of, plan_memory
from jitdelegate.targets.planning.parts import Part
from jitdelegate.targets.planning.steps import Task, find_steps


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
        self.result = Plan(graph, layouts)
        self.lanes = next(iter(layouts.values())).lanes if layouts else 1
        self.fresh = ABSENT
        self.external: dict[int, Memory] = {}
        steps = find_steps(graph, ACCEPTS, self.result)
        self.todo, self.parts = steps.tasks, steps.parts
        self.buffers = Buffers({index: part.whole for index, part in self.parts.of.items()})
        self.layouts = _layouts_of_parts(layouts, self.parts.of)
        self.result.layouts, self.result.parts = self.layouts, self.parts

    def _dense(self, index: int) -> Layout:
        """The layout of a tensor in the caller's memory."""
        tensor = self.graph.tensors[index]
        return Layout(image_shape(tensor.shape), self.lanes, dtype=tensor.dtype)

    def _buffer(self, memory: Memory | None = None) -> int:
        """The number of a new buffer, which is no tensor of the graph: in the caller's memory or in the arena."""
        self.fresh -= 1
        if memory is not None:
            self.external[self.fresh] = memory
        return self.fresh

    def _copy(self, source: int, target: int, shape: Shape, origin: tuple[int, ...] = ()) -> None:
        self.result.tasks.append(Copy(source, target, shape, origin))

    def plan(self) -> Plan:
        """Plans inputs, nodes and outputs in order, then memory for all of them."""
        self._plan_inputs()
        self._plan_nodes()
        self._plan_outputs()
        check_steps("steps", len(self.result.tasks))
        self._plan_arena()
        return self.result

    # inputs

    def _plan_inputs(self) -> None:
        for position, index in enumerate(self.graph.inputs):
            tensor, memory = self.graph.tensors[index], Memory("io", position, self._dense(index))
            if tensor.is_constant:
                continue
            if self.layouts[index].plain and self._reads_exactly(index):
                self.external[index] = memory
            else:
                self._copy(self._buffer(memory), index, tensor.shape)

    def _reads_exactly(self, index: int) -> bool:
        """True if no reader loads beyond the tensor's last element."""
        return all(self._loads_exactly(self.graph.nodes[i], index) for i in self.graph.readers[index])

    def _loads_exactly(self, node: Node, index: int) -> bool:
        if isinstance(node.form, View) or self.parts.copied.get(node.outputs[0]) == ():
            return self._reads_exactly(node.outputs[0])
        return form_of(node).loads_exactly(self.graph.tensors[index].shape)

    # nodes

    def _plan_nodes(self) -> None:
        for task in self.todo:
            node = task.nodes[-1]
            if isinstance(node.form, View):
                self._show(node)
                continue
            self.result.tasks.append(_without_views(task))
            if task.in_place:
                self._reuse(node)

    def _reuse(self, node: Node) -> None:
        """Gives the result the memory of the data, unless that is the caller's input."""
        data, result = node.inputs[0], node.outputs[0]
        if self.buffers[data] not in self.external and self.layouts[data] == self.layouts[result]:
            self.buffers.alias(result, data)

    def _show(self, node: Node) -> None:
        """Makes the result an alias if both sides are dense; else adds a copy, or two copies through a dense buffer."""
        source, target = node.inputs[0], node.outputs[0]
        shapes = [self.graph.tensors[index].shape for index in (source, target)]
        dense = [self.graph.tensors[source].is_constant or self.layouts[source].plain, self.layouts[target].plain]
        root = self.buffers[source]
        renamable = not self.graph.tensors[root].is_constant and (
            root not in self.external or self._reads_exactly(target)
        )
        if all(dense) and renamable:
            self.buffers.alias(target, source)
        elif any(dense):
            self._copy(source, target, shapes[0] if dense[1] else shapes[1], node.origin)
        else:
            between = self._buffer()
            self.layouts[between] = self._dense(source)
            self._copy(source, between, shapes[0], node.origin)
            self._copy(between, target, shapes[1], node.origin)

    # outputs

    def _plan_outputs(self) -> None:
        """An output lies in the caller's memory if it is dense, and nothing that reads it loads beyond its end; else it
        is copied there."""
        uses = Counter(self.buffers[index] for index in self.graph.outputs)
        for position, index in enumerate(self.graph.outputs):
            root, shape = self.buffers[index], self.graph.tensors[index].shape
            memory = Memory("io", len(self.graph.inputs) + position, self._dense(index))
            if 0 in shape:
                continue
            is_whole = index not in self.parts.of
            if is_whole and uses[root] == 1 and self._is_writable(root) and self._is_read_exactly(root):
                self.external[root] = replace(memory, layout=self.layouts[root])
            else:
                self._copy(index, self._buffer(memory), shape)

    def _is_read_exactly(self, root: int) -> bool:
        """True if no reader of the buffer loads beyond its last element."""
        return all(map(self._reads_exactly, {root, *(index for index, own in self.buffers.items() if own == root)}))

    def _is_writable(self, root: int) -> bool:
        """True if a kernel can write the tensor straight into the caller's memory."""
        if root in self.external or self.graph.tensors[root].is_constant or not self.layouts[root].plain:
            return False
        # Kernels store whole vectors even in a last block that is not full, beyond the end of the caller's memory.
        return not (self.layouts[root].blocked and self.layouts[root].tail) and root not in self.graph.inputs

    # the arena

    def _plan_arena(self) -> None:
        # a vector load of a row-major tail may read beyond the end
        lives = lives_of(map(self._touched, self.result.tasks), lambda root: self.layouts[root].size + ALIGN)
        self.result.arena_bytes, offsets = plan_memory(lives, ALIGN)
        memories = dict(self.external)
        for root, offset in offsets.items():
            memories[root] = Memory("arena", offset, self.layouts[root])
        for index, root in self.buffers.items():
            start = _start(self.layouts[root], self.parts.of[index].first) if index in self.parts.of else 0
            memories[index] = replace(memories[root], layout=self.layouts[index], start=start)
        self.result.memories = memories

    def _touched(self, task: Task | Copy) -> Iterator[int]:
        """The buffers in the arena that a task reads or writes."""
        for root in (self.buffers[index] for index in (*task.reads(), task.writes())):
            if root not in self.external and not (root >= 0 and self.graph.tensors[root].is_constant):
                yield root


def _layouts_of_parts(layouts: Mapping[int, Layout], parts: Mapping[int, Part]) -> dict[int, Layout]:
    """The layouts, those of parts with the distances of the whole, which has the widest halo of its parts."""
    halos, values = dict[int, Halo](), dict[int, float]()
    for index, part in parts.items():
        for layout in (layouts[index], layouts[part.whole]):
            top, bottom, left, right = map(max, zip(halos.get(part.whole, NO_HALO), layout.halo, strict=True))
            halos[part.whole] = top, bottom, left, right
            values[part.whole] = values.get(part.whole) or layout.halo_value
    placed = dict(layouts)
    for index, halo in halos.items():
        placed[index] = replace(layouts[index], halo=halo, halo_value=values[index])
    for index, part in parts.items():
        whole = placed[part.whole]
        layout = replace(layouts[index], halo=whole.halo, halo_value=whole.halo_value)
        if any(whole.halo):
            layout = replace(layout, length=layout.shape[3], pitch=whole.shape[3])
        elif not part.is_dense:
            layout = replace(layout, length=part.length, pitch=part.pitch)
        placed[index] = layout
    return placed


def _start(whole: Layout, first: int) -> int:
    """Bytes from a tensor's element (0, 0, 0, 0) to its element number `first`, counted row-major."""
    _, rows, columns, channels = whole.shape
    pixel, channel = divmod(first, channels)
    row, column = divmod(pixel, columns)
    image, row = divmod(row, rows)
    block, lane = divmod(channel, whole.lanes)
    start = image * whole.image + row * whole.row + column * whole.pixel
    return start + block * whole.block + lane * whole.element


def _without_views(task: Task) -> Task:
    """The task without the Views among its nodes; the others read what Views show."""
    shown = {node.outputs[0]: node.inputs[0] for node in task.nodes if isinstance(node.form, View)}

    def source(index: int) -> int:
        return source(shown[index]) if index in shown else index

    nodes = (
        replace(node, inputs=tuple(map(source, node.inputs))) for node in task.nodes if node.outputs[0] not in shown
    )
    return replace(task, nodes=tuple(nodes)) if shown else task
