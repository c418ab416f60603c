"""python -m tests.api.live_model ROAD MODEL CACHE PROGRESS [USER]: runs a model while others touch its entry.

Each line on stdin is answered by RUNS inferences, "busy" by as many as there is time for until the next line. After
each inference that gave what the first one gave, the number of them is written to the file PROGRESS. Ends with the
input. With USER, a number, the process becomes that user before it opens the model.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import jitdelegate
from jitdelegate.targets.cpu import target as cpu_target
from jitdelegate.tflite.write import ModelBuilder

RUNS = 3
WIDTH = 2048
"""Of a square of weights: 16 MB, in which a process that is busy spends nearly all of its time."""
ROADS = ("load", "interpreter", "partitions", "litert")
ONLY = ("FULLY_CONNECTED", "TANH")


def model() -> bytes:
    """f32[1,WIDTH] -> FULLY_CONNECTED, TANH, NEG, TANH; NEG is what `ONLY` leaves to LiteRT."""
    made, shape = ModelBuilder(), (1, WIDTH)
    weights = np.random.default_rng(3).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    value = made.op("FULLY_CONNECTED", [made.input(shape), made.constant(weights), None], shape)
    for op in ("TANH", "NEG", "TANH"):
        value = made.op(op, [value], shape)
    made.output(value)
    return made.finish()


def start(road: str, path: str, cache: str) -> Callable[[np.ndarray], bytes]:
    """What runs the model: array in, the output's bytes out."""
    options: dict[str, Any] = {"target": "cpu", "serialization_dir": cache, "num_threads": 2}
    if road in ("partitions", "litert"):
        options |= {"partitioning": "all", "only_ops": ONLY}
    if road == "partitions":
        cpu_target.IN_LITERT = "nowhere"
    if road in ("load", "partitions"):
        loaded = jitdelegate.load(path, options=options)
        assert road == "load" or loaded._opened.program.loader == "partitions"
        return lambda value: bytes(loaded(value))
    delegates = [jitdelegate.GpuDelegate(**options)]
    if road == "interpreter":
        interpreter: Any = jitdelegate.Interpreter(path, experimental_delegates=delegates)
    else:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(path, experimental_delegates=delegates, num_threads=2)
    interpreter.allocate_tensors()
    given, made = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

    def run(value: np.ndarray) -> bytes:
        interpreter.set_tensor(given, value)
        interpreter.invoke()
        return bytes(interpreter.get_tensor(made))

    return run


def become(user: int) -> None:
    """Become another user, who perhaps may read none of Python's files: with all modules that a warm start needs."""

    import numpy.random  # noqa: F401

    import jitdelegate.api.model
    import jitdelegate.runtime.cpu.session
    import jitdelegate.runtime.cpu.workers
    import jitdelegate.runtime.shared_file  # noqa: F401

    os.setuid(user)


def main() -> int:
    """Exit status: 0 all answers were the first one's, 3 one was not."""
    road, path, cache, progress, *user = sys.argv[1:]
    if user:
        become(int(user[0]))
    run = start(road, path, cache)
    value = np.random.default_rng(4).normal(size=(1, WIDTH)).astype(np.float32)
    expected, runs = run(value), 0
    descriptor = os.open(progress, os.O_WRONLY | os.O_CREAT, 0o600)
    os.pwrite(descriptor, b"0", 0)
    busy = False
    while True:
        if not busy or select.select([0], [], [], 0)[0]:
            line = os.read(0, 100)
            if not line:
                return 0
            busy = line == b"busy\n"
        for _ in range(RUNS):
            if run(value) != expected:
                return 3
            runs += 1
            os.pwrite(descriptor, str(runs).encode(), 0)


if __name__ == "__main__":
    sys.exit(main())
