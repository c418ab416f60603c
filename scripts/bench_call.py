"""What a call costs beside the computation: jitdelegate against LiteRT on a tiny model, interleaved in one process.

    python -m scripts.bench_call [MODEL] [--rounds 200] [--json]

Six sides, each with one thread: the machine code's entry alone, as ctypes calls it; `load()()` on an array;
set_tensor, invoke and get_tensor of our `Interpreter`; the same of LiteRT's; `run_by_index` of our `CompiledModel`, and
of LiteRT's. A time is the median of the rounds, in microseconds per call. The marks: `load()()` at most 4 us over the
entry, our `Interpreter` at most 2 us over LiteRT's, our `CompiledModel` at most LiteRT's.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
from ai_edge_litert import compiled_model

import jitdelegate
from jitdelegate.tflite.write import ModelBuilder

CALLS = 100
"""Calls per round and side: one is too short for the clock."""
WARM_UP = 3
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
    for place, value in enumerate(values):
        session.set_input(place, value)
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


def measure(content: bytes, rounds: int) -> dict[str, list[float]]:
    """Side to microseconds per call of every round; in each round all sides run, in another order."""
    times: dict[str, list[float]] = {}
    order, shuffled = random.Random(0), list(sides(content).items())
    for round_ in range(WARM_UP + rounds):
        order.shuffle(shuffled)
        for name, call in shuffled:
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            took = time.perf_counter() - start
            if round_ >= WARM_UP:
                times.setdefault(name, []).append(1e6 * took / CALLS)
    return times


def compared(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Per comparison the medians over the rounds of difference (microseconds) and ratio, and the mark."""
    return {
        f"{side} over {other}": {
            "difference": statistics.median(a - b for a, b in zip(times[side], times[other], strict=True)),
            "ratio": statistics.median(a / b for a, b in zip(times[side], times[other], strict=True)),
            "mark": mark,
        }
        for side, other, mark in DIFFERENCES
    }


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 1 not compiled, 2 wrong arguments. What exceeds its mark is printed so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="default: RELU of four numbers, made here")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    times = measure(arguments.model.read_bytes() if arguments.model else tiny_model(), arguments.rounds)
    medians = {name: statistics.median(found) for name, found in times.items()}
    differences = compared(times)
    if arguments.json:
        print(json.dumps({"microseconds": medians, "differences": differences}, indent=2))
        return 0
    for name in sorted(medians):
        print(f"{name:<24}{medians[name]:>8.2f} us")
    for title, found in differences.items():
        verdict = "holds" if found["difference"] <= found["mark"] else "EXCEEDED"
        print(
            f"{title:<42}{found['difference']:>6.2f} us  x{found['ratio']:.2f}  mark {found['mark']:.0f} us {verdict}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
