"""Plans the launches of a graph, and the offset of each tensor in the device's arena.

Every tensor is row-major, and dense unless it is part of a larger one, so a View is another name for the same memory,
and so is the result of an Update whose data nothing needs later. The program's inputs and outputs have memory of their
own, which may be a caller's; their offsets begin where the arena ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from jitdelegate.errors import CompileError
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import Update
from jitdelegate.passes.merge_products import merge_products
from jitdelegate.passes.split_epilogues import split_epilogues
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.element import OWN
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.tables import shipped
from jitdelegate.targets.cuda.code.template import Launch, Template, TensorPointer
from jitdelegate.targets.cuda.code.writer import ALIGN, Writer, check_memory
from jitdelegate.targets.cuda.forms.map import copy
from jitdelegate.targets.cuda.plan.accepts import ACCEPTS
from jitdelegate.targets.cuda.plan.branches import Branches, Order, Touch, extended, in_a_row
from jitdelegate.targets.cuda.plan.narrow_weights import narrow_weights
from jitdelegate.targets.planning.buffer_plan import Buffers, Life, check_steps, lives_of, plan_memory
from jitdelegate.targets.planning.constants import Constants
from jitdelegate.targets.planning.epilogue import reach
from jitdelegate.targets.planning.steps import Steps, Task, find_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known


MOST_GROWTH, GROWTH_BYTES = 1.25, 1 << 20
"""How much larger the arena may become for branches: so many times, and so many bytes more."""
MOST_ELEMENTS = 1 << 30
"""Most elements of a tensor, however narrow they are: threads past the last element must have int32 numbers too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches that a writer has collected, their order, and the memory that they use.

    Attributes:
        buffers: by tensor, the tensor whose memory it uses.
        blocks: by tensor or intermediate, the (offset, size) of its memory, in bytes.
        orders: by launch, what it follows.
        ports: those of `buffers` that are memory of the program's inputs and outputs; they lie outside the arena.
    """

    writer: Writer
    buffers: Buffers
    blocks: Mapping[int, tuple[int, int]]
    orders: Sequence[Order]
    arena_bytes: int
    ports: frozenset[int] = frozenset()

    @property
    def launches(self) -> list[Launch]:
        """All launches in order."""
        return self.writer.launches

    @property
    def templates(self) -> list[Template]:
        """The distinct templates, in the order of their first launches."""
        return list(dict.fromkeys(launch.template for launch in self.launches))

    def offset(self, index: int) -> int:
        """Offset of a tensor or intermediate, in bytes."""
        part = self.writer.parts.get(index)
        first = part.first * self.writer.element(index).nbytes if part else 0
        return self.blocks[self.buffers[index]][0] + first


def plan(graph: Graph, gpu: Gpu, precision: str, choices: Choices | None = None, known: Known = NO_CONSTANTS) -> Plan:
    """Plans launches and memory of a lowered graph.

    Args:
        choices: receives what was asked; None for those of the package's own table.
        known: constants that other programs store.
    Raises:
        CompileError: a tensor is too large or has an unsupported type, there is no kernel for a form or its
            accumulator, there are too many nodes or launches, a window spans too much, the GPU does not support the
            precision, or a form's writer fails; has the reasons of all operators, as far as it is theirs.
    """
    writer, buffers = written(graph, gpu, precision, Choices(shipped(gpu)) if choices is None else choices, known)
    touches = [
        [Touch(buffers[index], writer.parts.get(index), writes) for index, writes in launch.accesses()]
        for launch in writer.launches
    ]
    for launch, (changed, *others) in zip(writer.launches, touches, strict=True):
        is_apart = launch.form != "Update" or changed.buffer not in [touch.buffer for touch in others]
        assert is_apart, f"{launch.template.family} writes what it reads by another pointer"
    # inputs are needed from the first launch on, outputs after the last one
    steps = [*([touch.buffer for touch in own] for own in touches), [buffers[index] for index in writer.graph.outputs]]
    steps[0] += (buffers[index] for index in writer.graph.inputs)
    lives = dict(sorted(lives_of(steps, lambda index: _bytes(writer, index)).items()))
    shared = dict.fromkeys(buffers[index] for index in (*writer.graph.given, *writer.graph.returned))
    ports = {index: lives.pop(index) for index in shared}
    branches = Branches(writer.launches, touches, gpu)
    arena_bytes, offsets = _arena(lives, branches)
    blocks = {index: (offset, lives[index].size) for index, offset in offsets.items()}
    start = arena_bytes
    for index, life in ports.items():
        blocks[index] = start, life.size
        start += -(-max(life.size, 1) // ALIGN) * ALIGN
    orders = branches.orders({index: (offset, offset + size) for index, (offset, size) in blocks.items()})
    return Plan(writer, buffers, blocks, orders, arena_bytes, frozenset(ports))


def written(
    graph: Graph, gpu: Gpu, precision: str, choices: Choices, known: Known = NO_CONSTANTS
) -> tuple[Writer, Buffers]:
    """All launches of a lowered graph, and which tensors are other names for the same memory; raises as `plan`."""
    _check_size(graph)

    @lru_cache(1)  # merging ends with the graph that it asked about last, or with that which it had
    def steps_of(graph: Graph) -> tuple[Writer, Steps]:
        weights = Constants(ALIGN, known)
        writer = Writer(narrow_weights(graph), gpu, precision, weights=weights, choices=choices)
        return writer, find_steps(writer.graph, ACCEPTS, writer)

    def unwritten(graph: Graph) -> set[int]:
        """Results of slices that kernels read where the whole lies, and of nodes within fusions."""
        _, steps = steps_of(graph)
        return {*steps.inside, *(index for index, copied in steps.parts.copied.items() if not copied)}

    writer, steps = steps_of(merge_products(split_epilogues(graph, reach), unwritten))
    return writer, _write(writer, steps)


def plan_apart(writer: Writer, buffers: Buffers) -> Plan:
    """The plan of what a writer has written of a graph; every buffer has memory of its own in the arena.

    Args:
        buffers: those of the whole graph.
    """
    blocks, end = {}, 0
    for index in dict.fromkeys(buffers[index] for launch in writer.launches for index in launch.tensors()):
        blocks[index] = end, _bytes(writer, index)
        end += -(-max(_bytes(writer, index), 1) // ALIGN) * ALIGN
    return Plan(writer, buffers, blocks, in_a_row(len(writer.launches), writer.gpu), end)


def _check_size(graph: Graph) -> None:
    check_steps("nodes", len(graph.nodes))
    touched = {*graph.inputs, *(index for node in graph.nodes for index in (*node.inputs, *node.outputs))} - {ABSENT}
    for tensor in (graph.tensors[index] for index in sorted(touched)):
        if tensor.dtype not in OWN:
            raise CompileError(f"'{tensor.title}' is {tensor.dtype}, expected one of {', '.join(OWN)}.")
        if tensor.size > MOST_ELEMENTS:
            raise CompileError(f"'{tensor.title}' has {tensor.size} elements, expected at most {MOST_ELEMENTS}.")
        check_memory(f"'{tensor.title}'", OWN[tensor.dtype].nbytes * tensor.size)


def _write(writer: Writer, steps: Steps) -> Buffers:
    """Writes every task's launches; returns which tensors are other names for the same memory."""
    writer.parts, writer.copied = steps.parts.of, steps.parts.copied
    buffers, faults = Buffers({index: part.whole for index, part in writer.parts.items()}), Faults()
    for task in steps.tasks:
        check_steps("launches", len(writer.launches))
        with faults.of(task.origin):
            node = task.nodes[-1]
            writer.begin(*task.nodes)
            if isinstance(node.form, View) or task.in_place:
                _rename(writer, buffers, node)
            elif isinstance(node.form, Update):
                copy(writer, node.inputs[0], node.outputs[0])
            if not isinstance(node.form, View):
                _launch(task, writer)
    faults.settle()
    return buffers


