"""Makes each part of the compiler fail, one at a time, and checks that models still run.

    python -m scripts.inject_faults [--only NAME] [--every N]

The parts are every pass, every operator's check, shapes, folding and lowering, every writer of kernels of every target,
and stages that belong to no operator. A model that needs the part, and has a TANH too, is opened twice while the part
raises an AssertionError: its results have to be LiteRT's, its report has to name the error, TANH has to stay compiled
if the part belongs to an operator, and the second start must not compile anything. Exit status: 0 all well, 1 some
model was not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler import compile as compiler
from jitdelegate.engine.load_path import find_key
from jitdelegate.ir.forms import Form, Map
from jitdelegate.ir.graph import ABSENT, Graph, Tensor
from jitdelegate.ops import OPS
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import unsupported
from jitdelegate.program.read import read as read_program
from jitdelegate.runtime.cache.key import variant_parts
from jitdelegate.targets.cpu.accepts import ACCEPTS as CPU_ACCEPTS
from jitdelegate.targets.cpu.code import tasks
from jitdelegate.targets.cuda.plan.accepts import ACCEPTS as CUDA_ACCEPTS
from jitdelegate.targets.cuda.target import TARGET as CUDA
from jitdelegate.targets.planning.steps import Accepts
from jitdelegate.targets.reference import evaluate
from jitdelegate.targets.reference.forms import FORMS
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.litert import states_of

CAUSE = "the compiler failed with AssertionError: injected"
BESIDE = "TANH"
"""The operator that does not fail."""
METHODS = ("check", "shapes", "lower")
FOLDED = "fold"
"""The method that needs a model of constants."""
STAGES = {
    "cpu": {
        "compiler.compile": (
            *("specialize_subgraph", "shared_matrices", "unsupported", "target_program", "compiled_operators"),
            "executions",
        ),
        "compiler.codegen": ("ports", "states", "aliases"),
        "targets.cpu.generate": (
            *("choose_layout", "plan", "store_unsigned", "write_steps", "write_entries", "write_host_entry"),
            *("compile_object", "link"),
        ),
    },
    "cuda": {
        "targets.cuda.generate": ("plan", "compile_templates", "generated"),
        "targets.cuda.plan.plan": ("find_steps", "split_epilogues", "merge_products", "narrow_weights"),
    },
}
"""Functions that are of no operator in particular, by target and the module that calls them."""
TABLES = {"cpu": CPU_ACCEPTS, "cuda": CUDA_ACCEPTS}
FUSED = {"cpu": ("products.depthwise.write_separable", "products.attention.write_attention"), "cuda": ()}
"""Functions that write fusions, by target."""
GPU = "sm_90"
UNREACHED = "nothing has failed"
LIMIT = 1e-4
SPECTRUM = (1, 5)
"""The shape of complex operands, which RFFT2D makes."""
WAYS = ({}, {"partitioning": "all"})
"""Options of the two ways through the compiler: graphs that are compiled as a whole, and partitions."""


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

    def failing(self, stack: ExitStack) -> list[str]:
        """Raise an error there until the stack is closed; the list receives an entry whenever it does."""
        found, reached = getattr(self.owner, self.attribute), list[str]()
        if isinstance(found, tuple):  # passes
            name = self.name.partition(" ")[2]
            broken = tuple(broken_part(name, reached) if each.__name__ == name else each for each in found)
            stack.enter_context(patch.object(self.owner, self.attribute, broken))
        elif isinstance(found, dict):  # the reference's functions
            form = next(each for each in found if each.__name__ == self.name.partition(" ")[2])
            stack.enter_context(patch.dict(found, {form: broken_part(form.__name__, reached)}))
        else:
            stack.enter_context(patch.object(self.owner, self.attribute, broken_part(self.attribute, reached)))
        return reached


def broken_part(name: str, reached: list[str]) -> Callable[..., Any]:
    """A function of this name that fails, and notes it in the list."""

    def fail(*_: object, **__: object) -> Any:
        reached.append(name)
        raise AssertionError("injected\nand more lines")

    fail.__name__ = name
    return fail


def places() -> Iterator[Place]:
    """All places."""
    for group in ("FOLD", "REWRITE"):
        for each in dict.fromkeys(getattr(passes, group)):
            optional = each.__name__ in passes.OPTIONAL
            yield Place(f"{group} {each.__name__}", "cpu", passes, group, is_anyones=True, is_optional=optional)
    for name in sorted(OPS):
        for method in METHODS if one_op(name) else ():
            yield Place(f"{method} of {name}", "cpu", OPS[name], method, name)
        if one_op(name, is_folded=True):
            yield Place(f"{FOLDED} of {name}", "cpu", OPS[name], FOLDED, name)
    for target, accepts in TABLES.items():
        yield from _writers(target, accepts)
    for form in FORMS:
        op = op_with(form)
        if op:
            yield Place(f"reference {form.__name__}", "reference", evaluate, "FORMS", op)
    for target, modules in STAGES.items():
        for module, functions in modules.items():
            owner = import_module(f"jitdelegate.{module}")
            for function in functions:
                is_optional = function in ("shared_matrices",)
                yield Place(f"{module}.{function}", target, owner, function, is_anyones=True, is_optional=is_optional)


def _writers(target: str, accepts: Accepts[Any]) -> Iterator[Place]:
    """The writers of kernels, each of whose forms needs an operator that has it, and the choice of fusions."""
    for form, name in accepts.writers.items():
        module, _, function = name.rpartition(".")
        op = op_with(form)
        if op:
            owner = import_module(f"{accepts.package}.{module}")
            yield Place(f"{target} {name}", target, owner, function, op, is_anyones=form is Map)  # as TANH is
    for name in (*accepts.fusions.values(), *FUSED[target]):
        module, _, function = name.rpartition(".")
        owner, is_anyones = import_module(f"{accepts.package}.{module}"), name not in FUSED[target]
        yield Place(f"{target} {name}", target, owner, function, is_anyones=is_anyones)


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
def one_op(name: str, *, is_folded: bool = False) -> bytes | None:
    """The operator's first case as a model, and TANH beside it; None where LiteRT lacks the operator.

    Args:
        is_folded: its operands are constants; None where it is not folded.
    """
    op = OPS[name]
    if op.custom or not op.cases:
        return None
    graph = op.cases[0].graph(op)
    if any(graph.tensors[index].dtype == "complex64" for index in graph.inputs):
        graph = replace(graph, tensors=tuple(replace(each, shape=SPECTRUM) for each in graph.tensors))
        if is_folded:
            return None
    states = states_of(graph)
    feeds = dict(zip(graph.inputs, op.cases[0].feeds(), strict=True)) if is_folded else {}
    builder, known = ModelBuilder(), dict[int, int]()
    for index, tensor in enumerate(graph.tensors):
        whole = tensor.holding(feeds[index]) if index in feeds else tensor
        known[index] = _entered(builder, whole, is_state=index in states, is_input=index in graph.inputs)
    for node in graph.nodes:
        operands = [None if index == ABSENT else known[index] for index in node.inputs]
        outputs = [known[index] for index in node.outputs[: len(node.outputs) - len(states)]]
        builder.node(node.op, operands, outputs, options=node.attrs, version=node.version)
    returned = graph.outputs[: len(graph.outputs) - len(states)]
    found = [_passable(builder, known[index], graph.tensors[index]) for index in returned]
    beside = builder.op(BESIDE, [builder.input((2, 3), name="beside")], (2, 3), name="tanh")
    builder.output(*found, beside)
    content = builder.finish()
    return None if is_folded and _has(content, name) else content


def _has(content: bytes, op: str) -> bool:
    """Whether a model has the operator after folding."""
    graph = passes.run(specialize_subgraph(read(content)).graphs[0], passes=passes.FOLD)
    return any(node.op == op for node in graph.nodes)


def _entered(builder: ModelBuilder, tensor: Tensor, *, is_state: bool, is_input: bool) -> int:
    if tensor.data is not None:
        return builder.constant(tensor.data, name=tensor.name)
    if is_state:
        return builder.variable(tensor.shape, tensor.dtype, name=tensor.name)
    if is_input and tensor.dtype == "complex64":  # which is no type of inputs
        rows, columns = SPECTRUM[0], 2 * SPECTRUM[1] - 2
        source = builder.input((rows, columns), name=tensor.name)
        length = builder.constant(np.array([rows, columns], np.int32))
        return builder.op("RFFT2D", [source, length], tensor.shape, dtype=tensor.dtype)
    if is_input:
        return builder.input(tensor.shape, tensor.dtype, name=tensor.name)
    return builder.tensor(tensor.shape, tensor.dtype, name=tensor.name)


def _passable(builder: ModelBuilder, index: int, tensor: Tensor) -> int:
    """The tensor, or its magnitude where it is complex, which is no type of outputs."""
    return builder.op("COMPLEX_ABS", [index], tensor.shape) if tensor.dtype == "complex64" else index


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
    deep = model.op("CONV_2D", [deep, weights(8, 1, 1, 8), weights(8)], (1, 8, 8, 8), options=stride)
    rows = model.op("RESHAPE", [deep, model.constant(np.array([1, 64, 8], np.int32))], (1, 64, 8))
    turned = model.op("TRANSPOSE", [rows, model.constant(np.array([0, 2, 1], np.int32))], (1, 8, 64))
    product = model.op("BATCH_MATMUL", [rows, turned], (1, 64, 64))
    weighted = model.op("SOFTMAX", [product], (1, 64, 64), options={"beta": 1.0})
    mixed = model.op("BATCH_MATMUL", [weighted, rows], (1, 64, 8))
    mean = model.op("MEAN", [mixed, model.constant(np.array([2], np.int32))], (1, 64, 1), options={"keep_dims": True})
    centred = model.op("SUB", [mixed, mean], (1, 64, 8))
    model.output(model.op("ADD", [centred, rows], (1, 64, 8)), model.op("TANH", [image], (1, 8, 8, 4)))
    return model.finish()


def content_of(place: Place) -> bytes:
    """The place's model."""
    content = one_op(place.op, is_folded=place.attribute == FOLDED) if place.op else many_ops()
    assert content is not None
    return content


