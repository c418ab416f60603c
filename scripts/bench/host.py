"""LiteRT's own interpreter with our delegate in it, against LiteRT alone: invoke, and creation with a warm cache.

Both sides run interleaved in one process. The speed is LiteRT's time over ours, the median of the rounds with its
quartiles: above 1 we are faster. Callbacks counts the calls of Python from `invoke` in all rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter

import jitdelegate
from jitdelegate.commands.measurement.column import Column
from jitdelegate.engine.litert_delegate import callbacks
from scripts.bench.rounds import pair_columns, versus
from scripts.bench.suite import Row, Suite
from scripts.models import ready

CREATIONS = 15


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Two per model and number of threads: runs, and creations."""
    for model, threads in product(arguments.model, arguments.threads):
        delegate = jitdelegate.GpuDelegate(
            serialization_dir=str(arguments.folder),
            num_threads=threads,
            only_ops=arguments.only_ops,
            partitioning=arguments.partitioning,
        )
        yield from compare(model, delegate, threads, arguments.rounds)


def compare(model: Path, delegate: jitdelegate.GpuDelegate, threads: int, rounds: int) -> Iterator[Row]:
    """The rows of one model."""

    def make(delegates: list[Any]) -> Interpreter:
        interpreter = Interpreter(str(model), num_threads=threads, experimental_delegates=delegates or None)
        interpreter.allocate_tensors()
        return interpreter

    ours, theirs = ready(make([delegate])), ready(make([]))
    report = delegate.report()
    assert report is not None
    partitions = {operator.partition for operator in report.operators if operator.place in ("cpu", "cuda")}
    about = {
        "model": model.name,
        "threads": threads,
        "partitions": len(partitions),
        "delegated": report.delegated,
        "operators": len(report.operators),
    }
    before = callbacks.python_invocations
    row = versus(ours.invoke, theirs.invoke, rounds)
    yield {**about, "what": "invoke", **row, "callbacks": callbacks.python_invocations - before}
    yield {**about, "what": "create and allocate", **versus(lambda: make([delegate]), lambda: make([]), CREATIONS)}


def options(parser: argparse.ArgumentParser) -> None:
    """The delegate's own."""
    parser.add_argument("--only-ops")
    parser.add_argument("--partitioning", default="cost_model")


SUITE = Suite(
    columns=(
        *(Column("model", "<44"), Column("threads", "7"), Column("delegated", "4"), Column("operators", "4", "of")),
        *(Column("partitions", "4"), Column("what", "<19"), *pair_columns("ms"), Column("callbacks", "5")),
    ),
    rows=rows,
    threads=(1,),
    rounds=60,
    options=options,
)
