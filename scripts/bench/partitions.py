"""Quality of the choice of partitions: one inference with the cost model's choice, with all partitions, and with the
largest.

Models that are compiled whole have no partitions to choose from. For them `--only-ops` says which operators may be
delegated, as if no others could be; each value adds one row, and "" means all operators.

All choices and LiteRT alone run interleaved in one process. A speed is LiteRT's time over ours, the median of the
rounds; above 1 we are faster. The choice is right if none of the others is faster.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.timing import ratio
from scripts.bench.rounds import interleaved, our_side, their_side
from scripts.bench.suite import Row, Suite

CHOICES: dict[str, dict[str, Any]] = {
    "cost model": {},
    "all": {"partitioning": "all"},
    "largest": {"partitioning": "all", "max_delegated_partitions": 1},
}


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, operators that may be delegated, and number of threads."""
    for model, only_ops, threads in product(arguments.model, arguments.only_ops, arguments.threads):
        yield compare(model, only_ops, threads, arguments.rounds)


def compare(model: Path, only_ops: str, threads: int, rounds: int) -> Row:
    """Partitions and speeds by choice."""
    row: Row = {"model": model.name, "only_ops": only_ops, "threads": threads}
    sides = {"LiteRT": their_side(model, threads).invoke}
    for name, options in CHOICES.items():
        ours = our_side(model, threads, **options, **({"only_ops": only_ops} if only_ops else {}))
        sides[name] = ours.invoke
        compiled = [operator for operator in ours.report().operators if operator.place in ("cpu", "cuda")]
        row[f"{name} partitions"] = len({operator.partition for operator in compiled})
    times = interleaved(sides, rounds)
    return row | {name: ratio(times["LiteRT"], times[name]) for name in CHOICES}


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The mean of each choice."""
    means = (f"{name} {statistics.geometric_mean(row[name] for row in rows):.3f}" for name in CHOICES)
    yield f"geometric mean of {len(rows)} rows against LiteRT alone: {', '.join(means)}"


def options(parser: argparse.ArgumentParser) -> None:
    """What may be delegated."""
    parser.add_argument("--only-ops", nargs="+", default=[""], metavar="CONV_2D,ADD")


SUITE = Suite(
    columns=(
        *(Column("model", "<40"), Column("only_ops", "<36"), Column("threads", "7")),
        *(column for name in CHOICES for column in (Column(name, "6.3f"), Column(f"{name} partitions", "4", "in"))),
    ),
    rows=rows,
    threads=(1,),
    rounds=40,
    options=options,
    summary=summary,
)
