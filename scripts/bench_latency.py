"""Latency of one inference: jitdelegate against LiteRT with XNNPACK, interleaved in one process.

    python scripts/bench_latency.py MODEL [MODEL ...] [--threads 1 2] [--rounds 60] [--json]

Both sides run `Interpreter.invoke` on the same random input. The speed is LiteRT's time over ours, round by round:
above 1 we are faster. Prints the median of the rounds' ratios with their quartiles, and the geometric mean over models.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np

import jitdelegate
from jitdelegate.commands.measurement import timing
from jitdelegate.commands.measurement.timing import Length

WARM_UP = 5


def ready(interpreter: Any) -> Any:
    """The interpreter with tensors allocated and seeded random input; integers that are no quantized numbers are
    indices, 0 or 1."""
    interpreter.allocate_tensors()
    values = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        value = values.uniform(-1, 1, detail["shape"])
        if np.issubdtype(detail["dtype"], np.integer):
            value = value * 100 if detail["quantization"][0] else value > 0
        interpreter.set_tensor(detail["index"], value.astype(detail["dtype"]))
    return interpreter


def interleaved(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every side in every round; in each round all sides run once, in another order."""
    runs = timing.interleaved(sides, Length(WARM_UP + rounds, 0.0, math.inf))
    return {name: [took for _, took in each[WARM_UP:]] for name, each in runs.items()}


def both_sides(model: Mapping[str, Any], threads: int, **options: Any) -> tuple[Any, Any]:
    """Our interpreter and LiteRT's, ready to be invoked.

    Args:
        model: the interpreters' `model_path` or `model_content`.
        options: of our delegate; nothing is cached.
    """
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, **options)
    ours = jitdelegate.Interpreter(**model, num_threads=threads, experimental_delegates=[delegate])
    return ready(ours), ready(litert.Interpreter(**model, num_threads=threads))


def compare_content(content: bytes, threads: int, rounds: int) -> dict[str, Any]:
    """The same of a small model that is compiled for the CPU, in microseconds: medians and the median ratio, whether
    all outputs are equal, and the target."""
    ours, theirs = both_sides({"model_content": content}, threads, target="cpu")
    times = interleaved({"ours": ours.invoke, "LiteRT": theirs.invoke}, rounds)
    outputs = ([side.get_tensor(detail["index"]) for detail in side.get_output_details()] for side in (ours, theirs))
    return {
        "threads": threads,
        "target": ours.report().target,
        "ours_us": 1e6 * statistics.median(times["ours"]),
        "litert_us": 1e6 * statistics.median(times["LiteRT"]),
        "speed": timing.ratio(times["LiteRT"], times["ours"]),
        "equal": all(map(np.array_equal, *outputs)),
    }


def geometric_mean(ratios: Iterable[float]) -> float:
    """The geometric mean of at least one ratio."""
    return math.exp(statistics.mean(map(math.log, ratios)))


def compare(model: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Medians in milliseconds and the ratio with its quartiles."""
    ours, theirs = both_sides({"model_path": str(model)}, threads)
    times = interleaved({"ours": ours.invoke, "LiteRT": theirs.invoke}, rounds)
    ratios = sorted(b / a for a, b in zip(times["ours"], times["LiteRT"], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "model": model.name,
        "threads": threads,
        "target": ours.report().target,
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "litert_ms": 1e3 * statistics.median(times["LiteRT"]),
        "speed": middle,
        "quartiles": [low, high],
    }


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+", type=Path)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    results = []
    for threads in arguments.threads:
        for model in arguments.model:
            results.append(compare(model, threads, arguments.rounds))
            if not arguments.json:
                print(
                    "{model:45} {threads} threads  {ours_ms:9.3f} ms  LiteRT {litert_ms:9.3f} ms  "
                    "speed {speed:.3f} ({quartiles[0]:.3f} to {quartiles[1]:.3f}) on {target}".format(**results[-1])
                )
        compiled = [r["speed"] for r in results if r["threads"] == threads and r["target"] == "cpu"]
        if len(compiled) > 1 and not arguments.json:
            mean = geometric_mean(compiled)
            print(f"geometric mean of {len(compiled)} compiled models, {threads} threads: {mean:.3f}")
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
