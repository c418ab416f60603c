"""Launches captured as the graph that a program describes: in several streams, and so that they may begin early."""

from __future__ import annotations

from jitdelegate.runtime.cuda.driver import DEPENDENT_GRAPHS_VERSION, UNTIMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Launch
    from jitdelegate.runtime.cuda.driver import Driver

    Own = Callable[[Any, Callable[[Any], None]], Any]
    Step = tuple[int, tuple[int, int, int], tuple[int, int, int], int, int]
    """The arguments of `Driver.launch` before the stream."""


def make_fork(launches: Sequence[Launch], driver: Driver, own: Own) -> Fork | None:
    """For launches that are more than a row of launches each of which follows the end of the one before it; else None.

    Args:
        own: takes a handle and the function that releases it.
    Raises:
        DeviceError: the driver gives no stream or event.
    """
    may_begin_early = driver.version >= DEPENDENT_GRAPHS_VERSION
    if any(launch.stream or (launch.is_dependent and may_begin_early) for launch in launches):
        return Fork(launches, driver, own)
    return None


class Fork:
    """Streams and events that forks and joins of a capture are made with; `make_fork` makes it."""

    __slots__ = ("_driver", "_events", "_lasts", "_launches", "_start", "_streams")

    def __init__(self, launches: Sequence[Launch], driver: Driver, own: Own) -> None:
        self._driver = driver
        self._launches = launches
        count = 1 + max(launch.stream for launch in launches)
        self._streams = [own(driver.create_stream(), driver.destroy_stream) for _ in range(1, count)]
        lasts = {launch.stream: number for number, launch in enumerate(launches)}
        joined = {other for launch in launches if not launch.stream for other in launch.waits}
        self._lasts = [lasts[stream] for stream in range(1, count) if stream in lasts and lasts[stream] not in joined]
        awaited = {*self._lasts, *(other for launch in launches for other in launch.waits)}
        self._events = {number: own(driver.create_event(UNTIMED), driver.destroy_event) for number in sorted(awaited)}
        self._start = own(driver.create_event(UNTIMED), driver.destroy_event) if self._streams else 0

    def enqueue(self, steps: Sequence[Step], stream: int) -> None:
        """Enqueue the launches, after what was captured from the stream so far."""
        driver, streams = self._driver, [stream, *self._streams]
        may_begin_early = driver.version >= DEPENDENT_GRAPHS_VERSION
        if self._start:
            driver.record(self._start, stream)
        begun = {0}
        for number, (launch, step) in enumerate(zip(self._launches, steps, strict=True)):
            own = streams[launch.stream]
            if launch.stream not in begun and not launch.waits:
                driver.wait_for(self._start, own)
            begun.add(launch.stream)
            for other in launch.waits:
                driver.wait_for(self._events[other], own)
            driver.launch(*step, own, is_dependent=launch.is_dependent and may_begin_early)
            if number in self._events:
                driver.record(self._events[number], own)
        for number in self._lasts:
            driver.wait_for(self._events[number], stream)
