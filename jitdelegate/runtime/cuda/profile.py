"""Time per kernel on a CUDA device: an event before the first launch, and one after each."""

from __future__ import annotations

from jitdelegate.runtime.profile import ROWS, medians

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.driver import Driver


class LaunchClock:
    """Times the launches of one session by the device's clock, when they go to a stream one by one."""

    __slots__ = ("_driver", "_events", "_kernels", "_runs", "_which")

    def __init__(self, program: Program, driver: Driver, events: list[int]) -> None:
        """
        Args:
            events: one more than the program has launches.
        """
        self._driver = driver
        self._events = events
        self._which = [launch.kernel for launch in program.launches]
        self._kernels = len(program.kernels)
        self._runs: list[list[float]] = []

    def record(self, number: int, stream: int) -> None:
        """Take the time before launch `number`, which is also the time after the launch before it."""
        self._driver.record(self._events[number], stream)

    def count_run(self) -> None:
        """Keep the times of the run that has just ended, and forget those of the oldest run."""
        seconds = [0.0] * self._kernels
        for launch, kernel in enumerate(self._which):
            seconds[kernel] += self._driver.seconds_between(self._events[launch], self._events[launch + 1])
        self._runs = [*self._runs[1 - ROWS :], seconds]

    def kernel_seconds(self) -> list[float | None]:
        """See `IOBinding.kernel_seconds`."""
        return medians(self._runs, self._kernels)
