"""A program with states, as the compiler makes it."""

from __future__ import annotations

import numpy as np

from jitdelegate.program.program import Program, State
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import level
from tests.passes.graphs import Builder, lowered
from tests.targets.execute import program_of


def running_sums_program(*, is_resource: int = 0) -> Program:
    """y = the sum of every x so far, beginning with 1; a second state exchanges places with the first."""
    model = Builder()
    x, first, second = model.input(2, 3), model.input(2, 3), model.input(2, 3)
    total = model.op("ADD", [x, first], (2, 3))
    graph = lowered(model.finish(total, total, model.op("ADD", [second, first], (2, 3))))
    program = program_of(graph, generate(graph, level()), level())
    program.weights = bytes(program.weights) + bytes(-len(program.weights) % 16) + np.ones(6, np.float32).tobytes()
    program.inputs, program.outputs = program.inputs[:1], program.outputs[:1]
    first_state = State(name="sum", nbytes=24, initial=len(program.weights) - 24, is_resource=is_resource)
    program.states = (first_state, State(name="sums", nbytes=24))
    return program