@cache
def feeds_of(content: bytes) -> list[np.ndarray]:
    """Values for the inputs of a model."""
    random, graph = np.random.default_rng(1), read(content).graphs[0]
    return [_values(random, graph.tensors[index]) for index in graph.inputs]


def _values(random: np.random.Generator, tensor: Tensor) -> np.ndarray:
    if tensor.dtype == "bool":
        return random.random(tensor.shape) < 0.5
    return random.uniform(0, 2, tensor.shape).astype(tensor.dtype)


@cache
def _expected(content: bytes) -> list[np.ndarray]:
    interpreter = LiteRT(model_content=content)
    interpreter.allocate_tensors()
    return _answers(interpreter, feeds_of(content))


def _answers(interpreter: Any, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def trouble(place: Place, folder: Path, way: Mapping[str, str], *, target: str = "") -> str:
    """What goes wrong with the place's model while the place fails; "" if nothing does.

    Args:
        folder: for programs.
        way: one of WAYS.
        target: the option of this name; by default the place's.
    """
    expected = _expected(content_of(place))
    with ExitStack() as stack:
        reached = place.failing(stack)
        stack.enter_context(patch.object(tasks, "FUSE_BYTES", 0))  # in small models too
        counted = stack.enter_context(patch.object(compiler, "compile_model", wraps=compiler.compile_model))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if place.target == "cuda":
            told = [_program_trouble(place, way)]
        else:
            options = {**way, "target": target or place.target, "serialization_dir": folder}
            told = [_run(place, expected, options, outcome) for outcome in ("miss", "hit")]
            if counted.call_count != 1:
                told.append(f"compiled {counted.call_count} times, expected once")
    return next(filter(None, told), "" if reached else UNREACHED)


def _run(place: Place, expected: Sequence[np.ndarray], options: Mapping[str, Any], outcome: str) -> str:
    """One start."""
    content = content_of(place)
    with jitdelegate.load(content, options=options) as model:
        found = [np.asarray(each) for each in _as_list(model(*feeds_of(content)))]
        report = model.report()
    if report.cache.outcome != outcome:
        return f"the cache's outcome is {report.cache.outcome}, expected {outcome}"
    for one, other in zip(found, expected, strict=True):
        if not np.allclose(one, other, rtol=LIMIT, atol=LIMIT, equal_nan=True):
            return "the answers are not LiteRT's"
    return _untold(place, report.operators, report.notes, may_leave="partitioning" not in options)


def _as_list(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, list | tuple) else [outputs]


def _untold(place: Place, operators: Sequence[Any], notes: Sequence[str], *, may_leave: bool) -> str:
    """What operators and notes lack.

    Args:
        may_leave: whether what is compiled may be too little to leave LiteRT for.
    """
    reasons = {one.reason for one in operators if one.place == "litert"}
    known = f"{CAUSE}." in reasons or any(note.endswith(f": {CAUSE}.") for note in notes)
    if not known and (reasons or notes):
        return f"the report says {reasons or notes}"
    if place.is_optional:
        return "" if known and not reasons else "it is not compiled without the pass"
    is_whole = any(one.op == BESIDE and one.place == "litert" for one in operators)
    return "TANH is not compiled" if is_whole and place.op != BESIDE and not (place.is_anyones or may_leave) else ""


def _program_trouble(place: Place, way: Mapping[str, str]) -> str:
    """The same of a program for a GPU, which is not run here."""
    options = DelegateOptions.from_keywords({"target": "cuda", "serialization_dir": False}, way)
    key = find_key(CUDA.devices(GPU)[0], options, "0", variant_parts(0))
    program = read_program(b"".join(compiler.compile_model(content_of(place), options, key, {})))
    return _untold(place, program.operators, program.notes, may_leave=not way)


def _told(place: Place, way: Mapping[str, str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return trouble(place, Path(folder), way)
        except Exception as error:  # noqa: BLE001 - none may come through
            return f"{type(error).__name__}: {error}"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some model was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="only places with this in their names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth place")
    arguments = parser.parse_args(argv)
    chosen = [place for place in places() if arguments.only in place.name][:: arguments.every]
    bad = 0
    for place in chosen:
        told = dict.fromkeys(map(_told, [place] * len(WAYS), WAYS))
        if all(told) or set(told) - {"", UNREACHED}:
            bad += 1
            print(f"{place.name}: {', '.join(filter(None, told))}", flush=True)
    print(f"{len(chosen)} places, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
