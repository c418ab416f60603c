"""Cost of a call without the computation: jitdelegate against LiteRT on a tiny model, interleaved in one process.

Six sides, each with one thread: the machine code's entry alone, as ctypes calls it; `load()()` on an array; set_tensor,
invoke and get_tensor of our `Interpreter`; the same of LiteRT's; `run_by_index` of our `CompiledModel`, and of
LiteRT's. A time is the median of the rounds, in microseconds per call; difference and ratio are medians too. The goals:
`load()()` at most 4 us more than the entry, our `Interpreter` at most 2 us more than LiteRT's, our `CompiledModel` at
most as much as LiteRT's. Output says which sides miss their goal; this is not a failure.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
from ai_edge_litert import compiled_model

import jitdelegate
from jitdelegate.commands.measurement.column import Column
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.rounds import interleaved
from scripts.bench.suite import Row, Suite

CALLS = 100
"""Calls per round and side: one is too short for the clock."""
DIFFERENCES = (
    ("load()()", "entry", 4.0),
    ("Interpreter", "LiteRT", 2.0),
    ("CompiledModel", "LiteRT's CompiledModel", 0.0),
)
"""(side, side it is compared with, the most microseconds between them)."""


def tiny_model() -> bytes:
    """f32[1,4] -> RELU -> f32[1,4]."""
    model = ModelBuilder()
    model.output(model.op("RELU", [model.input((1, 4))], (1, 4)))
    return model.finish()


def sides(content: bytes) -> dict[str, Callable[[], object]]:
    """Side to one inference with it."""
    model = jitdelegate.load(content, target="cpu", num_threads=1, serialization_dir=False)
    shapes = [(info.shape, info.dtype) for info in model.inputs]
    values = [np.random.default_rng(0).uniform(0, 2, shape).astype(dtype) for shape, dtype in shapes]
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    ours = jitdelegate.Interpreter(model_content=content, num_threads=1, experimental_delegates=[delegate])
    model(*values)
    alone = jitdelegate.load(content, target="cpu", num_threads=1, serialization_dir=False)
    theirs = litert.Interpreter(model_content=content, num_threads=1)
    return {
        "entry": _entry(alone, values),
        "load()()": lambda: model(*values),
        "Interpreter": _through(ours, values),
        "LiteRT": _through(theirs, values),
        "CompiledModel": _by_index(jitdelegate.CompiledModel.create(content, num_threads=1, serialization_dir=False)),
        "LiteRT's CompiledModel": _by_index(compiled_model.CompiledModel.from_buffer(content)),
    }


def _entry(model: Any, values: list[Any]) -> Callable[[], object]:
    """The entry alone, on memory that lives as long as the model: outputs of `load()()` are freed at once."""
    session: Any = model._opened.session
    if session is None:
        sys.exit(f"the model is not compiled: {model._opened.reason}")
    for position, value in enumerate(values):
        session.set_input(position, value)
    session.invoke()
    run, arguments = session._code.run, session._memory.arguments[0]

    def call(_: object = model) -> None:
        run(*arguments)

    return call


def _by_index(model: Any) -> Callable[[], object]:
    """run_by_index on buffers that the model made."""
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    return lambda: model.run_by_index(0, inputs, outputs)


def _through(interpreter: Any, values: list[Any]) -> Callable[[], object]:
    """set_tensor, invoke and get_tensor."""
    interpreter.allocate_tensors()
    inputs = [(detail["index"], value) for detail, value in zip(interpreter.get_input_details(), values, strict=True)]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def call() -> None:
        for index, value in inputs:
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)

    return call


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model and comparison."""
    for model in arguments.model:
        taken = interleaved(sides(model.read_bytes()), arguments.rounds, CALLS, settled=False)
        times = {name: [1e6 * seconds for seconds in row] for name, row in taken.items()}
        for side, other, mark in DIFFERENCES:
            pairs = list(zip(times[side], times[other], strict=True))
            difference = statistics.median(a - b for a, b in pairs)
            yield {
                "model": model.name,
                "side": side,
                "side_us": statistics.median(times[side]),
                "other": other,
                "other_us": statistics.median(times[other]),
                "difference": difference,
                "ratio": statistics.median(a / b for a, b in pairs),
                "mark": mark,
                "verdict": "holds" if difference <= mark else "EXCEEDED",
            }


SUITE = Suite(
    columns=(
        *(Column("model", "<24"), Column("side", "<14"), Column("side_us", "8.2f", "us")),
        *(Column("other", "<23", "over"), Column("other_us", "8.2f", "us"), Column("difference", "6.2f")),
        *(Column("ratio", "6.2f"), Column("mark", "4.0f"), Column("verdict", "<8")),
    ),
    rows=rows,
    make=tiny_model,
    threads=(),
    rounds=200,
)
