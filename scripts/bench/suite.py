"""The description of a suite."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jitdelegate.commands.measurement.column import Column, head, line

Row = dict[str, Any]


@dataclass(frozen=True)
class Suite:
    """One measurement.

    Attributes:
        columns: of its table.
        rows: measures; it gets the command's arguments, whose `folder` is a temporary one, and gives each row as soon
            as it is known.
        models: whether it measures models that the command names.
        make: a model's bytes, measured where the command names none; None where it has to, unless `may_name_none`.
        may_name_none: whether other arguments may say what is measured.
        threads, rounds: what the command takes where it is not told; no threads where the suite has a fixed number.
        options: adds the suite's own arguments.
        summary: lines below the table.
        holds: whether the rows are such that the command succeeds.
        child: measures in a process of its own, for `--child TEXT`, which the suite starts; what it gives is printed.
    """

    columns: Sequence[Column]
    rows: Callable[[argparse.Namespace], Iterator[Row]]
    models: bool = True
    make: Callable[[], bytes] | None = None
    may_name_none: bool = False
    threads: Sequence[int] = (1, 2)
    rounds: int = 20
    options: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    summary: Callable[[Sequence[Row]], Iterable[str]] = lambda rows: ()
    holds: Callable[[Sequence[Row]], bool] = lambda rows: True
    child: Callable[[argparse.Namespace], Mapping[str, Any]] | None = None

    def head(self) -> str:
        """The titles of the table."""
        return head(self.columns)

    def line(self, row: Row) -> str:
        """A row of the table."""
        return line(self.columns, row)


def add_only(parser: argparse.ArgumentParser) -> None:
    """The option of suites that make their models."""
    parser.add_argument("--only", default="", metavar="TEXT", help="a part of the names of what is measured")
