"""Makes each part of the compiler fail, one at a time, and looks whether models run all the same.

    python -m scripts.inject_faults [--only NAME] [--every N]

The parts are every pass, every operator's check, shapes, folding and lowering, and every writer of kernels of every
target. A model that needs the part, and TANH beside it, is opened twice while the part raises an AssertionError: its
answers have to be LiteRT's, its report has to name the error, TANH has to stay compiled unless the part is of no operator
in particular, and the second start has to compile nothing. Exit status: 0 all well, 1 some model was not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate import passes
from jitdelegate.cache.key import variant_parts
from jitdelegate.compiler import compile as compiler
from jitdelegate.engine.load_path import find_key
from jitdelegate.ir.forms import Form
from jitdelegate.ir.graph import ABSENT, Graph, Tensor
from jitdelegate.ops import OPS
from jitdelegate.options import DelegateOptions
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import unsupported
from jitdelegate.program.read import read as read_program
from jitdelegate.targets.cpu import write as cpu
from jitdelegate.targets.cuda import plan as cuda
from jitdelegate.targets.cuda.target import TARGET as CUDA
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.litert import states_of

CAUSE = "the compiler failed with AssertionError: injected"
BESIDE = "TANH"
"""The operator that does not fail."""
METHODS = ("check", "shapes", "fold", "lower")
GPU = "sm_90"
LIMIT = 1e-4


@dataclass(frozen=True)
class Place:
    """A part of the compiler that may fail.

    Attributes:
        name: of the place.
        target: that models are compiled for.
        owner, attribute: what is replaced.
        op: whose model needs the place; "" for one that meets many passes.
        is_anyones: whether no operator in particular fails, so that the whole model may go to LiteRT.
        is_optional: whether the model is compiled without the place.
    """

    name: str
    target: str
    owner: Any
    attribute: str
    op: str = ""
    is_anyones: bool = False
    is_optional: bool = False

    def failing(self, stack: ExitStack) -> None:
        """Raise an error there until the stack is closed."""
        found = getattr(self.owner, self.attribute)
        if isinstance(found, tuple):  # passes
            name = self.name.partition(" ")[2]
            broken = tuple(_broken(each.__name__) if each.__name__ == name else each for each in found)
            stack.enter_context(patch.object(self.owner, self.attribute, broken))
        else:
            stack.enter_context(patch.object(self.owner, self.attribute, _broken(self.attribute)))


def _broken(name: str) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("injected\nand more lines")

    fail.__name__ = name
    return fail


def places() -> Iterator[Place]:
    """All places."""
    for group in ("FOLD", "REWRITE"):
        for each in dict.fromkeys(getattr(passes, group)):
            optional = each.__name__ in passes.OPTIONAL
            yield Place(f"pass {each.__name__}", "cpu", passes, group, "", is_anyones=True, is_optional=optional)
    for name in sorted(OPS):
        if one_op(name) is not None:
            for method in METHODS:
                yield Place(f"{method} of {name}", "cpu", OPS[name], method, name)
    yield from _writers("cpu", cpu)
    yield from _writers("cuda", cuda)
    for name in cuda.FINDERS:
        module, function = name.split(".")
        owner = import_module(f"{cuda.PACKAGE}.{module}")
        yield Place(f"cuda {name}", "cuda", owner, function, "CONV_2D", is_anyones=True)


def _writers(target: str, table: ModuleType) -> Iterator[Place]:
    """The writers of kernels; each form's, and those of several forms, need an operator that has them."""
    for form, name in table.WRITERS.items():
        module, function = name.split(".")
        op = op_with(form)
        if op:
            yield Place(f"{target} {name}", target, import_module(f"{table.PACKAGE}.{module}"), function, op)


@cache
def op_with(form: type[Form]) -> str:
    """The first operator whose first case has a kernel of this form; "" where none has."""
    return next((name for name in sorted(OPS) if form in _forms(name)), "")


