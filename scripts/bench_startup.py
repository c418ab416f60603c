"""Start-up of one model: cold, warm and LiteRT, interleaved in fresh processes; medians and ratios with their spread.

    python scripts/bench_startup.py MODEL [--rounds 10] [--threads 1] [--json]

In process: what opening costs once numpy is loaded, `open` against LiteRT's import + create + allocate.
Whole process: from nothing to the first output, wall clock and CPU time of the child.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from jitdelegate.commands.demo import write_inputs
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.errors import ModelError

ROADS = {
    "cold": "jitdelegate",
    "warm": "jitdelegate",
    "warm+numpy": "jitdelegate-numpy",
    "LiteRT": "litert",
}
RATIOS = (
    ("in process: warm open / LiteRT import+create+allocate", "warm+numpy", "LiteRT", "ready", 1 / 20),
    ("in process: import+open / LiteRT import+create+allocate", "warm+numpy", "LiteRT", "ready with import", None),
    ("whole process: warm / LiteRT, wall", "warm", "LiteRT", "wall", 1 / 2),
    ("whole process: warm / LiteRT, CPU", "warm", "LiteRT", "cpu", 1 / 2),
    ("whole process: warm+numpy / LiteRT, wall", "warm+numpy", "LiteRT", "wall", 1.0),
    ("whole process: warm+numpy / LiteRT, CPU", "warm+numpy", "LiteRT", "cpu", 1.0),
    ("whole process: warm / cold, CPU", "warm", "cold", "cpu", 1 / 5),
)
"""(title, side above, side below, quantity, the most it should be)."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 2 wrong arguments. What exceeds its mark is printed so, never a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="default: a MobileNet v1 1.0 224 made here")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as name:
        rounds = measure(arguments.model, Path(name), arguments.rounds, arguments.threads)
    ratios = {title: _ratios(rounds, *rest) for title, *rest in RATIOS}
    if arguments.json:
        print(json.dumps({"rounds": rounds, "ratios": ratios}, indent=2))
    else:
        print("\n".join([*_medians(rounds), "", *_lines(ratios)]))
    return 0


def measure(model: Path | None, folder: Path, rounds: int, threads: int) -> list[dict[str, dict[str, float]]]:
    """Per round and road the seconds of each quantity; every round runs every road, cold first. One goes uncounted."""
    path = model or folder / "mobilenet_v1.tflite"
    if model is None:
        path.write_bytes(mobilenet_v1())
    write_inputs(path, folder)
    _round(path, folder, threads)
    return [_round(path, folder, threads) for _ in range(rounds)]


def _round(path: Path, folder: Path, threads: int) -> dict[str, dict[str, float]]:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return {name: _start(road, path, folder, threads) for name, road in ROADS.items()}


def _start(road: str, path: Path, folder: Path, threads: int) -> dict[str, float]:
    before = _child_cpu()
    arguments = [road, str(path), str(folder / "cache"), str(folder), str(threads), "0"]
    try:
        trial, wall = run_module(road, "jitdelegate.commands.timed_start", arguments)
    except ModelError as error:
        sys.exit(str(error))
    return {"wall": wall, "cpu": _child_cpu() - before, **_ready(road, trial)}


def _ready(road: str, trial: dict[str, Any]) -> dict[str, float]:
    """Seconds from "numpy is loaded" to "can run", without and with our own import; plus the stages themselves."""
    seconds = trial["seconds"]
    if road == "litert":
        ready = seconds["import"] + seconds["create"] + seconds["allocate"]
        return {"ready": ready, "ready with import": ready, **seconds}
    return {"ready": seconds["open"], "ready with import": seconds["import"] + seconds["open"], **seconds}


def _child_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _ratios(
    rounds: list[dict[str, dict[str, float]]], above: str, below: str, quantity: str, mark: float | None
) -> dict[str, Any]:
    found = sorted(each[above][quantity] / each[below][quantity] for each in rounds)
    return {
        "median": statistics.median(found),
        "least": found[0],
        "most": found[-1],
        "mark": mark,
        "holds": mark is None or statistics.median(found) <= mark,
    }


def _medians(rounds: list[dict[str, dict[str, float]]]) -> list[str]:
    lines = []
    for name in ROADS:
        quantities = rounds[0][name]
        shown = (f"{key} {1e3 * statistics.median(each[name][key] for each in rounds):.2f}" for key in quantities)
        lines.append(f"{name:<12}{', '.join(shown)}")
    return [f"ms, medians of {len(rounds)} rounds", *lines]


def _lines(ratios: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for title, found in ratios.items():
        mark = (
            "" if found["mark"] is None else f"  mark {found['mark']:.3f} {'holds' if found['holds'] else 'EXCEEDED'}"
        )
        lines.append(f"{title:<58}{found['median']:>7.3f}  ({found['least']:.3f} to {found['most']:.3f}){mark}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
