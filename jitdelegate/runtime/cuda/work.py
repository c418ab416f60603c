"""What the GPU does in one run: copies in, launches, copies out, with the addresses of a route."""

from __future__ import annotations

import ctypes

from jitdelegate.runtime.cuda.driver import try_release
from jitdelegate.runtime.cuda.route import region_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.program.program import Launch, Program
    from jitdelegate.runtime.cuda.driver import Driver
    from jitdelegate.runtime.cuda.fork import Fork
    from jitdelegate.runtime.cuda.profile import LaunchClock
    from jitdelegate.runtime.cuda.route import Route
    from jitdelegate.runtime.cuda.states import CudaStates
    from jitdelegate.runtime.cuda.status import CudaStatus


class Work:
    """The work of one route of a session, to be enqueued or captured.

    Attributes:
        graph: the executable graph of it; 0 for none.
    """

    __slots__ = ("_after", "_arguments", "_before", "_driver", "_route", "_status", "_steps", "graph")

    def __init__(
        self,
        program: Program,
        driver: Driver,
        functions: Sequence[int],
        arena: int,
        weights: Callable[[int], int],
        states: CudaStates,
        route: Route,
        status: CudaStatus | None,
    ) -> None:
        """
        Args:
            functions: by kernel.
            arena: its address on the GPU.
            weights: offset in the weights -> address on the GPU.
            status: None where no run is refused.
        """
        self.graph = 0
        self._driver = driver
        self._route = route
        self._status = status
        self._before, self._after = states.copies(lambda offset: route.regions.get(offset, arena + offset))
        self._arguments = _Arguments(program.launches, arena, weights, route.regions, status.address if status else 0)
        self._steps = [
            (functions[launch.kernel], launch.grid, launch.block, launch.shared_bytes, address)
            for launch, address in zip(program.launches, self._arguments.addresses, strict=True)
        ]

    def enqueue(self, stream: int, clock: LaunchClock | None = None, fork: Fork | None = None) -> None:
        """Enqueue one run, call by call; in a capture also with branches."""
        self.enqueue_inputs(stream)
        self.enqueue_kernels(stream, clock, fork)
        for copy in self._route.after:
            self._driver.copy(*copy, stream)
        for copy in self._route.downloads:
            self._driver.download(*copy, stream)
        if self._status:
            self._status.enqueue(stream)

    def enqueue_inputs(self, stream: int) -> None:
        """Enqueue the copies of inputs."""
        for copy in self._route.uploads:
            self._driver.upload(*copy, stream)
        for copy in self._route.before:
            self._driver.copy(*copy, stream)

    def enqueue_kernels(self, stream: int, clock: LaunchClock | None = None, fork: Fork | None = None) -> None:
        """Enqueue the launches, between the copies of states."""
        self.enqueue_until(0 if fork else len(self._steps), stream, clock)
        if fork:
            fork.enqueue(self._steps, stream)
        if clock:
            clock.record(len(self._steps), stream)
        for copy in self._after:
            self._driver.copy(*copy, stream)

    def enqueue_until(self, end: int, stream: int, clock: LaunchClock | None = None) -> None:
        """Enqueue the copies of states and the launches before number `end`."""
        for copy in self._before:
            self._driver.copy(*copy, stream)
        for number in range(end):
            if clock:
                clock.record(number, stream)
            self.enqueue_launch(number, stream)

    def enqueue_launch(self, number: int, stream: int) -> None:
        """Enqueue one launch."""
        self._driver.launch(*self._steps[number], stream)

    def drop(self) -> None:
        """Destroy the graph."""
        if self.graph:
            try_release(self._driver.destroy_executable, self.graph)


class _Arguments:
    """The kernels' arguments in memory, in the form that the driver needs for every launch.

    Attributes:
        addresses: by launch, the address of its pointers to its arguments' values.
    """

    __slots__ = ("_pointers", "_words", "addresses")

    def __init__(
        self,
        launches: Sequence[Launch],
        arena: int,
        weights: Callable[[int], int],
        ports: dict[int, int],
        status: int,
    ) -> None:

        def port(value: int) -> int:
            offset = region_of(ports, value)
            return ports[offset] + (value - offset)

        address_of: dict[str, Callable[[int], int]] = {"a": arena.__add__, "w": weights, "p": port, "s": status.__add__}
        words = [
            address_of[kind](value) if kind in address_of else value
            for launch in launches
            for kind, value in zip(launch.kinds, launch.values, strict=True)
        ]
        # each argument has 8 bytes: the driver reads a shorter argument from the first bytes, which are the lowest
        self._words = (ctypes.c_uint64 * len(words))(*words)
        start = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_uint64 * len(words))(*range(start, start + 8 * len(words), 8))
        self.addresses: list[int] = []
        address = ctypes.addressof(self._pointers)
        for launch in launches:
            self.addresses.append(address)
            address += 8 * len(launch.kinds)
