"""Runs a lowered graph on the CUDA target from plan and program file to session, on the driver's stub and in the PTX
simulator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from unittest.mock import patch

import numpy as np

from jitdelegate.errors import RefusedValueError
from jitdelegate.ir.graph import Graph
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.targets.cuda import generate
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.gpu import gpu_of
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.plan.plan import plan
from tests.gpu.simulator import Memory, Module
from tests.gpu.stub.library import Library
from tests.gpu.stub.simulator import SimulatedMemory, simulate
from tests.targets.execute import program_of


def session_of(
    graph: Graph, kind: str, capability: tuple[int, int], precision: str = "float32", choices: Choices | None = None
) -> tuple[CudaSession, Library]:
    """A session of the graph's program, and the driver that it runs on."""
    gpu = gpu_of(kind)
    planned = plan(graph, gpu, precision, choices)
    compiled = generate.compile_templates(planned.templates, gpu.architecture, TemplateStore(None))
    made = generate.generated(planned, compiled, graph.inputs, graph.outputs)
    program = program_of(graph, made, kind, "cuda")
    modules = {one.template.symbol: Module(one.ptx.decode()) for one in compiled}
    kinds = {made.kernels[each.kernel].name: each.kinds for each in made.launches}
    library = Library(simulate(modules), kinds, memory=SimulatedMemory(Memory()), capability=capability)
    return CudaSession(read(write(program)), Device(Driver(library), 0)), library


def run_session(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    architecture: str,
    precision: str,
    seed: int,
    choices: Choices | None = None,
) -> list[np.ndarray]:
    """The outputs of a second run, in a context of its own; branches run in an order drawn from the seed."""
    number = int(architecture.removeprefix("sm_"))
    with patch("jitdelegate.runtime.cuda.context._held", {}):
        session, library = session_of(graph, architecture, divmod(number, 10), precision, choices)
        library.choose = random.Random(seed).choice
        try:
            with suppress(RefusedValueError):  # 1 may be no index of what it indexes
                session.run([np.full_like(one, 1) for one in inputs])
            found = session.run(inputs)
            return [np.array(one) for one in found]
        finally:
            session.close()
