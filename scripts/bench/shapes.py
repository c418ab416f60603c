"""Cost of further input shapes: a model runs with one batch size after another, through each interface in a process of
its own.

A model needs inputs whose first size is open. Prints, after so many batch sizes, resident memory, the process's
proportional share (Pss), private memory, and the peak so far, all in MB and without that of Python before; then the CPU
seconds of the median first run with a new shape, of a second process as well, and the entries and MB in the cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.own_process import peak_bytes
from jitdelegate.commands.measurement.process import run_module
from scripts.bench.suite import Row, Suite

ROADS = ("load", "delegate", "litert")
MB = 1 << 20
LAYERS, WIDTH = 6, 3584
KINDS = ("Rss", "Pss", "Anonymous")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, road, start and number of batch sizes; each start is one process."""
    for model, road in product(arguments.model, arguments.roads):
        cache = arguments.folder / model.stem / road
        given = [
            "shapes",
            str(model),
            "--child",
            str(cache),
            "--roads",
            road,
            "--batches",
            *map(str, arguments.batches),
        ]
        for start in ("cold", "warm") if road != "litert" else ("",):
            figures, _ = run_module(road, "scripts.bench", given)
            memory = figures.pop("memory")
            for count, row in memory.items():
                megabytes = {kind: value / MB for kind, value in row.items()}
                yield {"model": model.name, "road": road, "start": start, "sizes": int(count), **megabytes, **figures}


def dense() -> bytes:
    """f32[?,WIDTH] -> LAYERS times FULLY_CONNECTED and RELU."""
    import numpy as np

    from jitdelegate.tflite.write import ModelBuilder

    random, builder = np.random.default_rng(0), ModelBuilder()
    value = builder.input((1, WIDTH), shape_signature=(-1, WIDTH))
    for _ in range(LAYERS):
        weights = builder.constant(random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5)
        value = builder.op("RELU", [builder.op("FULLY_CONNECTED", [value, weights, None], (1, WIDTH))], (1, WIDTH))
    builder.output(value)
    return builder.finish()


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The child: run with batch sizes from 1 on."""
    import numpy as np

    cache, model, batches, road = arguments.child, str(arguments.model[0]), arguments.batches, arguments.roads[0]

    before, seconds, memory = in_memory(), [], {}
    call, shape = opened(road, model, cache)
    for batch in range(1, max(batches) + 1):
        value = np.full((batch, *shape[1:]), 0.1, np.float32)
        start = time.process_time()
        call(value)
        seconds.append(time.process_time() - start)
        if batch in batches:
            memory[batch] = {kind: value - before[kind] for kind, value in in_memory().items()}
    entries = [path.stat().st_size for path in Path(cache).glob("*.jitd")]
    further = statistics.median(seconds[1:] or seconds)
    return {"memory": memory, "seconds": further, "entries": len(entries), "cache": sum(entries) / MB}


def opened(road: str, model: str, cache: str) -> tuple[Callable[[Any], object], tuple[int, ...]]:
    """What runs the model on one thread, and the shape of its input."""
    import jitdelegate

    options: dict[str, Any] = {"target": "cpu", "serialization_dir": cache, "num_threads": 1}
    if road == "load":
        loaded = jitdelegate.load(model, options=options)
        return loaded, loaded.inputs[0].shape
    from ai_edge_litert.interpreter import Interpreter

    delegates = [jitdelegate.GpuDelegate(**options)] if road == "delegate" else []
    interpreter = Interpreter(model, num_threads=1, experimental_delegates=delegates)
    (given,), made = interpreter.get_input_details(), interpreter.get_output_details()[0]["index"]

    def call(value: Any) -> object:
        interpreter.resize_tensor_input(given["index"], value.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], value)
        interpreter.invoke()
        return interpreter.get_tensor(made)

    return call, tuple(given["shape"])


def in_memory() -> dict[str, int]:
    """Bytes of this process, and its peak."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    known = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    return {**{kind: known[kind] for kind in KINDS}, "peak": peak_bytes()}


def options(parser: argparse.ArgumentParser) -> None:
    """What is run, and how often."""
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 12])
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=ROADS)


SUITE = Suite(
    columns=(
        *(Column("model", "<24"), Column("road", "<8"), Column("start", "<5"), Column("sizes", "5")),
        *(Column(kind, "6.0f", f"{kind} MB") for kind in (*KINDS, "peak")),
        *(Column("seconds", "6.2f", "CPU s"), Column("entries", "7"), Column("cache", "6.0f", "cache MB")),
    ),
    rows=rows,
    make=dense,
    threads=(),
    rounds=1,
    options=options,
    child=run,
)
