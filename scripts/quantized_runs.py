"""Runs models on LiteRT's kernel sets and on jitdelegate's targets, and compares their outputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np

import jitdelegate
from jitdelegate.commands.measurement.difference import nrmse
from jitdelegate.errors import CompileError

Outputs = list[list[np.ndarray]]
"""For each set of inputs, the outputs in the model's order."""

KERNEL_SETS = {
    "litert": litert.OpResolverType.AUTO,
    "optimized": litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "reference": litert.OpResolverType.BUILTIN_REF,
}
"""LiteRT's kernels by the rounding that they define, "litert" with XNNPACK where it takes an operator."""

FLOAT_LIMIT = 1e-5


@dataclass(frozen=True, slots=True)
class Difference:
    """How far outputs are from those expected.

    Attributes:
        elements: number of elements compared.
        differing: number of elements that are not equal, bit for bit but for -0.0 and NaN; of floats that were never
            quantized, those further apart than FLOAT_LIMIT of the largest.
        largest: the largest difference in steps of what is quantized, else 0.
        nrmse: rms(difference) / rms(expected), the worst output of the worst inputs.
        example: where they first differ, in words.
    """

    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    nrmse: float = 0.0
    example: str = ""

    def __add__(self, other: Difference) -> Difference:
        return Difference(
            self.elements + other.elements,
            self.differing + other.differing,
            max(self.largest, other.largest),
            max(self.nrmse, other.nrmse),
            self.example or other.example,
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """What jitdelegate made of a model.

    Attributes:
        outputs: for each set of inputs.
        refused: (operator, reason) of every operator that is not compiled.
        operators: number of operators of the model.
    """

    outputs: Outputs
    refused: tuple[tuple[str, str], ...]
    operators: int


def run_litert(content: bytes, inputs: Iterable[Sequence[np.ndarray]], kernels: str = "litert") -> Outputs:
    """LiteRT's outputs; its variables go on from one set of inputs to the next.

    Raises:
        RuntimeError, ValueError: LiteRT refuses the model.
    """
    interpreter = litert.Interpreter(
        model_content=content, experimental_op_resolver_type=KERNEL_SETS[kernels], num_threads=1
    )
    interpreter.allocate_tensors()
    return [_invoke(interpreter, each) for each in inputs]


def _invoke(interpreter: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def kept_tensors(content: bytes, inputs: Sequence[np.ndarray], indices: Iterable[int]) -> dict[int, np.ndarray]:
    """Values of the main subgraph's tensors after a run on LiteRT's optimized kernels, which keep all of them."""
    interpreter = litert.Interpreter(
        model_content=content,
        experimental_op_resolver_type=KERNEL_SETS["optimized"],
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    _invoke(interpreter, inputs)
    return {index: interpreter.get_tensor(index) for index in indices}


def run_ours(
    content: bytes,
    inputs: Iterable[Sequence[np.ndarray]],
    target: str = "cpu",
    rounding: str = "litert",
    features: str = "auto",
) -> Ran:
    """Our outputs, with every operator compiled that can be.

    Raises:
        JitDelegateError: the model is refused.
    """
    if target == "simulator":
        return _run_simulated(content, inputs)
    warnings.simplefilter("ignore", jitdelegate.DelegateWarning)
    options: dict[str, Any] = {"cpu_features": features}
    options |= {} if rounding == "litert" else {"quantized_rounding": rounding}
    with jitdelegate.load(
        content, target=target, serialization_dir=False, num_threads=1, partitioning="all", **options
    ) as model:
        outputs = [[np.array(output) for output in _as_tuple(model(*each))] for each in inputs]
        report = model.report()
    left = tuple((one.op, one.reason) for one in report.operators if one.reason)
    if not left and not report.fully_delegated:
        left = (("", "; ".join(report.notes)),)
    return Ran(outputs, left, len(report.operators))


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _run_simulated(content: bytes, inputs: Iterable[Sequence[np.ndarray]]) -> Ran:
    """The PTX of a model without states, as a GPU would run it; raises the simulator's errors."""
    from jitdelegate import passes
    from jitdelegate.passes.specialize_subgraph import specialize_subgraph
    from jitdelegate.passes.support import unsupported
    from jitdelegate.tflite.read import read
    from tests.targets.cuda_execute import run

    model = specialize_subgraph(read(content))
    folded = passes.run(model.graphs[0], passes=passes.FOLD)
    names = [node.op for node in read(content).graphs[0].nodes]
    if left := unsupported(model, folded):
        return Ran([], tuple((names[position], reason) for position, reason in left), len(names))
    if folded.states:
        return Ran([], (("", "Models with states are not simulated."),), len(names))
    lowered = passes.run(folded, passes=passes.REWRITE)
    try:
        return Ran([run(lowered, each) for each in inputs], (), len(names))
    except CompileError as error:
        return Ran([], (("", str(error)),), len(names))


def compared(found: Outputs, expected: Outputs, steps: Sequence[float]) -> Difference:
    """How far apart two runs of one model are, over all inputs and outputs."""
    total = Difference()
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for place, (a, b, step) in enumerate(zip(ours, theirs, steps, strict=True)):
            total += _difference(a, b, step, f"inputs {number}, output {place}")
    return total


def _difference(found: np.ndarray, expected: np.ndarray, step: float, where: str) -> Difference:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        example = f"{where}: {found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
        return Difference(expected.size, expected.size, math.inf, math.inf, example)
    with np.errstate(invalid="ignore"):
        wrong = ~((found == expected) | ((found != found) & (expected != expected)))
    if expected.dtype.kind == "f" and not step:
        wrong &= ~np.isclose(found, expected, 0, FLOAT_LIMIT * float(np.abs(expected).max(initial=0)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return Difference(expected.size)
    a, b = (each.astype(np.float64) for each in (found, expected))
    place = tuple(map(int, np.argwhere(wrong)[0]))
    largest = float(np.nanmax(np.abs(a - b)[wrong])) / step if step else 0.0
    example = f"{where}, at {list(place)}: {found[place]}, expected {expected[place]}"
    return Difference(expected.size, count, largest, nrmse(a, b), example)
