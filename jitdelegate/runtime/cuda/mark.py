"""Mark: a point in a CUDA stream that can be waited for."""

from __future__ import annotations

import _thread
import time

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.device import find_device
from jitdelegate.runtime.cuda.driver import UNTIMED
from jitdelegate.runtime.cuda.library import open_library
from jitdelegate.runtime.cuda.memory import GpuMemory, Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.runtime.cuda.context import Context

SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds between looks while somebody waits with a timeout, which CUDA does not know: each doubles the one before."""


class Mark:
    """A CUDA event that was recorded: a point in a stream. Any thread may call any method.

    Attributes:
        context: the event's.
        error: why the work before it failed, once it is known; or what follows it.
    """

    __slots__ = ("_handle", "_is_done", "_lock", "_owner", "_then", "context", "error")

    def __init__(
        self, context: Context, handle: int, owner: object = None, then: Callable[[], object] | None = None
    ) -> None:
        """
        Args:
            owner: keeps the event alive.
            then: called once, by whoever finds the point passed first.
        """
        self.context = context
        self.error: DeviceError | None = None
        self._handle = handle
        self._owner = owner
        self._then = then
        self._is_done = False
        self._lock = _thread.RLock()

    @classmethod
    def of_event(cls, handle: int, device: int) -> Mark:
        """A CUDA event of the caller's; raises the errors of `GpuMemory`."""
        return cls(GpuMemory(find_device(open_library(), device)).context, handle)

    @classmethod
    def of_stream(cls, handle: int, device: int) -> Mark:
        """The end of what is in a stream of the caller's now.

        Raises:
            DeviceError: there is no such device, or the driver refuses to record an event.
        """
        context = GpuMemory(find_device(open_library(), device)).context
        with context.current():
            return cls.record(context, handle)

    @classmethod
    def record(cls, context: Context, stream: int, then: Callable[[], object] | None = None) -> Mark:
        """The end of what is in a stream now; the context is current."""
        driver = context.driver
        held = Held(context, driver.create_event(UNTIMED), driver.destroy_event)
        driver.record(held.handle, stream)
        return cls(context, held.handle, held, then)

    def follow(self, stream: int) -> None:
        """Let what is enqueued in the stream from now on wait for this point; the context is current."""
        if not self._is_done:
            self.context.driver.wait_for(self._handle, stream)

    def is_done(self) -> bool:
        """Whether the point has been passed, or cannot be."""
        with self._lock:
            if not self._is_done:
                try:
                    with self.context.current():
                        if not self.context.driver.has_happened(self._handle):
                            return False
                    if self._then is not None:
                        self._then()
                except DeviceError as error:
                    self.error = error
                self._is_done, self._then = True, None
            return True

    def wait(self, timeout: float | None) -> bool:
        """Wait for at most `timeout` seconds; whether it is done."""
        if timeout is None:
            while not self.is_done():
                self._wait()
            return True
        end, pause = time.monotonic() + timeout, SHORTEST
        while not self.is_done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST)
        return True

    def _wait(self) -> None:
        try:
            with self.context.current():
                self.context.driver.synchronize_event(self._handle)
        except DeviceError as error:
            with self._lock:
                if not self._is_done:
                    self.error, self._is_done, self._then = error, True, None
