"""Runs by the clock: one side alone, or several that take turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SETTLE = 0.005
"""Seconds; threads of a pool commonly spin for a millisecond or two after their work."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Length:
    """How long to measure, as benchmark_model counts it.

    Attributes:
        runs, seconds: the least of both.
        most_seconds: no run begins after them.
        delay: seconds between two runs.
        frequency: runs a second; it replaces the delay. 0 for none.
    """

    runs: int
    seconds: float
    most_seconds: float
    delay: float = 0.0
    frequency: float = 0.0

    def turns(self) -> Iterator[int]:
        """The number of each run; the pause between two runs is made here."""
        start = time.perf_counter()
        number, now = 0, start
        while (number < self.runs or now - start < self.seconds) and now - start <= self.most_seconds:
            yield number
            number += 1
            self._pause(start, number)
            now = time.perf_counter()

    def _pause(self, start: float, number: int) -> None:
        pause = start + number / self.frequency - time.perf_counter() if self.frequency > 0 else self.delay
        if pause > 0:
            time.sleep(pause)


def seconds(run: Run) -> float:
    """Wall-clock time of one call."""
    return _timed(run)[1]


def _timed(run: Run) -> tuple[float, float]:
    """(start, seconds) of one call."""
    start = time.perf_counter()
    run()
    return start, time.perf_counter() - start


def settle(run: Run) -> None:
    """Runs until the other side no longer disturbs: its data has left the caches, its threads have stopped spinning."""
    end = time.perf_counter() + SETTLE
    run()
    while time.perf_counter() < end:
        run()


def timed(run: Run, length: Length, shown: Callable[[], object] = lambda: None) -> list[tuple[float, float]]:
    """(start, seconds) of each run of one side; `shown` is called after each."""
    found = []
    for _ in length.turns():
        found.append(_timed(run))
        shown()
    return found


def interleaved(
    sides: Mapping[str, Run],
    length: Length,
    shown: Callable[[], object] = lambda: None,
    begins: Callable[[str], object] = lambda name: None,
) -> dict[str, list[tuple[float, float]]]:
    """The same of several sides: in each round all run once after runs that settle them, in another order.

    Args:
        shown: called after each round.
        begins: called with the name of a side before it is settled.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    order, shuffled = random.Random(0), list(sides.items())
    for _ in length.turns():
        order.shuffle(shuffled)
        for name, run in shuffled:
            begins(name)
            settle(run)
            found[name].append(_timed(run))
        shown()
    return found


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """The median over the rounds of their time over ours: above 1, ours is faster."""
    return quartiles(theirs, ours)[1]


def quartiles(theirs: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """The quartiles of the rounds' ratios of their time to ours; a single round's is all three."""
    from statistics import quantiles

    ratios = [other / own for other, own in zip(theirs, ours, strict=True)]
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return low, middle, high
