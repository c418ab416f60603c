"""Latency of one inference: jitdelegate against LiteRT with XNNPACK, interleaved in one process.

Both sides run `Interpreter.invoke` on the same random input. The speed is LiteRT's time over ours, round by round:
above 1 we are faster. Prints the median of the rounds' ratios with their quartiles, and the geometric mean over the
models that are compiled for the CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product

from jitdelegate.commands.measurement.column import Column
from scripts.bench.rounds import mean_speeds, pair_columns, versus_litert
from scripts.bench.suite import Row, Suite


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per number of threads and model."""
    for threads, model in product(arguments.threads, arguments.model):
        yield {"model": model.name, **versus_litert(model, threads, arguments.rounds)}


SUITE = Suite(
    columns=(Column("model", "<45"), Column("threads", "7"), *pair_columns("ms"), Column("target", "<8")),
    rows=rows,
    rounds=60,
    summary=lambda rows: mean_speeds((row for row in rows if row["target"] == "cpu"), "threads"),
)
