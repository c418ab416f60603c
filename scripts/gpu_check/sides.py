"""The sides of a comparison: each runs the same network, and returns the times of the GPU and of the caller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from jitdelegate.runtime.cuda.session import CudaSession

RUNS = 50
"""Inferences that follow each other on the GPU in one measurement."""


class Side(Protocol):
    """One network on the GPU."""

    def device_seconds(self) -> float:
        """Per inference, by the GPU's clock: an event before RUNS of them and one behind, no waiting in between."""

    def call_seconds(self) -> float:
        """Of one inference, from values in the host's memory to values in the host's memory."""


class Ours:
    """A prepared program."""

    def __init__(self, session: CudaSession) -> None:
        self._session = session
        session.invoke()  # kernels compute on real values from now on

    def device_seconds(self) -> float:
        return self._session.run_seconds(RUNS, copies=False)[0] / RUNS

    def call_seconds(self) -> float:
        return timed(self._session.invoke)


def timed(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleave(measure: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """By name the seconds of each round. Every round measures every side once, in an order of its own, so that what
    disturbs the machine disturbs all of them."""
    order, names = random.Random(0), list(measure)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1 + rounds):
        order.shuffle(names)
        for name in names:
            seconds = measure[name]()
            if number:  # the first round warms up
                found[name].append(seconds)
    return found
