"""Which launches a graph takes, and where each tensor lies in the device's arena.

Every tensor lies dense and row-major, so a View is another name for the same memory. Inputs and outputs of the graph
are arena memory too: the runtime copies them in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import (
    Access,
    Concat,
    Contract,
    Depthwise,
    Form,
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
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, Scatter, Suppress, TopK
from jitdelegate.targets.cuda.arg_reduce import write_arg_reduce, write_top_k
from jitdelegate.targets.cuda.concat import write_concat
from jitdelegate.targets.cuda.contract import write_contract
from jitdelegate.targets.cuda.depthwise import write_depthwise
from jitdelegate.targets.cuda.element import OWN
from jitdelegate.targets.cuda.epilogue import reach
from jitdelegate.targets.cuda.gather import write_gather
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.map import copy, write_map
from jitdelegate.targets.cuda.matmul import write_matmul
from jitdelegate.targets.cuda.non_max_suppression import write_suppress
from jitdelegate.targets.cuda.pool import write_pool
from jitdelegate.targets.cuda.recurrent import write_recurrent
from jitdelegate.targets.cuda.reduce import write_reduce
from jitdelegate.targets.cuda.resize import write_resize
from jitdelegate.targets.cuda.scan import write_scan
from jitdelegate.targets.cuda.scatter import write_scatter
from jitdelegate.targets.cuda.softmax import write_softmax
from jitdelegate.targets.cuda.template import Launch, TensorPointer
from jitdelegate.targets.cuda.writer import ALIGN, Writer, check_memory
from jitdelegate.targets.plan_memory import Life, plan_memory

WRITERS: Mapping[type[Form], Callable[[Writer, Node], None]] = {
    ArgReduce: write_arg_reduce,
    Concat: write_concat,
    Contract: write_contract,
    Depthwise: write_depthwise,
    Gather: write_gather,
    Map: write_map,
    MatMul: write_matmul,
    Pool: write_pool,
    Recurrent: write_recurrent,
    Reduce: write_reduce,
    Resize: write_resize,
    Scan: write_scan,
    Scatter: write_scatter,
    Softmax: write_softmax,
    Suppress: write_suppress,
    TopK: write_top_k,
}
"""What writes the launches of each form; Views have none."""
MOST_ELEMENTS = 1 << 30
"""Of a tensor, however narrow they are: threads past its last element have numbers too."""
MOST_STEPS = 20_000
"""Nodes or launches: planning memory takes time with their square, some ten seconds for this many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order.

    Attributes:
        blocks: by tensor or intermediate, the (offset, size) of its memory in the arena, in bytes.
        names: the tensor whose memory a tensor is another name of, itself where it has its own.
        weights: constant memory.
    """

    graph: Graph
    launches: tuple[Launch, ...]
    blocks: Mapping[int, tuple[int, int]]
    names: Mapping[int, int]
    arena_bytes: int
    weights: bytes

    def offset(self, index: int) -> int:
        """Where a tensor or intermediate lies in the arena, in bytes."""
        return self.blocks[self.names.get(index, index)][0]


def plan(graph: Graph, gpu: Gpu, precision: str) -> Plan:
    """Launches and memory of a lowered graph.

    Raises:
        CompileError: a tensor is too large or of a type that kernels do not know, a form has no kernel, there are too
            many nodes or launches, a window reaches too far, or the GPU lacks what the precision needs.
    """
    _check_size(graph)
    graph = split_epilogues(graph)
    writer = Writer(graph, gpu, precision)
    alias = _write(writer)
    roots = {index: _root(alias, index) for index in range(len(graph.tensors))}
    lives = _lives(writer, roots)
    arena_bytes, places = plan_memory(list(lives.values()), align=ALIGN)
    blocks = {index: (place, life.size) for (index, life), place in zip(lives.items(), places, strict=True)}
    return Plan(graph, tuple(writer.launches), blocks, roots, arena_bytes, bytes(writer.weights))


def _check_size(graph: Graph) -> None:
    _check_steps("nodes", len(graph.nodes))
    touched = {*graph.inputs, *(index for node in graph.nodes for index in (*node.inputs, *node.outputs))} - {ABSENT}
    for tensor in (graph.tensors[index] for index in sorted(touched)):
        if tensor.dtype not in OWN:
            raise CompileError(f"'{tensor.name}' is {tensor.dtype}, expected one of {', '.join(OWN)}.")
        if tensor.size > MOST_ELEMENTS:
            raise CompileError(f"'{tensor.name}' has {tensor.size} elements, expected at most {MOST_ELEMENTS}.")
        check_memory(f"'{tensor.name}'", OWN[tensor.dtype].nbytes * tensor.size)


def _check_steps(what: str, count: int) -> None:
    if count > MOST_STEPS:
        raise CompileError(f"The graph has {count} {what}, expected at most {MOST_STEPS}.")


def split_epilogues(graph: Graph) -> Graph:
    """The graph with a Map of its own for every epilogue whose operands no kernel can follow."""
    tensors, nodes = list(graph.tensors), []
    for node in graph.nodes:
        if _has_reach(graph, node):
            nodes.append(node)
            continue
        form, output = node.form, node.outputs[0]
        assert isinstance(form, Form)
        between = len(tensors)
        # What a form computes has the type of its data; its epilogue may make another one of it.
        name, dtype = f"{graph.tensors[output].name} before its epilogue", graph.tensors[node.inputs[0]].dtype
        tensors.append(replace(graph.tensors[output], name=name, dtype=dtype))
        nodes.append(
            replace(
                node,
                inputs=node.inputs[: form.core],
                outputs=(between,),
                form=replace(form, epilogue=RESULT, operands=()),
            )
        )
        shape = graph.tensors[output].shape
        operands = (Access.broadcast(shape, shape), *form.operands)
        inputs = (between, *node.inputs[form.core :])
        nodes.append(replace(node, inputs=inputs, form=Map(epilogue=form.epilogue, operands=operands)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _has_reach(graph: Graph, node: Node) -> bool:
    form = node.form
    if not isinstance(form, Form) or isinstance(form, Map | Concat | View):
        return True
    output = graph.tensors[node.outputs[0]].shape
    extra = zip(form.operands, node.inputs[form.core :], strict=True)
    return all(reach(access, graph.tensors[index].shape, output) for access, index in extra)


def _write(writer: Writer) -> dict[int, int]:
    """Writes every node's launches; answers which tensor is another name of which."""
    alias: dict[int, int] = {}
    for node in writer.graph.nodes:
        _check_steps("launches", len(writer.launches))
        writer.begin(node)
        if not isinstance(node.form, View):
            _write_kernels(writer, node)
            continue
        source, target = node.inputs[0], node.outputs[0]
        if writer.graph.tensors[source].is_constant or writer.element(source) is not writer.element(target):
            copy(writer, source, target)
        else:
            alias[target] = source
    return alias


