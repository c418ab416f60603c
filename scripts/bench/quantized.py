"""Quantized models: speed against LiteRT with XNNPACK, share of the peak for bytes, size and cold start.

Models without quantized values are left out. The speed is LiteRT's time over ours, as in the suite "latency", with a
geometric mean for models with integer activations and one for those with float activations. The share is that of the
peak of `multiply_speed`. The size is the program's over the model file's; the cold start is the time to compile and
store it, in this warm process. `--twin` compares an integer model with the float model that it was made of, on one
thread: the float model's time over the integer model's, both ours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jitdelegate
from jitdelegate import passes
from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.machine_speed import BYTES, multiply_speed
from jitdelegate.passes.cost import node_work
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.tflite.read import read
from scripts.bench.rounds import mean_speeds, our_side, pair_columns, versus, versus_litert
from scripts.bench.suite import Row, Suite
from scripts.quantized_models import is_hybrid, is_integer

TWIN = "twin"


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per quantized model and number of threads, then one per pair of twins."""
    most = multiply_speed(BYTES)
    for model in arguments.model:
        if kind := kind_of(model):
            about, work = {"model": model.name, "kind": kind, **size_and_start(model)}, multiply_adds(model)
            for threads in arguments.threads:
                row = versus_litert(model, threads, arguments.rounds)
                yield about | row | {"share": work / (1e-3 * row["ours_ms"]) / (threads * most)}
    for integer, floats in arguments.twin:
        sides = [our_side(path, 1, cpu_features=arguments.cpu_features).invoke for path in (integer, floats)]
        pair = versus(*sides, arguments.rounds)
        yield {"model": f"{integer.name} against {floats.name}", "kind": TWIN, "threads": 1, **pair}


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


def options(parser: argparse.ArgumentParser) -> None:
    """Pairs of models."""
    parser.add_argument("--cpu-features", default="auto", help="instruction set of twins")
    parser.add_argument("--twin", nargs=2, type=Path, action="append", default=[], metavar=("INTEGER", "FLOAT"))


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Means by kind; a twin is no speed against LiteRT."""
    return mean_speeds((row for row in rows if row["kind"] != TWIN), "kind", "threads")


SUITE = Suite(
    columns=(
        *(Column("model", "<55"), Column("kind", "<13"), Column("threads", "7"), *pair_columns("ms")),
        *(
            Column("target", "<8"),
            Column("share", "5.0%"),
            Column("size", "5.2f"),
            Column("cold_seconds", "6.2f", "cold s"),
        ),
    ),
    rows=rows,
    may_name_none=True,
    options=options,
    summary=summary,
)
