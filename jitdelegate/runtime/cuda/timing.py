"""Time of work in a stream, by the device's clock and by the host's."""

from __future__ import annotations

import time

from jitdelegate.runtime.cuda.driver import try_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.runtime.cuda.driver import Driver


def measured(driver: Driver, stream: int, times: int, enqueue: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the work that `enqueue`, called `times` times, puts into the stream.

    Returns:
        seconds by the device's clock, from an event before the work to one after it, and by the host's, until it is
        done.
    """
    events = list[int]()
    try:
        for _ in range(2):
            events.append(driver.create_event())
        start = time.perf_counter()
        driver.record(events[0], stream)
        for _ in range(times):
            enqueue()
        driver.record(events[1], stream)
        driver.synchronize(stream)
        end = time.perf_counter()
        return driver.seconds_between(*events), end - start
    finally:
        for event in events:
            try_release(driver.destroy_event, event)
