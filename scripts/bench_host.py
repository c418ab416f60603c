"""LiteRT's own interpreter with our delegate in it, against LiteRT alone: invoke, and creation with a warm cache.

    python -m scripts.bench_host MODEL [MODEL ...] [--only-ops ADD] [--partitioning all] [--threads 1] [--rounds 60]
        [--json]

Both sides run interleaved in one process. A ratio is our time over LiteRT's, the median of the rounds with its
quartiles; below 1 we are faster. Callbacks are calls of Python from `invoke`, over all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter

import jitdelegate
from jitdelegate.engine.litert_delegate import callbacks
from scripts.bench_latency import interleaved, ready

CREATIONS = 15


def compare(model: Path, options: dict[str, Any], rounds: int, folder: str) -> dict[str, Any]:
    """Partitions, callbacks and ratios of one model."""
    delegate = jitdelegate.GpuDelegate(serialization_dir=folder, **options)

    def make(delegates: list[Any]) -> Interpreter:
        interpreter = Interpreter(
            str(model), num_threads=options["num_threads"], experimental_delegates=delegates or None
        )
        interpreter.allocate_tensors()
        return interpreter

    ours, theirs = ready(make([delegate])), ready(make([]))
    before = callbacks.python_invocations
    invoke = _ratios(ours.invoke, theirs.invoke, rounds)
    called = callbacks.python_invocations - before
    create = _ratios(lambda: make([delegate]), lambda: make([]), CREATIONS)
    report = delegate.report()
    assert report is not None
    partitions = {each.partition for each in report.operators if each.place in ("cpu", "cuda")}
    return {
        "model": model.name,
        "partitions": len(partitions),
        "delegated": report.delegated,
        "operators": len(report.operators),
        "callbacks": called,
        "invoke": invoke,
        "create and allocate": create,
    }


def _ratios(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> dict[str, float]:
    """Medians in milliseconds, and the ratio with its quartiles."""
    times = interleaved({"ours": ours, "LiteRT": theirs}, rounds)
    low, middle, high = statistics.quantiles((a / b for a, b in zip(times["ours"], times["LiteRT"], strict=True)), n=4)
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return {"ours_ms": medians["ours"], "litert_ms": medians["LiteRT"], "ratio": middle, "low": low, "high": high}


def _line(row: dict[str, Any]) -> str:
    shown = "  ".join(
        "{name} {ours_ms:.3f} ms, LiteRT {litert_ms:.3f} ms, ratio {ratio:.3f} ({low:.3f} to {high:.3f})".format(
            name=name, **row[name]
        )
        for name in ("invoke", "create and allocate")
    )
    head = f"{row['model'][:44]:44} {row['delegated']}/{row['operators']} in {row['partitions']}"
    return f"{head}  {shown}  {row['callbacks']} callbacks"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+", type=Path)
    parser.add_argument("--only-ops")
    parser.add_argument("--partitioning", default="cost_model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", jitdelegate.DelegateWarning)
    options = {
        "only_ops": arguments.only_ops,
        "partitioning": arguments.partitioning,
        "num_threads": arguments.threads,
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.model:
            rows.append(compare(model, options, arguments.rounds, folder))
            if not arguments.json:
                print(_line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
