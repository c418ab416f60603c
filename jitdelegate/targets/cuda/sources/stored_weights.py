"""How wide weights beside floats are in memory, which is as in the file: int4 lie two to a byte, and float32 that are
float16 numbers are stored so. They become floats on the way to shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.dequantize import is_half
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.narrow_integers import are_int4
from jitdelegate.targets.cuda.code.writer import STORED, Writer
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem


def with_stored_weights(writer: Writer, problem: ConvProblem) -> ConvProblem:
    """The problem with weights as they lie in memory, which is narrower where that pays."""
    if problem.sums is not Element.FLOAT32:
        return problem
    if all(are_int4(phase.weights) for phase in problem.phases):
        return replace(problem, are_packed=True)
    is_wide = problem.weights is STORED[writer.precision] is Element.FLOAT32
    if not is_wide or not _pays(writer, problem) or not is_half(writer.array(problem.node.inputs[1])):
        return problem
    phases = (replace(phase, weights=phase.weights.astype(np.float16)) for phase in problem.phases)
    return replace(problem, phases=tuple(phases))


def _pays(writer: Writer, problem: ConvProblem) -> bool:
    """Whether fewer bytes outweigh that weights go through registers: always where float32 does so too, elsewhere where
    weights are most of what a launch reads and writes, so that few pixels meet them."""
    weights = sum(phase.weights.nbytes for phase in problem.phases)
    tensors = problem.data, problem.output
    moved = sum(writer.graph.tensors[index].size * writer.element(index).nbytes for index in tensors)
    return not writer.gpu.has_async_copy or weights >= moved
