"""A device's primary context: held once for the process, and made current for the calls that need it."""

from __future__ import annotations

import _thread
import os

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.driver import CAPTURE_RELAXED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.cuda.driver import Driver


class Context:
    """A primary context that this process retains; `hold_context` makes it.

    Attributes:
        driver: speaks to its device.
        handle: the driver's name for it.
        weights: those that sessions share in it, by hash and length.
        is_lost: another library reset the device, so that all that was in it is gone.
    """

    __slots__ = ("driver", "handle", "is_lost", "weights")

    def __init__(self, driver: Driver, handle: int) -> None:
        self.driver = driver
        self.handle = handle
        self.weights: dict[tuple[str, int], Any] = {}
        self.is_lost = False

    def current(self) -> Current:
        """For `with`: the calling thread's context meanwhile."""
        return Current(self)


class Current:
    """Makes a context the calling thread's, and gives back what the thread had.

    What is around keeps its own context: torch or others may use the same thread. Others may also be capturing a
    graph, here or in another thread, and the driver breaks such a capture where a thread allocates or waits. Nothing
    that is done in here belongs to another's graph, so the thread is relaxed meanwhile: the driver lets it pass.
    """

    __slots__ = ("_context", "_mode")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        """
        Raises:
            DeviceError: the context is lost, or the driver refuses.
        """
        if self._context.is_lost:  # what has its addresses and handles by now is somebody else's
            raise DeviceError("another library reset the GPU, and what the model had there is gone: load it again")
        driver = self._context.driver
        driver.push_context(self._context.handle)
        try:
            self._mode = driver.exchange_capture_mode(CAPTURE_RELAXED)
        except BaseException:
            driver.pop_context()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver = self._context.driver
        try:
            try:
                driver.exchange_capture_mode(self._mode)
            finally:
                driver.pop_context()
        except DeviceError:  # as every call fails after a kernel did, which is what the caller is to know
            if error is None:
                raise


# Python may drop a session in the midst of any call, and its weights are shared under this lock too.
lock = _thread.RLock()
_held: dict[tuple[int, int], Context] = {}


def hold_context(device: Device) -> Context:
    """The device's primary context, retained once and then kept until the process ends, which gives it back.

    Whoever gives back the last hold has the driver destroy it, and make it anew for the next session, which takes some
    tenths of a second. A forked child retains its own, as far as the driver lets it. Where another library reset the
    device, all that was in the context is gone, and what is answered is a new one.

    Raises:
        DeviceError: the driver cannot make it.
    """
    driver, place = device.driver, (os.getpid(), device.ordinal)
    with lock:
        held = _held.get(place)
        if held is not None and driver.context_is_active(device.handle):
            return held
        _held[place] = Context(driver, driver.retain_context(device.handle))
        if held is not None:
            held.is_lost = True
            driver.release_context(device.handle)  # a reset takes no hold back
        return _held[place]