@cache
def _forms(op: str) -> frozenset[type[Form]]:
    content = one_op(op)
    graph = lowered(content) if content else None
    return frozenset(type(node.form) for node in graph.nodes) if graph else frozenset()


def lowered(content: bytes) -> Graph | None:
    """The main subgraph, lowered; None where it is not compiled as a whole."""
    model = specialize_subgraph(read(content))
    graph = passes.run(model.graphs[0], passes=passes.FOLD)
    return None if unsupported(model, graph) else passes.run(graph, passes=passes.REWRITE)


@cache
def one_op(name: str) -> bytes | None:
    """The operator's first case as a model, and TANH beside it; None where LiteRT lacks the operator."""
    op = OPS[name]
    if op.custom or not op.cases:
        return None
    graph = op.cases[0].graph(op)
    builder, states = ModelBuilder(), states_of(graph)
    for index, tensor in enumerate(graph.tensors):
        _enter(builder, graph, index, tensor, states)
    for node in graph.nodes:
        operands = [None if index == ABSENT else index for index in node.inputs]
        outputs = node.outputs[: len(node.outputs) - len(states)]
        builder.node(node.op, operands, outputs, options=node.attrs, version=node.version)
    beside = builder.op(BESIDE, [builder.input((2, 3), name="beside")], (2, 3), name="tanh")
    builder.output(*graph.outputs[: len(graph.outputs) - len(states)], beside)
    return builder.finish()


def _enter(builder: ModelBuilder, graph: Graph, index: int, tensor: Tensor, states: Sequence[int]) -> None:
    if tensor.data is not None:
        builder.constant(tensor.data, name=tensor.name)
    elif index in states:
        builder.variable(tensor.shape, tensor.dtype, name=tensor.name)
    elif index in graph.inputs:
        builder.input(tensor.shape, tensor.dtype, name=tensor.name)
    else:
        builder.tensor(tensor.shape, tensor.dtype, name=tensor.name)


