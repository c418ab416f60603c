"""Counts, shares, positions and names as short words."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from jitdelegate.base.tables import short_number

UNITS = ("", " k", " M", " G", " T")


def operators(nodes: Sized) -> str:
    """The number of operators, as a noun with its number."""
    return "1 operator" if len(nodes) == 1 else f"{len(nodes):,} operators"


def percent(share: float) -> str:
    """A share; what is more than nothing is not told as 0, and what is less than all not as 100."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.995 <= share < 1:
        return "> 99 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def short(number: int) -> str:
    """A number of three figures and a unit: 12.3 M of 12,345,678."""
    return short_number(number, UNITS)


def positions(numbers: Sequence[int], most: int | None = None) -> str:
    """0, 3-7, 9 of 0, 3, 4, 5, 6, 7, 9; at most so many of these parts."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:most]]
    more = sum(map(len, runs[len(told) :]))
    return ", ".join(told) + (f" and {more:,} more" if more else "")


def shortened(name: str, longest: int) -> str:
    """The end of a tensor's name, which differs most; converters join the names of fused tensors with semicolons."""
    end = name.split(";")[0][-longest:]
    return end if end == name else f"…{end}"
