"""Plans the launches of a graph, and the offset of each tensor in the device's arena.

Every tensor is dense and row-major, so a View is another name for the same memory, and so is the result of an Update
whose data nothing needs later. The program's inputs and outputs have memory of their own, which may be a caller's;
their offsets begin where the arena ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import (
    Concat,
    Contract,
    Depthwise,
    Fourier,
    Map,
    MatMul,
    Pool,
    Recurrent,
    Reduce,
    Resize,
    Softmax,
    View,
)
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, Scatter, Suppress, TopK, Update
from jitdelegate.passes.split_epilogues import split_epilogues
from jitdelegate.targets.buffer_plan import Buffers, check_steps, lives_of, place
from jitdelegate.targets.cuda.element import OWN
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.map import copy
from jitdelegate.targets.cuda.narrow_weights import narrow_weights
from jitdelegate.targets.cuda.template import Launch, TensorPointer
from jitdelegate.targets.cuda.writer import ALIGN, Writer, check_memory
from jitdelegate.targets.epilogue import reach
from jitdelegate.targets.form_writer import Writers, check_sums, form_writer
from jitdelegate.targets.in_place import updates_in_place

PACKAGE = "jitdelegate.targets.cuda"
WRITERS: Writers = {
    ArgReduce: "arg_reduce.write_arg_reduce",
    Concat: "concat.write_concat",
    Contract: "contract.write_contract",
    Depthwise: "depthwise.write_depthwise",
    Fourier: "fourier.write_fourier",
    Gather: "gather.write_gather",
    Map: "map.write_map",
    MatMul: "matmul.write_matmul",
    Pool: "pool.write_pool",
    Recurrent: "recurrent.write_recurrent",
    Reduce: "reduce.write_reduce",
    Resize: "resize.write_resize",
    Scan: "scan.write_scan",
    Scatter: "scatter.write_scatter",
    Softmax: "softmax.write_softmax",
    Suppress: "non_max_suppression.write_suppress",
    TopK: "arg_reduce.write_top_k",
    Update: "update.write_update",
}
"""The function that writes the launches of each form, called with the Writer and the node; Views have none."""
SUM_INTEGERS = frozenset({Contract, Depthwise, Pool})
"""Forms whose kernels sum integers."""
MOST_ELEMENTS = 1 << 30
"""Most elements of a tensor, however narrow they are: threads past the last element must have int32 numbers too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, and the memory that they use.

    Attributes:
        blocks: by tensor or intermediate, the (offset, size) of its memory, in bytes.
        buffers: by tensor, the tensor whose memory it uses.
        ports: those of `buffers` that are memory of the program's inputs and outputs; they lie outside the arena.
        weights: content of constant memory.
        large_constants: as in `Program`.
    """

    graph: Graph
    launches: tuple[Launch, ...]
    blocks: Mapping[int, tuple[int, int]]
    buffers: Buffers
    ports: frozenset[int]
    arena_bytes: int
    weights: bytearray
    large_constants: tuple[int, ...]

    def offset(self, index: int) -> int:
        """Offset of a tensor or intermediate, in bytes."""
        return self.blocks[self.buffers[index]][0]

    def is_port(self, index: int) -> bool:
        """Whether a tensor lies in the memory of an input or output of the program."""
        return self.buffers[index] in self.ports


def plan(graph: Graph, gpu: Gpu, precision: str) -> Plan:
    """Plans launches and memory of a lowered graph.

    Raises:
        CompileError: a tensor is too large or has an unsupported type, there is no kernel for a form or its
            accumulator, there are too many nodes or launches, a window spans too much, or the GPU does not support the
            precision.
    """
    _check_size(graph)
    graph = narrow_weights(split_epilogues(graph, reach))
    writer = Writer(graph, gpu, precision)
    buffers = _write(writer)
    lives = dict(sorted(lives_of(_touched(writer, buffers), lambda index: _bytes(writer, index)).items()))
    shared = dict.fromkeys(buffers[index] for index in (*graph.given, *graph.returned))
    ports = {index: lives.pop(index) for index in shared}
    arena_bytes, offsets = place(lives, ALIGN)
    blocks = {index: (offset, lives[index].size) for index, offset in offsets.items()}
    start = arena_bytes
    for index, life in ports.items():
        blocks[index] = start, life.size
        start += -(-max(life.size, 1) // ALIGN) * ALIGN
    weights = writer.weights
    return Plan(
        graph,
        tuple(writer.launches),
        blocks,
        buffers,
        frozenset(ports),
        arena_bytes,
        weights.content,
        tuple(weights.large),
    )


def _check_size(graph: Graph) -> None:
    check_steps("nodes", len(graph.nodes))
    touched = {*graph.inputs, *(index for node in graph.nodes for index in (*node.inputs, *node.outputs))} - {ABSENT}
    for tensor in (graph.tensors[index] for index in sorted(touched)):
        if tensor.dtype not in OWN:
            raise CompileError(f"'{tensor.name}' is {tensor.dtype}, expected one of {', '.join(OWN)}.")
        if tensor.size > MOST_ELEMENTS:
            raise CompileError(f"'{tensor.name}' has {tensor.size} elements, expected at most {MOST_ELEMENTS}.")
        check_memory(f"'{tensor.name}'", OWN[tensor.dtype].nbytes * tensor.size)


def _write(writer: Writer) -> Buffers:
    """Writes every node's launches; returns which tensors are other names for the same memory."""
    buffers, in_place = Buffers(), updates_in_place(writer.graph)
    for position, node in enumerate(writer.graph.nodes):
        check_steps("launches", len(writer.launches))
        check_sums(node, SUM_INTEGERS)
        writer.begin(node)
        if isinstance(node.form, View) or position in in_place:
            _rename(writer, buffers, node)
        elif isinstance(node.form, Update):
            copy(writer, node.inputs[0], node.outputs[0])
        if not isinstance(node.form, View):
            form_writer(PACKAGE, WRITERS, node)(writer, node)
    return buffers


def _rename(writer: Writer, buffers: Buffers, node: Node) -> None:
    """Lets the result be another name for the first operand's memory; a copy if it is stored otherwise."""
    source, target = node.inputs[0], node.outputs[0]
    if writer.graph.tensors[source].is_constant or _bytes(writer, source) != _bytes(writer, target):
        copy(writer, source, target)
    else:
        buffers.alias(target, source)


def _touched(writer: Writer, buffers: Buffers) -> list[list[int]]:
    """The buffers of each launch: inputs are needed from the first launch on, outputs after the last one."""
    steps = [*([*launch.tensors()] for launch in writer.launches), [*writer.graph.outputs]]
    steps[0] += writer.graph.inputs
    return [[buffers[index] for index in step] for step in steps]


def _bytes(writer: Writer, index: int) -> int:
    if index < 0:
        return writer.temporaries[index]
    return writer.graph.tensors[index].size * writer.element(index).nbytes


def plan_text(planned: Plan) -> str:
    """One line per launch: the kernel, the number of blocks, and the offsets of the tensors that it accesses."""
    lines = [f"arena {planned.arena_bytes} bytes, weights {len(planned.weights)} bytes"]
    for step, launch in enumerate(planned.launches):
        places = ", ".join(
            f"%{argument.index}@{planned.offset(argument.index)}"
            for argument in launch.arguments
            if isinstance(argument, TensorPointer)
        )
        blocks = f"grid {launch.grid} of {launch.template.threads}, about {launch.cycles:.0f} cycles"
        lines.append(f"{step}: {launch.template.symbol} {blocks} ({places})")
        lines.append(f"    {launch.template}")
    return "\n".join(lines) + "\n"