@cache
def many_ops() -> bytes:
    """A small network: convolutions with activations, a depthwise one, transposes and reshapes, attention, a sum."""
    model, random = ModelBuilder(), np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return model.constant(random.uniform(-0.4, 0.4, shape).astype(np.float32))

    image = model.input((1, 8, 8, 4), name="image")
    padding = model.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    padded = model.op("PAD", [image, padding], (1, 10, 10, 4))
    stride = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    conv = model.op("CONV_2D", [padded, weights(8, 3, 3, 4), weights(8)], (1, 8, 8, 8), options=stride)
    scaled = model.op("MUL", [conv, weights(8)], (1, 8, 8, 8))
    active = model.op("RELU6", [scaled], (1, 8, 8, 8))
    deep = model.op(
        "DEPTHWISE_CONV_2D",
        [active, weights(1, 3, 3, 8), weights(8)],
        (1, 8, 8, 8),
        options={"padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1},
    )
    rows = model.op("RESHAPE", [deep, model.constant(np.array([1, 64, 8], np.int32))], (1, 64, 8))
    turned = model.op("TRANSPOSE", [rows, model.constant(np.array([0, 2, 1], np.int32))], (1, 8, 64))
    product = model.op("BATCH_MATMUL", [rows, turned], (1, 64, 64))
    weighted = model.op("SOFTMAX", [product], (1, 64, 64), options={"beta": 1.0})
    mixed = model.op("BATCH_MATMUL", [weighted, rows], (1, 64, 8))
    mean = model.op("MEAN", [mixed, model.constant(np.array([2], np.int32))], (1, 64, 1), options={"keep_dims": True})
    centred = model.op("SUB", [mixed, mean], (1, 64, 8))
    model.output(model.op("ADD", [centred, rows], (1, 64, 8)), model.op("TANH", [image], (1, 8, 8, 4)))
    return model.finish()


def feeds_of(place: Place) -> list[np.ndarray]:
    """Values for the inputs of the place's model."""
    random = np.random.default_rng(1)
    if not place.op:
        return [random.uniform(-2, 2, (1, 8, 8, 4)).astype(np.float32)]
    op = OPS[place.op]
    graph = op.cases[0].graph(op)
    states = states_of(graph)
    pairs = zip(graph.inputs, op.cases[0].feeds(), strict=True)
    return [*(feed for index, feed in pairs if index not in states), random.uniform(-2, 2, (2, 3)).astype(np.float32)]


@cache
def _expected(place: Place) -> list[np.ndarray]:
    interpreter = LiteRT(model_content=content_of(place))
    interpreter.allocate_tensors()
    return _answers(interpreter, feeds_of(place))


def _answers(interpreter: Any, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def content_of(place: Place) -> bytes:
    """The place's model."""
    content = one_op(place.op) if place.op else many_ops()
    assert content is not None
    return content


def trouble(place: Place, folder: Path, *, target: str = "") -> str:
    """What goes wrong with the place's model while the place fails; "" if nothing does.

    Args:
        folder: for programs.
        target: the option of this name; by default the place's.
    """
    expected = _expected(replace(place, name="", owner=None, attribute="", target=""))
    with ExitStack() as stack:
        place.failing(stack)
        counted = stack.enter_context(patch.object(compiler, "compile_model", wraps=compiler.compile_model))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if place.target == "cuda":
            return _program_trouble(place)
        told = [_run(place, folder, expected, target or place.target, outcome) for outcome in ("miss", "hit")]
        if counted.call_count != 1:
            told.append(f"compiled {counted.call_count} times, expected once")
    return next(filter(None, told), "")


def _run(place: Place, folder: Path, expected: Sequence[np.ndarray], target: str, outcome: str) -> str:
    """One start."""
    content, options = content_of(place), {"partitioning": "all"}
    with jitdelegate.load(content, target=target, serialization_dir=folder, options=options) as model:
        found = [np.asarray(each) for each in _as_list(model(*feeds_of(place)))]
        report = model.report()
    if report.cache.outcome != outcome:
        return f"the cache's outcome is {report.cache.outcome}, expected {outcome}"
    for one, other in zip(found, expected, strict=True):
        if not np.allclose(one, other, rtol=LIMIT, atol=LIMIT, equal_nan=True):
            return "the answers are not LiteRT's"
    return _untold(place, report.operators, report.notes)


def _as_list(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, list | tuple) else [outputs]


def _untold(place: Place, operators: Sequence[Any], notes: Sequence[str]) -> str:
    """What operators and notes lack."""
    reasons = {one.reason for one in operators if one.place == "litert"}
    known = f"{CAUSE}." in reasons or any(note.endswith(f": {CAUSE}.") for note in notes)
    if not known and (reasons or notes):
        return f"the report says {reasons or notes}"
    if place.is_optional:
        return "" if known and not reasons else "it is not compiled without the pass"
    is_whole = any(one.op == BESIDE and one.place == "litert" for one in operators)
    return "TANH is not compiled" if is_whole and place.op != BESIDE and not place.is_anyones else ""


def _program_trouble(place: Place) -> str:
    """The same of a program for a GPU, which is not run here."""
    options = DelegateOptions(target="cuda", partitioning="all", serialization_dir=False)
    key = find_key(CUDA.devices(GPU)[0], options, "0", variant_parts(0))
    program = read_program(b"".join(compiler.compile_model(content_of(place), options, key, {})))
    return _untold(place, program.operators, program.notes)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some model was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="only places with this in their names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth place")
    arguments = parser.parse_args(argv)
    chosen = [place for place in places() if arguments.only in place.name][:: arguments.every]
    bad = 0
    for place in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = trouble(place, Path(folder))
            except Exception as error:  # noqa: BLE001 - none may come through
                told = f"{type(error).__name__}: {error}"
        if told:
            bad += 1
            print(f"{place.name}: {told}", flush=True)
    print(f"{len(chosen)} places, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
