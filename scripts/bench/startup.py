"""Start-up of one model: cold, warm and LiteRT, interleaved in fresh processes; medians and ratios with their spread.

In process: the time to open the model when numpy is loaded, compared with LiteRT's import, creation and allocation.
Whole process: from its start to the first output, wall clock and CPU time. Output says where a goal is missed; this is
not a failure.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from jitdelegate.commands.demo import write_inputs
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.errors import ModelError
from scripts.bench.rounds import child_cpu, in_turns, medians
from scripts.bench.suite import Row, Suite

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


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, number of threads and ratio; one round of all roads, cold first, goes uncounted."""
    for model, threads in product(arguments.model, arguments.threads):
        write_inputs(model, arguments.folder)
        roads = {name: partial(start, name, model, arguments.folder, threads) for name in ROADS}
        rounds = list(in_turns(roads, 1 + arguments.rounds, shuffled=False))[1:]
        medians_of = {name: medians([row[name] for row in rounds]) for name in ROADS}
        for title, above, below, quantity, mark in RATIOS:
            ratios = sorted(row[above][quantity] / row[below][quantity] for row in rounds)
            middle = statistics.median(ratios)
            yield {
                "model": model.name,
                "threads": threads,
                "what": title,
                "above_ms": 1e3 * medians_of[above][quantity],
                "below_ms": 1e3 * medians_of[below][quantity],
                "ratio": middle,
                "least": ratios[0],
                "most": ratios[-1],
                "mark": mark,
                "verdict": "" if mark is None else "holds" if middle <= mark else "EXCEEDED",
                "stages": {name: medians_of[name] for name in (above, below)},
            }


def start(name: str, path: Path, folder: Path, threads: int) -> dict[str, float]:
    """Seconds of one start on a road of `ROADS`, in a fresh process: "wall", "cpu", and those of its stages.

    `write_inputs` wrote the inputs to `folder`, which has the programs too.
    """
    road = ROADS[name]
    if name == "cold":
        shutil.rmtree(folder / "cache", ignore_errors=True)
    before = child_cpu()
    arguments = [road, str(path), str(folder / "cache"), str(folder), str(threads), "0"]
    try:
        trial, wall = run_module(road, "jitdelegate.commands.timed_start", arguments)
    except ModelError as error:
        sys.exit(str(error))
    return {"wall": wall, "cpu": child_cpu() - before, **_ready(road, trial)}


def _ready(road: str, trial: dict[str, Any]) -> dict[str, float]:
    """Seconds from "numpy is loaded" to "can run", without and with our own import; plus the stages themselves."""
    seconds = trial["seconds"]
    if road == "litert":
        ready = seconds["import"] + seconds["create"] + seconds["allocate"]
        return {"ready": ready, "ready with import": ready, **seconds}
    return {"ready": seconds["open"], "ready with import": seconds["import"] + seconds["open"], **seconds}


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The stages of every road, of the last model."""
    stages = {name: row for one in rows[-len(RATIOS) :] for name, row in one["stages"].items()}
    for name, row in stages.items():
        yield f"{name:<12}" + ", ".join(f"{stage} {1e3 * seconds:.2f}" for stage, seconds in row.items()) + " ms"


SUITE = Suite(
    columns=(
        *(
            Column("model", "<24"),
            Column("threads", "7"),
            Column("what", "<57"),
            Column("above_ms", "8.2f", "above ms"),
        ),
        *(Column("below_ms", "8.2f", "below ms"), Column("ratio", "6.3f"), Column("least", "6.3f")),
        *(Column("most", "6.3f"), Column("mark", "6.3f"), Column("verdict", "<8")),
    ),
    rows=rows,
    make=mobilenet_v1,
    threads=(1,),
    rounds=10,
    summary=summary,
)
