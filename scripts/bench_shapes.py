"""What further input shapes cost: a model runs with one batch size after another, on each road in a process of its own.

    python scripts/bench_shapes.py [MODEL] [--batches 1 4 12] [--roads load delegate litert]

MODEL needs inputs whose first size is open. Prints, after so many batch sizes, resident memory, the process's share of
it (Pss), what no file holds, and the peak so far, all in MB and without what Python took before; then the CPU seconds
of the median first run with a new shape, of a second process as well, and the entries that are left in the cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROADS = ("load", "delegate", "litert")
MB = 1 << 20
LAYERS, WIDTH = 6, 3584
KINDS = ("Rss", "Pss", "Anonymous")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="default: six dense layers of 3584, 294 MB")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 12])
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=ROADS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        print(json.dumps(run(arguments.child, str(arguments.model), arguments.batches, *arguments.roads)))
        return 0
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as name:
        model = arguments.model or dense(Path(name) / "dense.tflite")
        print(f"{model.name}, {model.stat().st_size / MB:.0f} MB")
        for road in arguments.roads:
            for start in ("cold", "warm") if road != "litert" else ("",):
                measure(road, start, model, arguments.batches, Path(name) / road)
    return 0


def measure(road: str, start: str, model: Path, batches: list[int], cache: Path) -> None:
    """One process; prints its rows."""
    numbers = list(map(str, batches))
    command = [
        sys.executable,
        __file__,
        "--child",
        str(cache),
        "--roads",
        road,
        "--batches",
        *numbers,
        "--",
        str(model),
    ]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for count, row in found["memory"].items():
        told = "  ".join(f"{kind} {value / MB:6.0f}" for kind, value in row.items())
        print(f"{road:<9}{start:<5}{count:>3} batch sizes  {told}")
    print(f"{road:<9}{start:<5}a new shape takes {found['seconds']:.2f} CPU s, {found['entries']} entries, "
          f"{found['bytes'] / MB:.0f} MB")  # fmt: skip


def dense(path: Path) -> Path:
    """f32[?,WIDTH] -> LAYERS times FULLY_CONNECTED and RELU."""
    import numpy as np

    from jitdelegate.tflite.write import ModelBuilder

    random, builder = np.random.default_rng(0), ModelBuilder()
    value = builder.input((1, WIDTH), shape_signature=(-1, WIDTH))
    for _ in range(LAYERS):
        weights = builder.constant(random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5)
        value = builder.op("RELU", [builder.op("FULLY_CONNECTED", [value, weights, None], (1, WIDTH))], (1, WIDTH))
    builder.output(value)
    path.write_bytes(builder.finish())
    return path


def run(cache: str, model: str, batches: list[int], road: str) -> dict[str, Any]:
    """The child: run with batch sizes from 1 on."""
    import numpy as np

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
    return {"memory": memory, "seconds": further, "entries": len(entries), "bytes": sum(entries)}


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
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10  # what `getrusage` says counts the parent as well
    return {**{kind: known[kind] for kind in KINDS}, "peak": peak}


if __name__ == "__main__":
    sys.exit(main())
