"""How well partitions are chosen: one inference with the cost model's choice, with all partitions, with the largest.

    python -m scripts.bench_partitions MODEL [MODEL ...] [--only-ops CONV_2D,ADD ...] [--threads 1] [--rounds 40]

Models that are compiled whole have no partitions to choose from. For them `--only-ops` says which operators may be
delegated, as if no others could be; each value makes one more row, "" stands for all operators.

All choices and LiteRT alone run interleaved in one process. A speed is LiteRT's time over ours, the median of the
rounds; above 1 we are faster. The choice is right where none of the others is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert

import jitdelegate
from jitdelegate.commands.measurement.timing import ratio
from scripts.bench_latency import geometric_mean, interleaved, ready

CHOICES: dict[str, dict[str, Any]] = {
    "cost model": {},
    "all": {"partitioning": "all"},
    "largest": {"partitioning": "all", "max_delegated_partitions": 1},
}


def compare(model: Path, only_ops: str, threads: int, rounds: int) -> dict[str, Any]:
    """Partitions and speeds by choice."""
    theirs = ready(litert.Interpreter(str(model), num_threads=threads))
    sides, partitions = {"LiteRT": theirs.invoke}, {}
    for name, options in CHOICES.items():
        restricted = {**options, **({"only_ops": only_ops} if only_ops else {})}
        delegate = jitdelegate.GpuDelegate(serialization_dir=False, **restricted)
        ours = ready(jitdelegate.Interpreter(str(model), num_threads=threads, experimental_delegates=[delegate]))
        sides[name] = ours.invoke
        partitions[name] = _partitions(ours.report())
    times = interleaved(sides, rounds)
    speeds = {name: ratio(times["LiteRT"], times[name]) for name in CHOICES}
    return {"model": model.name, "only_ops": only_ops, "threads": threads, "partitions": partitions, "speeds": speeds}


def _partitions(report: jitdelegate.Report) -> int:
    """How many partitions are compiled."""
    return len({each.partition for each in report.operators if each.place in ("cpu", "cuda")})


def _line(row: dict[str, Any]) -> str:
    shown = "  ".join(f"{name} {row['speeds'][name]:.3f} in {row['partitions'][name]:2}" for name in CHOICES)
    return f"{row['model'][:40]:40} {row['only_ops'][:36]:36} {shown}"


def _summary(rows: list[dict[str, Any]]) -> str:
    means = {name: geometric_mean(row["speeds"][name] for row in rows) for name in CHOICES}
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    return f"geometric mean of {len(rows)} rows against LiteRT alone: {shown}"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+", type=Path)
    parser.add_argument("--only-ops", nargs="+", default=[""])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", jitdelegate.DelegateWarning)
    rows = []
    for model in arguments.model:
        for only_ops in arguments.only_ops:
            rows.append(compare(model, only_ops, arguments.threads, arguments.rounds))
            if not arguments.json:
                print(_line(rows[-1]), flush=True)
    print(json.dumps(rows, indent=2) if arguments.json else _summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
