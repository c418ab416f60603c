"""Interleaved runs of several sides, and their medians; the two interpreters that most suites compare."""

from __future__ import annotations

import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.timing import Run, quartiles, settle
from scripts.bench.suite import Row
from scripts.models import ready

WARM_UP = 5
UNITS = {"ms": 1e3, "us": 1e6}
Result = TypeVar("Result")


def child_cpu() -> float:
    """CPU seconds of all child processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_turns(
    sides: Mapping[str, Callable[[], Result]], rounds: int, *, shuffled: bool = True
) -> Iterator[dict[str, Result]]:
    """What every side gave in every round; in each round all sides run once, in another order unless told otherwise."""
    order, names = random.Random(0), list(sides)
    for _ in range(rounds):
        if shuffled:
            order.shuffle(names)
        yield {name: sides[name]() for name in names}


def interleaved(
    sides: Mapping[str, Run], rounds: int, calls: int = 1, *, warm_up: int = WARM_UP, settled: bool = True
) -> dict[str, list[float]]:
    """Seconds of a call of every side in every round, after rounds that are not counted.

    Args:
        calls: in a row, each round.
        settled: runs a side before, until the data and threads of the one before disturb it no longer.
    """
    runs = {name: partial(_seconds, run, calls, settled=settled) for name, run in sides.items()}
    measured = list(in_turns(runs, warm_up + rounds))[warm_up:]
    return {name: [row[name] for row in measured] for name in sides}


def _seconds(run: Run, calls: int, *, settled: bool) -> float:
    if settled:
        settle(run)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every quantity."""
    return {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}


def our_side(model: Path | bytes, threads: int, **options: Any) -> Any:
    """Our interpreter, ready to be invoked; nothing is cached."""
    import jitdelegate

    delegate = jitdelegate.GpuDelegate(serialization_dir=False, **options)
    return ready(jitdelegate.Interpreter(**_named(model), num_threads=threads, experimental_delegates=[delegate]))


def their_side(model: Path | bytes, threads: int) -> Any:
    """LiteRT's interpreter, ready to be invoked."""
    from ai_edge_litert.interpreter import Interpreter

    return ready(Interpreter(**_named(model), num_threads=threads))


def _named(model: Path | bytes) -> dict[str, Any]:
    return {"model_path": str(model)} if isinstance(model, Path) else {"model_content": model}


def outputs_of(side: Any) -> list[Any]:
    """All outputs of an interpreter's last run."""
    return [side.get_tensor(detail["index"]) for detail in side.get_output_details()]


def versus(ours: Run, theirs: Run, rounds: int, unit: str = "ms") -> Row:
    """Medians of both sides, and LiteRT's time over ours, round by round, with its quartiles: above 1 we are faster."""
    times = interleaved({"ours": ours, "LiteRT": theirs}, rounds)
    low, speed, high = quartiles(times["LiteRT"], times["ours"])
    own, other = (UNITS[unit] * statistics.median(times[name]) for name in ("ours", "LiteRT"))
    return {f"ours_{unit}": own, f"litert_{unit}": other, "speed": speed, "low": low, "high": high}


def versus_litert(model: Path | bytes, threads: int, rounds: int, unit: str = "ms", **options: Any) -> Row:
    """The same of a model's `Interpreter.invoke`, with the target and whether all outputs are equal."""
    import numpy as np

    sides = our_side(model, threads, **options), their_side(model, threads)
    row = versus(sides[0].invoke, sides[1].invoke, rounds, unit)
    equal = all(map(np.array_equal, *map(outputs_of, sides)))
    return {"threads": threads, "target": sides[0].report().target, **row, "equal": "equal" if equal else "different"}


def pair_columns(unit: str) -> tuple[Column, ...]:
    """The columns of `versus`."""
    return (
        Column(f"ours_{unit}", "10.3f" if unit == "ms" else "10.1f", f"ours {unit}"),
        Column(f"litert_{unit}", "10.3f" if unit == "ms" else "10.1f", f"LiteRT {unit}"),
        Column("speed", "6.3f"),
        Column("low", "6.3f"),
        Column("high", "6.3f"),
    )


def mean_speeds(rows: Iterable[Row], *groups: str) -> Iterator[str]:
    """The geometric mean of the speeds and the least, for each group of rows that have equal values of `groups`."""

    def group(row: Row) -> list[Any]:
        return [row[key] for key in groups]

    for values, members in groupby(sorted(rows, key=group), group):
        speeds = [row["speed"] for row in members]
        name = ", ".join(f"{key} {value}" for key, value in zip(groups, values, strict=True))
        mean = statistics.geometric_mean(speeds)
        yield f"{name}: geometric mean {mean:.3f} of {len(speeds)} rows, least {min(speeds):.3f}"
