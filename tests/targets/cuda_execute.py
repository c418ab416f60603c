"""Runs a lowered graph on the CUDA target in the PTX simulator, launch by launch, without program file and driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph
from tests.gpu.simulator import Memory, Module

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
pytest.importorskip("cuda.bindings.nvvm", reason="needs cuda-bindings, the extra 'cuda'")

from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.gpu import GPUS, REGISTERS
from jitdelegate.targets.cuda.code.template import (
    Argument,
    NoPointer,
    StatusPointer,
    Template,
    TensorPointer,
    WeightsPointer,
)
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.plan.plan import plan

_store = TemplateStore(None)
_texts: dict[Template, str] = {}


def text_of(template: Template) -> str:
    """NVVM IR of a template, lowered once in this process."""
    if template not in _texts:
        _texts[template] = _store.text(template)
    return _texts[template]


@lru_cache(maxsize=256)
def ptx_of(template: Template, architecture: str) -> str:
    """The PTX that NVVM makes of it."""
    return back_end.ptx(text_of(template), architecture).decode()


@lru_cache(maxsize=256)
def _module(ptx: str) -> Module:
    return Module(ptx)


def simulated(template: Template, architecture: str) -> Module:
    """Its kernel in the simulator."""
    return _module(ptx_of(template, architecture))


def run(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    architecture: str = "sm_90",
    precision: str = "float32",
    schedule: str = "lockstep",
    seed: int = 0,
    choices: Choices | None = None,
    module_of: Callable[[Template, str], Any] = simulated,
) -> list[np.ndarray]:
    """The outputs of a lowered graph. Every tensor has memory of its own, so that nobody reaches into a neighbour's.

    Args:
        module_of: gives what runs a template's kernel on an architecture, by default the simulator.
    """
    planned = plan(graph, GPUS[architecture], precision, choices)
    memory = Memory()
    places = {index: memory.allocate(max(1, size)) for index, (_, size) in planned.blocks.items()}
    roots = {index: root for index, root in planned.buffers.items() if root in places}
    starts = {index: planned.offset(index) - planned.offset(root) for index, root in roots.items()}
    addresses = {index: places[root] + starts[index] for index, root in roots.items()} | places
    weights = memory.keep(memory.place(np.frombuffer(planned.writer.weights.content or bytes(16), np.uint8)))
    for index, array in zip(graph.inputs, inputs, strict=True):
        memory.write(addresses[index], np.ascontiguousarray(array, graph.tensors[index].dtype))
    status = memory.let_race(memory.allocate(8), 8)
    memory.write(status, bytes(8))
    ends = {places[root]: places[root] + size for root, (_, size) in planned.blocks.items()}
    for step, launch in enumerate(planned.launches):
        memory.touched = []
        module_of(launch.template, architecture).launch(
            launch.template.symbol,
            grid=launch.grid,
            block=(launch.template.threads, 1, 1),
            arguments=[_value(argument, addresses, weights, status) for argument in launch.arguments],
            shared_bytes=launch.shared_bytes,
            memory=memory,
            schedule=schedule,
            seed=seed + step,
            is_dependent=GPUS[architecture].has_dependent_launch,
        )
        written = {places[planned.buffers[index]] for index, writes in launch.accesses() if writes}
        for start, end, writes in memory.touched:
            told = any(first <= start and end <= ends[first] for first in written)
            assert told or not writes, f"{launch.template} writes to memory of which it does not tell"
    outputs = ((addresses[index], graph.tensors[index]) for index in graph.outputs)
    return [memory.array(address, tensor.dtype, tensor.shape) for address, tensor in outputs]


def _value(argument: Argument, addresses: Mapping[int, int], weights: int, status: int) -> int | float:
    if isinstance(argument, TensorPointer):
        return addresses[argument.index]
    if isinstance(argument, WeightsPointer):
        return weights + argument.offset
    if isinstance(argument, StatusPointer):
        return status
    return 0 if isinstance(argument, NoPointer) else argument


FLUSHING = {"ex2.approx.ftz.f32", "rcp.approx.ftz.f32"}
"""What may take denormal numbers for zeros: powers of two, and the reciprocals that NVIDIA's functions begin with."""


def assert_compiles_everywhere(templates: Sequence[Template]) -> None:
    """Every template compiles for every GPU that has its instructions; see `compiled`."""
    for template in templates:
        for architecture in back_end.ARCHITECTURES:
            if template.cluster > 1 and not GPUS[architecture].has_clusters:
                continue
            compiled(template, architecture)


def compiled(template: Template, architecture: str) -> back_end.Cubin:
    """The binary of a template, which has neither spills nor local memory, and tensor cores where it says so."""
    code = ptx_of(template, architecture)
    cubin = back_end.cubin(code.encode(), architecture)
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0), (template, architecture)
    assert template.threads * -(-cubin.registers // 8) * 8 <= REGISTERS, (template, architecture)
    assert ("mma.sync" in code) == template.uses_tensor_cores, (template, architecture)
    assert {*re.findall(r"[\w.]+\.ftz[\w.]*", code)} <= FLUSHING, "denormal numbers are kept"
    return cubin


def all_families(base: type[Template] = Template) -> set[str]:
    """The families of the package's kernels; tests and scripts have others."""
    found = set[str]()
    for one in base.__subclasses__():
        found |= {one.family} if one.__module__.startswith("jitdelegate.") and "family" in vars(one) else set()
        found |= all_families(one)
    return found


def templates_of(graph: Graph, architecture: str = "sm_90", precision: str = "float32") -> list[Template]:
    """The distinct templates of a lowered graph."""
    return list(dict.fromkeys(launch.template for launch in plan(graph, GPUS[architecture], precision).launches))


def kinds(graph: Graph, **options: Any) -> list[type[Template]]:
    """The classes of its templates."""
    return [type(template) for template in templates_of(graph, **options)]
