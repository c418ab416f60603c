"""Quantized models: speed against LiteRT with XNNPACK, share of the peak for bytes, size and cold start.

    python -m scripts.bench_quantized MODEL_OR_FOLDER ... [--threads 1 2] [--rounds 20] [--json]
    python -m scripts.bench_quantized --twin INTEGER FLOAT [--twin ...] [--cpu-features x86-64-v3] [--rounds 20]

Models without quantized values are left out. The speed is LiteRT's time over ours, as in scripts/bench_latency.py, with
a geometric mean for models with integer activations and one for those with float activations. The peak is the
multiply-adds per second and thread of a loop of the instruction for products of bytes, measured first as in
scripts/bench_integer_convolutions.py. The size is the program's over the model file's; the cold start is the time to
compile and store it, in this warm process. `--twin` compares an integer model with the float model that it was made of:
the float model's time over the integer model's, both ours, compiled for `--cpu-features`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jitdelegate
from jitdelegate import passes
from jitdelegate.passes.cost import node_work
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.tflite.read import read
from scripts.bench_integer_convolutions import peak
from scripts.bench_latency import compare, geometric_mean, interleaved, ready
from scripts.check_models import models_in
from scripts.quantized_models import is_hybrid, is_integer


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="*", type=Path)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--twin", nargs=2, type=Path, action="append", default=[], metavar=("INTEGER", "FLOAT"))
    parser.add_argument("--cpu-features", default="auto")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    most = peak() if arguments.path else 0.0
    rows = []
    for model in [each for path in arguments.path for each in models_in(path)]:
        if kind := kind_of(model):
            about = {"kind": kind, **size_and_start(model)}
            work = multiply_adds(model)
            for threads in arguments.threads:
                row = compare(model, threads, arguments.rounds) | about
                rate = work / (1e-3 * row["ours_ms"])
                rows.append(row | {"share": rate / (threads * most)})
                if not arguments.json:
                    print(_line(rows[-1]), flush=True)
    twins = []
    for pair in arguments.twin:
        twins.append(twin(*pair, arguments.rounds, arguments.cpu_features))
        if not arguments.json:
            print("{integer}: {factor:.2f} times as fast as {float}".format(**twins[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"models": rows, "twins": twins}, indent=2))
        return 0
    for kind, threads in sorted({(row["kind"], row["threads"]) for row in rows}):
        speeds = [row["speed"] for row in rows if (row["kind"], row["threads"]) == (kind, threads)]
        least = f"least {min(speeds):.3f}"
        print(
            f"{kind}, {threads} threads: geometric mean {geometric_mean(speeds):.3f} of {len(speeds)} models, {least}"
        )
    if twins:
        factors = [row["factor"] for row in twins]
        mean = geometric_mean(factors)
        print(f"{arguments.cpu_features}: geometric mean {mean:.3f} of {len(twins)} pairs, least {min(factors):.3f}")
    return 0


def kind_of(model: Path) -> str:
    """ "integer", "dynamic range", or "" for models without quantized values and those that cannot be read."""
    try:
        graph = read(model.read_bytes()).graphs[0]
    except jitdelegate.ModelError:
        return ""
    return "integer" if is_integer(graph) else "dynamic range" if is_hybrid(graph) else ""


def multiply_adds(model: Path) -> int:
    """Of one run."""
    graph = passes.run(specialize_subgraph(read(model.read_bytes())).graphs[0], passes=passes.FOLD)
    return sum(node_work(graph, node) for node in graph.nodes)


def size_and_start(model: Path) -> dict[str, float]:
    """The program's size over the model's, and seconds to compile it."""
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as folder:
        start = time.perf_counter()
        jitdelegate.load(model, serialization_dir=folder, num_threads=1).close()
        seconds = time.perf_counter() - start
        size = max(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {"size": size / model.stat().st_size, "cold_seconds": seconds}


def twin(integer: Path, floats: Path, rounds: int, features: str) -> dict[str, Any]:
    """How much faster we run an integer model than the float one, on one thread, with one instruction set."""
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cpu", cpu_features=features)
    sides = {
        path.name: ready(jitdelegate.Interpreter(str(path), num_threads=1, experimental_delegates=[delegate])).invoke
        for path in (integer, floats)
    }
    times = interleaved(sides, rounds)
    factors = sorted(b / a for a, b in zip(times[integer.name], times[floats.name], strict=True))
    return {"integer": integer.name, "float": floats.name, "factor": factors[len(factors) // 2]}


def _line(row: dict[str, Any]) -> str:
    return (
        "{model:55} {kind:13} {threads} threads {ours_ms:9.3f} ms, LiteRT {litert_ms:9.3f} ms, speed {speed:.3f} on "
        "{target}, {share:4.0%} of the peak, size {size:.2f}, cold {cold_seconds:.2f} s"
    ).format(**row)


if __name__ == "__main__":
    sys.exit(main())