def _launch(task: Task, writer: Writer) -> None:
    """Writes a task's launches."""
    own = writer if task.fusion else writer.of_node(task.nodes[-1])
    own.begin(*task.nodes, step=partial(_launch, task))
    ACCEPTS.write(task, own)


def _rename(writer: Writer, buffers: Buffers, node: Node) -> None:
    """Lets the result be another name for the first operand's memory; a copy if it is stored otherwise."""
    source, target = node.inputs[0], node.outputs[0]
    if writer.graph.tensors[source].is_constant or _bytes(writer, source) != _bytes(writer, target):
        copy(writer, source, target)
    else:
        buffers.alias(target, source)


def _arena(lives: Mapping[int, Life], branches: Branches) -> tuple[int, dict[int, int]]:
    """(arena size, offset of each buffer), with memory of its own for each branch if that takes little more."""
    arena_bytes, offsets = plan_memory(lives, ALIGN)
    regions = branches.side_by_side()
    if not regions:
        return arena_bytes, offsets
    apart_bytes, apart = plan_memory(extended(lives, regions), ALIGN)
    return (apart_bytes, apart) if apart_bytes <= arena_bytes * MOST_GROWTH + GROWTH_BYTES else (arena_bytes, offsets)


def _bytes(writer: Writer, index: int) -> int:
    if index < 0:
        return writer.temporaries[index]
    return writer.graph.tensors[index].size * writer.element(index).nbytes


def plan_text(planned: Plan) -> str:
    """One line per launch: the kernel, the number of blocks, and the offsets of the tensors that it accesses."""
    lines = [f"arena {planned.arena_bytes} bytes, weights {planned.writer.weights.end} bytes"]
    for step, launch in enumerate(planned.launches):
        offsets = ", ".join(
            f"%{argument.index}@{planned.offset(argument.index)}"
            for argument in launch.arguments
            if isinstance(argument, TensorPointer)
        )
        blocks = f"grid {launch.grid} of {launch.template.threads}, about {launch.cycles:.0f} cycles"
        lines.append(f"{step}: {launch.template.symbol} {blocks} ({offsets})")
        lines.append(f"    {launch.template}")
    return "\n".join(lines) + "\n"