def _write_kernels(writer: Writer, node: Node) -> None:
    assert node.form is not None
    write = WRITERS.get(type(node.form))
    if write is None:
        raise CompileError(f"{node.op} needs a {type(node.form).__name__}, which has no CUDA kernel.")
    write(writer, node)


def _root(alias: Mapping[int, int], index: int) -> int:
    while index in alias:
        index = alias[index]
    return index


def _lives(writer: Writer, roots: Mapping[int, int]) -> dict[int, Life]:
    """How long each memory is needed: inputs from the start, outputs to the end."""
    end = len(writer.launches)
    steps: dict[int, list[int]] = {}
    for index in writer.graph.inputs:
        steps.setdefault(roots[index], []).append(0)
    for step, launch in enumerate(writer.launches):
        for index in launch.tensors():
            steps.setdefault(roots.get(index, index), []).append(step)
    for index in writer.graph.outputs:
        steps.setdefault(roots[index], []).append(end)
    return {index: Life(_bytes(writer, index), min(touched), max(touched)) for index, touched in sorted(steps.items())}


def _bytes(writer: Writer, index: int) -> int:
    if index < 0:
        return writer.temporaries[index]
    return writer.graph.tensors[index].size * writer.element(index).nbytes


def plan_text(planned: Plan) -> str:
    """One line per launch: what runs on how many blocks, and where what it touches lies."""
    lines = [f"arena {planned.arena_bytes} bytes, weights {len(planned.weights)} bytes"]
    for step, launch in enumerate(planned.launches):
        places = ", ".join(
            f"%{argument.index}@{planned.offset(argument.index) + argument.offset}"
            for argument in launch.arguments
            if isinstance(argument, TensorPointer)
        )
        blocks = f"grid {launch.grid} of {launch.template.threads}, about {launch.cycles:.0f} cycles"
        lines.append(f"{step}: {launch.template.symbol} {blocks} ({places})")
        lines.append(f"    {launch.template}")
    return "\n".join(lines) + "\n"
