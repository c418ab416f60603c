"""A device's primary context: retained once per process, and made current for the calls that need it."""

from __future__ import annotations

import _thread
import os

from jitdelegate.errors import DeviceError, GpuError
from jitdelegate.runtime.cuda.driver import CAPTURE_RELAXED, StickyError, try_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.cuda.driver import Driver


class Context:
    """A primary context that this process retains; `hold_context` makes it.

    Attributes:
        driver: the driver of its device.
        handle: the driver's handle.
        weights: weights that sessions share in it, by hash, length, and the hash of the
            weights in which a part of them lies.
        is_lost: whether another library has reset the device and so destroyed everything in the context.
        failure: why the device refuses all further work of this process; "" if it does not.
    """

    __slots__ = ("driver", "failure", "handle", "is_lost", "weights")

    def __init__(self, driver: Driver, handle: int) -> None:
        self.driver = driver
        self.handle = handle
        self.weights: dict[tuple[str, int, str], Any] = {}
        self.is_lost = False
        self.failure = ""

    def note(self, error: BaseException | None) -> None:
        """Note an error if nothing works after it."""
        if isinstance(error, StickyError) and not self.failure:
            self.failure = (
                f"the GPU has failed in this process ({error}), and after such an error CUDA refuses all further work"
                " of a process: end it and start anew; compute-sanitizer names the kernel that was at fault"
            )
            self.weights.clear()

    def current(self) -> Current:
        """For `with`: makes this context the calling thread's context."""
        return Current(self)


class Current:
    """Makes a context the calling thread's context, and restores the former one.

    torch and other libraries may use the same thread with their own context. They may also be capturing a graph, in
    this thread or another, and the driver breaks such a capture when a thread allocates or waits. Nothing in the `with`
    block belongs to such a graph, so the thread's capture mode is relaxed meanwhile, which the driver allows.
    """

    __slots__ = ("_context", "_mode")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        """
        Raises:
            GpuError: the context is lost, or the driver refuses.
        """
        if self._context.is_lost:  # its addresses and handles may belong to others now
            raise GpuError("another library reset the GPU, and what the model had there is gone: load it again")
        if self._context.failure:
            raise GpuError(self._context.failure)
        driver = self._context.driver
        try:
            driver.push_context(self._context.handle)
            try:
                self._mode = driver.exchange_capture_mode(CAPTURE_RELAXED)
            except BaseException:
                try_release(driver.pop_context)
                raise
        except DeviceError as error:
            self._context.note(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver = self._context.driver
        self._context.note(error)
        try:
            try:
                driver.exchange_capture_mode(self._mode)
            except DeviceError:
                try_release(driver.pop_context)
                raise
            driver.pop_context()
        except DeviceError as failure:  # after a kernel fails, every call fails; the caller should see the first error
            self._context.note(failure)
            if error is None:
                raise


# Python may free a session during any call, and its weights are shared under this lock too.
lock = _thread.RLock()
_held: dict[tuple[int, int], Context] = {}


def refuse_failed(device: Device) -> None:
    """
    Raises:
        DeviceError: the device refuses all further work of this process.
    """
    held = _held.get((os.getpid(), device.ordinal))
    if held is not None and held.failure:
        raise GpuError(held.failure)


def hold_context(device: Device) -> Context:
    """The device's primary context, retained once and kept until the process ends.

    If the context were released, the driver would destroy it, and create it again for the next session, which takes
    tenths of a second. A forked child retains its own context, if the driver allows it. After another library has reset
    the device, the result is a new context.

    Raises:
        DeviceError: the driver cannot create the context, or the device refuses all work of this process.
    """
    refuse_failed(device)
    driver, key = device.driver, (os.getpid(), device.ordinal)
    with lock:
        held = _held.get(key)
        if held is not None and driver.context_is_active(device.handle):
            return held
        _held[key] = Context(driver, driver.retain_context(device.handle))
        if held is not None:
            held.is_lost = True
            driver.release_context(device.handle)  # a reset does not release it
        return _held[key]
