"""Plans the tasks of a graph, and where each tensor lies: in the arena or in the caller's own memory.

Each node is a task, except that Views which only rename a tensor are none, and that these are one: a large Depthwise
and the 1x1 Contract after it; a large product, its Softmax and the product after that. Copies are tasks too: of inputs
into layouts with halos or blocks, and of outputs that no kernel can write straight into the caller's memory. An Update
or a Softmax writes into the memory of the tensor that it changes where nothing needs that tensor later; the kernel of
an Update finds out whether the caller's input and output are the same memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jitdelegate.ir.forms import Contract, Depthwise, MatMul, Softmax, View
from jitdelegate.ir.graph import ABSENT, Graph, Node, form_of
from jitdelegate.ir.index_forms import Update
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.buffer_plan import Buffers, check_steps, lives_of, place
from jitdelegate.targets.cpu.kernel import ALIGN, Memory
from jitdelegate.targets.implicit_gemm import permuted
from jitdelegate.targets.in_place import updates_in_place

FUSE_BYTES = 1024 * 1024
"""A result larger than this leaves the second-level cache before the next layer reads it."""
FEWEST_FUSED_ROWS = 48
"""Fewest rows of a product that is fused with the Softmax after it: each chunk of rows copies the other matrix."""


@dataclass(frozen=True)
class Task:
    """One step: a node (with the nodes `before` it that are fused), or a copy of tensor `source` to `target`.

    A copy uses `shape` for both sides; the tensor of a dense side may have another shape with the same elements.
    """

    node: Node | None = None
    before: tuple[Node, ...] = ()
    source: int = ABSENT
    target: int = ABSENT
    shape: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()

    @property
    def nodes(self) -> list[Node]:
        """The task's nodes in order; none for a copy."""
        return [*self.before, *([self.node] if self.node is not None else [])]

    def reads(self) -> Iterator[int]:
        """Tensors that the task reads, with constants, but without the results that stay in scratch memory."""
        if self.node is None:
            yield self.source
        inside = {node.outputs[0] for node in self.before}
        for node in self.nodes:
            yield from (i for i in node.inputs if i != ABSENT and i not in inside)

    def writes(self) -> int:
        return self.target if self.node is None else self.node.outputs[0]


@dataclass
class Plan:
    """Tasks in order; `memories` says where each tensor lies.

    Numbers below ABSENT stand for buffers that are no tensors of the graph: the caller's and intermediate copies.
    """

    tasks: list[Task] = field(default_factory=list)
    memories: dict[int, Memory] = field(default_factory=dict)
    arena_bytes: int = 0


def plan_text(planned: Plan) -> str:
    """One line per task: what it computes, and where its tensors lie."""
    lines = [f"arena {planned.arena_bytes} bytes"]
    for step, task in enumerate(planned.tasks):
        names = [node.op for node in task.nodes] or ["copy"]
        reads = ", ".join(_place_text(planned, index) for index in task.reads())
        lines.append(f"{step}: {_place_text(planned, task.writes())} = {' + '.join(names)}({reads})")
    return "\n".join(lines) + "\n"


def _place_text(planned: Plan, index: int) -> str:
    if index not in planned.memories:
        return f"%{index} constant"
    memory = planned.memories[index]
    layout = memory.layout
    kind = "blocked" if layout.blocked else "row-major"
    halo = f" halo {layout.halo}" if any(layout.halo) else ""
    name = f"%{index}" if index >= 0 else "buffer"
    return f"{name} {memory.space}+{memory.offset} {list(layout.shape)} {kind}{halo}"


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
        self.layouts = layouts
        self.result = Plan()
        self.lanes = next(iter(layouts.values())).lanes if layouts else 1
        self.fresh = ABSENT
        self.buffers = Buffers()
        self.external: dict[int, Memory] = {}

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
        if isinstance(node.form, View):
            return self._reads_exactly(node.outputs[0])
        return form_of(node).loads_exactly(self.graph.tensors[index].shape)

    # nodes

    def _place_nodes(self) -> None:
        fused = {**dict(self._separable()), **dict(self._attentions())}
        runs_at = {before: position for position, all_before in fused.items() for before in all_before}
        in_place = updates_in_place(self.graph, runs_at, (Softmax,))
        for position, node in enumerate(self.graph.nodes):
            if position in runs_at:
                continue
            if isinstance(node.form, View):
                self._place_view(node)
                continue
            before = tuple(self.graph.nodes[each] for each in fused.get(position, ()))
            self.result.tasks.append(Task(node=node, before=before))
            if position in in_place:
                self._place_in_place(node)

    def _place_in_place(self, node: Node) -> None:
        """Gives the result the memory of the data, unless that is the caller's input."""
        data, result = node.inputs[0], node.outputs[0]
        if self.buffers[data] not in self.external and self.layouts[data] == self.layouts[result]:
            self.buffers.alias(result, data)

    def _place_view(self, node: Node) -> None:
        """Makes the result an alias if both sides are dense; else adds a copy, or two copies through a dense buffer."""
        source, target = node.inputs[0], node.outputs[0]
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

    def _separable(self) -> Iterator[tuple[int, tuple[int]]]:
        """(position of a 1x1 Contract, position of the Depthwise that only it reads)."""
        for position, node in enumerate(self.graph.nodes):
            if not isinstance(node.form, Depthwise) or node.form.multiplier > 1 or node.form.accumulator != "float32":
                continue
            output = node.outputs[0]
            reader = self.graph.only_reader(output)
            if self.layouts[output].size < FUSE_BYTES or reader is None:
                continue
            if _is_pointwise(self.graph.nodes[reader], output):
                yield reader, (position,)

    def _attentions(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """(position of a MatMul, positions of the Softmax that makes its a, and of the MatMul before that)."""
        graph = self.graph
        for position, node in enumerate(graph.nodes):
            first = graph.writer[node.inputs[0]] if isinstance(node.form, Softmax) else None
            if first is None or self.layouts[node.inputs[0]].size < FUSE_BYTES:
                continue
            last = graph.only_reader(node.outputs[0])
            if last is None or graph.only_reader(node.inputs[0]) != position:
                continue
            if _makes_scores(graph, graph.nodes[first]) and _takes_weights(graph, graph.nodes[last], node.outputs[0]):
                yield last, (first, position)

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
            memories[index] = replace(memories[root], layout=self.layouts[index])
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


def _makes_scores(graph: Graph, node: Node) -> bool:
    """Whether the node is a MatMul of so many rows that a chunk may be some of them."""
    is_plain = isinstance(node.form, MatMul) and not node.form.order
    return is_plain and graph.tensors[node.outputs[0]].shape[-2] >= FEWEST_FUSED_ROWS


def _takes_weights(graph: Graph, node: Node, data: int) -> bool:
    """Whether the node is a MatMul whose a is `data`, each matrix of it once."""
    form = node.form
    if not isinstance(form, MatMul) or form.adj_x or form.a_order or node.inputs[0] != data or data in node.inputs[1:]:
        return False
    return permuted(graph.tensors[node.outputs[0]].shape, form.order)[:-2] == graph.tensors[data].shape[:-2]
