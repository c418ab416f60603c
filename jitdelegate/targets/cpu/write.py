"""Writes the steps of a plan: looks up where operands are and calls the generator of each node's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.expr import Arg, Const, Expr, substitute
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
)
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.index_forms import ArgReduce, Gather, IndexForm, Scan, Scatter, Suppress, TopK
from jitdelegate.ir.layout import Layout, image_shape
from jitdelegate.targets.choose_layout import is_spatial
from jitdelegate.targets.cpu.arg_reduce import ArgReduceWriter
from jitdelegate.targets.cpu.contract import ContractWriter
from jitdelegate.targets.cpu.depthwise import DepthwiseWriter
from jitdelegate.targets.cpu.gather import GatherWriter
from jitdelegate.targets.cpu.halo import halo_jobs
from jitdelegate.targets.cpu.kernel import Epilogue, Generator, Job, Memory, Step, Stream, channel_vector, follow
from jitdelegate.targets.cpu.map import MapWriter, Operand, whole
from jitdelegate.targets.cpu.matmul import MatMulWriter, matrix
from jitdelegate.targets.cpu.non_max_suppression import SuppressWriter
from jitdelegate.targets.cpu.plan import Plan, Task
from jitdelegate.targets.cpu.pool import ImageWriter
from jitdelegate.targets.cpu.recurrent import RecurrentWriter, Weights
from jitdelegate.targets.cpu.reduce import ReduceWriter
from jitdelegate.targets.cpu.rows import Placed
from jitdelegate.targets.cpu.scan import ScanWriter
from jitdelegate.targets.cpu.scatter import ScatterWriter
from jitdelegate.targets.cpu.top_k import TopKWriter


@dataclass
class StepWriter:
    """Turns the tasks of one plan into steps of the generator."""

    generator: Generator
    graph: Graph
    plan: Plan

    def __post_init__(self) -> None:
        self.contracts = ContractWriter(self.generator)
        self.depthwise = DepthwiseWriter(self.generator, self.contracts)
        self.images = ImageWriter(self.generator)
        self.matmuls = MatMulWriter(self.generator)
        self.recurrences = RecurrentWriter(self.generator)
        self.reductions = ReduceWriter(self.generator)
        self.maps = MapWriter(self.generator)

    def write(self) -> None:
        """One step per task, with the margins of what it writes."""
        for task in self.plan.tasks:
            jobs = self._jobs(task)
            written = self.plan.memories[task.writes()]
            origins = {*task.origin, *(o for node in (task.first, task.node) if node for o in node.origin)}
            form = type(task.node.form).__name__ if task.node else "Copy"
            if task.first:
                form = "Depthwise+" + form
            step = Step(form, [*jobs, *halo_jobs(self.generator, written)], tuple(sorted(origins)))
            self.generator.steps.append(step)

    def _jobs(self, task: Task) -> list[Job]:
        if task.node is None:
            return self._copy(self._memory(task.source), self.plan.memories[task.target], task.shape)
        if task.first is not None:
            return self._fused(task.first, task.node)
        node = task.node
        match node.form:
            case Contract():
                return self._contract(node, node.form)
            case Depthwise():
                return self._depthwise(node, node.form)
            case MatMul():
                return self._matmul(node, node.form)
            case Pool():
                return self.images.pool(node.form, self._input(node), self._output(node), self._epilogue(node))
            case Resize():
                return self.images.resize(node.form, self._input(node), self._output(node), self._epilogue(node))
            case Recurrent():
                return self._recurrent(node, node.form)
            case Reduce():
                return self._reduce(node, node.form)
            case Softmax():
                shape = self.graph.tensors[node.inputs[0]].shape
                return self.reductions.softmax(node.form, self._input(node), shape, self._output(node))
            case Map():
                return self._map(node, node.form)
            case Concat():
                return self._concat(node, node.form)
            case IndexForm():
                return self._indexed(node, node.form)
        raise AssertionError(f"no generator for {node.form}")

    # operands

    def _memory(self, index: int) -> Memory:
        """Where a tensor is; constants are packed row-major on first use."""
        if index in self.plan.memories:
            return self.plan.memories[index]
        tensor = self.graph.tensors[index]
        assert tensor.data is not None
        layout = Layout(image_shape(tensor.shape), self.generator.lanes, dtype=tensor.dtype)
        return Memory("weights", self.generator.weights.add(tensor.data), layout)

    def _input(self, node: Node) -> Memory:
        return self._memory(node.inputs[0])

    def _output(self, node: Node) -> Memory:
        return self.plan.memories[node.outputs[0]]

    def _constant(self, index: int) -> np.ndarray | None:
        if index == ABSENT:
            return None
        data = self.graph.tensors[index].data
        assert data is not None
        return data

    def _epilogue(self, node: Node) -> Epilogue:
        """The form's epilogue with one-element constants as numbers and all else as streams."""
        form = node.form
        assert form is not None
        output = self.graph.tensors[node.outputs[0]].shape
        return self._bind(form, node.inputs[form.core :], output)

    def _bind(self, form: Form, operands: Sequence[int], output: tuple[int, ...]) -> Epilogue:
        values: list[Expr] = [Arg(0)]
        streams: list[Stream] = []
        for index, access in zip(operands, form.operands, strict=True):
            data = self.graph.tensors[index].data
            if data is not None and data.size == 1:
                values.append(Const(float(data.flat[0])))
            else:
                streams.append(self._stream(index, access, output))
                values.append(Arg(len(streams)))
        return Epilogue(substitute(form.epilogue, values), tuple(streams))

    def _stream(self, index: int, access: Access, output: tuple[int, ...]) -> Stream:
        tensor = self.graph.tensors[index]
        if tensor.data is not None and tensor.data.size == tensor.shape[-1] == output[-1]:
            lanes = self.generator.lanes
            offset = channel_vector(self.generator.weights, tensor.data, lanes)
            layout = Layout((1, 1, 1, output[-1]), lanes, blocked=True)
            return Stream(Memory("weights", offset, layout), 0, 0, 0, 0, layout.block, splat=False)
        if tensor.data is not None and len(output) == 4 and len(tensor.shape) < 4:
            missing = 4 - len(tensor.shape)
            absent, ones = (-1,) * missing, (1,) * missing
            access = Access(absent + access.dims, (0,) * missing + access.starts, ones + access.steps)
            shape = ones + tensor.shape
            memory = replace(self._memory(index), layout=Layout(image_shape(shape), self.generator.lanes))
            return follow(memory, access, shape, output)
        return follow(self._memory(index), access, tensor.shape, output)

    # forms

    def _contract(self, node: Node, form: Contract) -> list[Job]:
        weights, bias = self._filter(node), self._constant(node.inputs[2])
        return self.contracts.jobs(form, self._input(node), self._output(node), weights, bias, self._epilogue(node))

    def _matmul(self, node: Node, form: MatMul) -> list[Job]:
        output = node.outputs[0]
        leading = self.graph.tensors[output].shape[:-2]
        a, b, c = (matrix(self._memory(i), self.graph.tensors[i].shape, leading) for i in (*node.inputs[:2], output))
        return self.matmuls.jobs(form, a, b, c, self._epilogue(node))

    def _recurrent(self, node: Node, form: Recurrent) -> list[Job]:
        operands = [self._memory(index) for index in node.inputs[:3]]
        weights, *further = map(self._constant, node.inputs[3:])
        assert weights is not None
        shape = self.graph.tensors[node.outputs[0]].shape
        return self.recurrences.jobs(form, shape, operands, self._output(node), Weights.of(weights, *further))

    def _filter(self, node: Node) -> np.ndarray:
        """A Contract's weights as f32[O, kh, kw, I]."""
        weights = self._constant(node.inputs[1])
        assert weights is not None
        return weights if weights.ndim == 4 else weights.reshape(weights.shape[0], 1, 1, -1)

    def _depthwise(self, node: Node, form: Depthwise) -> list[Job]:
        weights, bias = self._constant(node.inputs[1]), self._constant(node.inputs[2])
        assert weights is not None
        if form.multiplier > 1 and self.generator.lanes % form.multiplier:
            return self._as_groups(node, form, weights, bias)
        return self.depthwise.jobs(form, self._input(node), self._output(node), weights, bias, self._epilogue(node))

    def _as_groups(self, node: Node, form: Depthwise, weights: np.ndarray, bias: np.ndarray | None) -> list[Job]:
        """Filters whose number per channel does not divide the vector: one Contract of depth 1 per channel."""
        contract = Contract(
            kernel=form.kernel,
            stride=form.stride,
            dilation=form.dilation,
            padding=form.padding,
            groups=weights.shape[3] // form.multiplier,
        )
        filters = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))
        return self.contracts.jobs(contract, self._input(node), self._output(node), filters, bias, self._epilogue(node))

    def _fused(self, depthwise: Node, contract: Node) -> list[Job]:
        assert isinstance(depthwise.form, Depthwise)
        assert isinstance(contract.form, Contract)
        weights = self._constant(depthwise.inputs[1])
        assert weights is not None
        return self.depthwise.fused_jobs(
            depthwise.form,
            contract.form,
            self._input(depthwise),
            self._output(contract),
            (weights, self._filter(contract)),
            (self._constant(depthwise.inputs[2]), self._constant(contract.inputs[2])),
            (self._epilogue(depthwise), self._epilogue(contract)),
        )

    def _reduce(self, node: Node, form: Reduce) -> list[Job]:
        shape = self.graph.tensors[node.inputs[0]].shape
        if is_spatial(form, self.graph, node):
            window = (shape[1], shape[2])
            pool = Pool(kernel=window, stride=window, kind=form.kind)
            return self.images.pool(pool, self._input(node), self._output(node), self._epilogue(node))
        return self.reductions.reduce(form, self._input(node), shape, self._output(node), self._epilogue(node))

    def _map(self, node: Node, form: Map) -> list[Job]:
        shape = self.graph.tensors[node.outputs[0]].shape
        operands = [self._operand(index, access) for index, access in zip(node.inputs, form.operands, strict=True)]
        return self.maps.jobs(self._output(node), shape, form.epilogue, tuple(operands))

    def _operand(self, index: int, access: Access) -> Operand:
        tensor = self.graph.tensors[index]
        if tensor.data is not None and tensor.data.size == 1 and access.fill is None:
            return Operand(None, tensor.shape, access, tensor.dtype, tensor.data.flat[0].item())
        return Operand(self._memory(index), tensor.shape, access, tensor.dtype)

    def _concat(self, node: Node, form: Concat) -> list[Job]:
        shape = self.graph.tensors[node.outputs[0]].shape
        jobs: list[Job] = []
        at = 0
        for index in node.inputs:
            part = self.graph.tensors[index].shape
            starts = tuple(-at if axis == form.axis else 0 for axis in range(len(shape)))
            access = Access(tuple(range(len(shape))), starts, (1,) * len(shape))
            box = whole(shape).between(form.axis, at, at + part[form.axis])
            operand = Operand(self._memory(index), part, access, self.graph.tensors[index].dtype)
            jobs += self.maps.jobs(self._output(node), shape, Arg(0), (operand,), box)
            at += part[form.axis]
        return jobs

    def _indexed(self, node: Node, form: IndexForm) -> list[Job]:
        first, *others = (Placed(self._memory(i), self.graph.tensors[i].shape) for i in (*node.inputs, *node.outputs))
        match form:
            case Gather():
                return GatherWriter(self.generator).jobs(form, first, *others)
            case Scatter():
                return ScatterWriter(self.generator).jobs(form, first, *others)
            case Scan():
                return ScanWriter(self.generator).jobs(form, first, *others)
            case ArgReduce():
                return ArgReduceWriter(self.generator).jobs(form, first, *others)
            case TopK():
                return TopKWriter(self.generator).jobs(first, *others)
            case Suppress():
                return SuppressWriter(self.generator).jobs(form, first, *others)
        raise AssertionError(f"no generator for {form}")

    def _copy(self, source: Memory, target: Memory, shape: tuple[int, ...]) -> list[Job]:
        rank = len(shape)
        dense = Layout(image_shape(shape), self.generator.lanes, dtype=source.layout.dtype)
        source, target = (
            replace(side, layout=dense) if side.layout.plain and side.layout.shape != dense.shape else side
            for side in (source, target)
        )
        access = Access(tuple(range(rank)), (0,) * rank, (1,) * rank)
        return self.maps.jobs(target, shape, Arg(0), (Operand(source, shape, access, dense.dtype),))
