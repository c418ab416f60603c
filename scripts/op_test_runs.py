"""Runs one of LiteRT's op tests: by jitdelegate, by LiteRT, and in the PTX simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import jitdelegate
from jitdelegate import passes
from jitdelegate.errors import CompileError, JitDelegateError
from jitdelegate.ir.graph import Graph, Model, State
from jitdelegate.passes.shape_inputs import shape_inputs
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import unsupported
from jitdelegate.tflite.read import read
from scripts.op_test_archive import Arrays, OpTest, in_order

NO_REASON = "The report does not say why."


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run came to.

    Attributes:
        outputs: in the model's order, for one value set after the other; none where nothing was run.
        reasons: sentences; why it did not run wholly on the target.
        error: the sentence with which the model was refused altogether.
    """

    outputs: Sequence[np.ndarray] = ()
    reasons: Sequence[str] = ()
    error: str = ""

    @property
    def delegated(self) -> bool:
        return not self.reasons and not self.error


Run = Callable[[OpTest], Ran]


def run_cpu(test: OpTest) -> Ran:
    """The case on the CPU target, through the public interface."""
    options = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    try:
        interpreter = jitdelegate.Interpreter(model_content=test.model, experimental_delegates=[options])
        ran = _interpret(interpreter, test)
    except (JitDelegateError, ValueError, RuntimeError) as error:  # LiteRT's own pass through where it runs a model
        return Ran(error=str(error))
    report = interpreter.report()
    if report.fully_delegated:
        return ran
    told = [*report.notes, *(operator.reason for operator in report.operators)]
    return replace(ran, reasons=tuple(dict.fromkeys(filter(None, told))) or (NO_REASON,))


def run_litert(test: OpTest) -> Ran:
    """The case on LiteRT's builtin kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        return _interpret(Interpreter(model_content=test.model, experimental_op_resolver_type=kernels), test)
    except (ValueError, RuntimeError) as error:
        return Ran(error=str(error))


def _interpret(interpreter: Any, test: OpTest) -> Ran:
    return Ran([array for values in test.sets for array in _outputs(interpreter, values.inputs)])


def _outputs(interpreter: Any, inputs: Arrays) -> list[np.ndarray]:
    details = interpreter.get_input_details()
    arrays = in_order([detail["name"] for detail in details], inputs)
    for detail, array in zip(details, arrays, strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(detail["index"], array.astype(detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def run_simulated(test: OpTest) -> Ran:
    """The case as PTX in the simulator, as a GPU would run it; raises the simulator's errors."""
    from tests.targets.cuda_execute import run

    model = read(test.model)
    source = specialize_subgraph(model).graphs[0]
    states = [_initial(source, state) for state in source.states]
    outputs: list[np.ndarray] = []
    for values in test.sets:
        arrays = in_order([source.tensors[index].name for index in source.given], values.inputs)
        folded, reasons = _folded(model, arrays)
        if reasons:
            return Ran(reasons=tuple(dict.fromkeys(reasons)))
        graph = passes.run(folded, passes=passes.REWRITE)
        feeds = [array.astype(graph.tensors[index].dtype) for index, array in zip(graph.given, arrays, strict=True)]
        try:
            results = run(graph, [*feeds, *states])
        except CompileError as error:
            return Ran(reasons=(str(error),))
        outputs += results[: len(graph.returned)]
        states = results[len(graph.returned) :]
    return Ran(outputs)


def _folded(model: Model, arrays: Sequence[np.ndarray]) -> tuple[Graph, list[str]]:
    """The main subgraph for inputs of these shapes, and values where they decide shapes; why it is not compiled."""
    shapes = [array.shape for array in arrays]
    known: tuple[int, ...] = ()
    while True:
        entered = specialize_subgraph(model, shapes=shapes, values=[(k, tuple(arrays[k].flat)) for k in known])
        folded = passes.run(entered.graphs[0], passes=passes.FOLD)
        reasons = [sentence for _, sentence in unsupported(entered, folded)]
        if not reasons or known or not (known := shape_inputs(folded)):
            return folded, reasons


def _initial(graph: Graph, state: State) -> np.ndarray:
    tensor = graph.tensors[state.before]
    return np.zeros(tensor.shape, tensor.dtype) if state.initial is None else state.initial


TARGETS: Mapping[str, Run] = {"cpu": run_cpu, "simulator": run_simulated}
"""What a case can be run on."""
