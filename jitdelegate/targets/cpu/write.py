"""Writes the steps of a plan: calls the writer of each node's form."""

from __future__ import annotations

from collections.abc import Mapping

from jitdelegate.ir.faults import Faults
from jitdelegate.ir.forms import (
    Concat,
    Contract,
    Depthwise,
    Form,
    Fourier,
    Map,
    MatMul,
    Normalize,
    Pool,
    Recurrent,
    Reduce,
    Resize,
    Softmax,
)
from jitdelegate.ir.graph import Graph, form_of
from jitdelegate.ir.index_forms import ArgReduce, Gather, Scan, Scatter, Suppress, TopK, Update
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Step
from jitdelegate.targets.cpu.code.tasks import Plan, Task
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.halo import halo_jobs
from jitdelegate.targets.cpu.forms.map import copy_jobs
from jitdelegate.targets.planning.form_writer import Writers, check_sums, form_writer, load

PACKAGE = "jitdelegate.targets.cpu"
WRITERS: Writers = {
    ArgReduce: "forms.arg_reduce.write_arg_reduce",
    Concat: "forms.map.write_concat",
    Contract: "products.contract.write_contract",
    Depthwise: "products.depthwise.write_depthwise",
    Fourier: "forms.fourier.write_fourier",
    Gather: "forms.gather.write_gather",
    Map: "forms.map.write_map",
    MatMul: "products.matmul.write_matmul",
    Normalize: "forms.normalize.write_normalize",
    Pool: "forms.pool.write_pool",
    Recurrent: "products.recurrent.write_recurrent",
    Reduce: "forms.reduce.write_reduce",
    Resize: "forms.pool.write_resize",
    Scan: "forms.scan.write_scan",
    Scatter: "forms.scatter.write_scatter",
    Softmax: "forms.reduce.write_softmax",
    Suppress: "forms.non_max_suppression.write_suppress",
    TopK: "forms.arg_reduce.write_top_k",
    Update: "forms.update.write_update",
}
"""Form -> the function that writes its jobs, called with the Writer, the node and its form; Views have none."""
INTEGERS = (Contract, Depthwise, Pool)
"""Window forms whose writers sum integers too."""
FUSED: Mapping[tuple[type[Form], ...], str] = {
    (Depthwise, Contract): "products.depthwise.write_fused",
    (MatMul, Softmax, MatMul): "products.attention.write_attention",
}
"""Forms of a task of several nodes -> the function that writes its jobs, called with the Writer and the nodes."""


def write_steps(generator: Generator, graph: Graph, plan: Plan) -> None:
    """Adds one step per task to the generator. A step also fills the halo of the tensor that it writes, or is the first
    to write a part of.

    Raises:
        CompileError: forms have no kernel, ask for sums that kernels do not implement, or their writers fail; has the
            reasons of all.
    """
    writer, filled, faults = Writer(generator, graph, plan), set[int](), Faults()
    for task in plan.tasks:
        origins = sorted({*task.origin, *(position for node in task.nodes for position in node.origin)})
        with faults.of(origins):
            for node in task.nodes:
                check_sums(node, INTEGERS)
            jobs = _jobs(writer, task)
            whole = plan.wholes.get(task.writes(), task.writes())
            halo = [] if whole in filled else halo_jobs(generator, plan.memories[whole])
            filled.add(whole)
            form = "+".join(type(node.form).__name__ for node in task.nodes) or "Copy"
            generator.steps.append(Step(form, [*jobs, *halo], tuple(origins)))
    faults.settle()


def _jobs(writer: Writer, task: Task) -> list[Job]:
    jobs: list[Job]
    if task.node is None:
        return copy_jobs(writer.generator, writer.memory(task.source), writer.memory(task.target), task.shape)
    if task.before:
        fused = tuple(type(form_of(node)) for node in task.nodes)
        jobs = load(PACKAGE, FUSED[fused])(writer, *task.nodes)
    else:
        jobs = form_writer(PACKAGE, WRITERS, task.node)(writer, task.node, task.node.form)
    return jobs
