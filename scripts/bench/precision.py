"""bfloat16 on the CPU: one inference against the same in float32, interleaved in one process, and its error.

Both sides run our `Interpreter.invoke` on the same random input. The speed is the time in float32 over that in
bfloat16, round by round: above 1 bfloat16 is faster. The error is the largest NRMSE of an output, as for the precision
"auto".
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from itertools import product

from jitdelegate.base.targets import BFLOAT16, EXACT
from jitdelegate.commands.measurement.column import Column
from jitdelegate.engine.choose_precision import largest_error
from scripts.bench.rounds import interleaved, mean_speeds, our_side, outputs_of, quartiles
from scripts.bench.suite import Row, Suite


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per number of threads and model that is compiled for the CPU."""
    for threads, model in product(arguments.threads, arguments.model):
        options = {"target": "cpu", "cpu_features": arguments.cpu_features}
        sides = {name: our_side(model, threads, precision=name, **options) for name in (EXACT, BFLOAT16)}
        times = interleaved({name: side.invoke for name, side in sides.items()}, arguments.rounds)
        low, speed, high = quartiles(times[EXACT], times[BFLOAT16])
        milliseconds = {f"{name}_ms": 1e3 * statistics.median(taken) for name, taken in times.items()}
        about = {"model": model.name, "threads": threads, "features": sides[BFLOAT16].report().features}
        yield (
            about
            | milliseconds
            | {
                "speed": speed,
                "low": low,
                "high": high,
                "error": largest_error(outputs_of(sides[BFLOAT16]), outputs_of(sides[EXACT])),
            }
        )


def options(parser: argparse.ArgumentParser) -> None:
    """The level."""
    parser.add_argument("--cpu-features", default="auto", help="instruction set of both sides")


SUITE = Suite(
    columns=(
        *(Column("model", "<45"), Column("threads", "7"), Column("features", "<14")),
        *(Column(f"{name}_ms", "11.3f", f"{name} ms") for name in (EXACT, BFLOAT16)),
        *(Column("speed", "6.3f"), Column("low", "6.3f"), Column("high", "6.3f"), Column("error", "8.1e")),
    ),
    rows=rows,
    rounds=60,
    options=options,
    summary=lambda rows: mean_speeds(rows, "threads"),
)
