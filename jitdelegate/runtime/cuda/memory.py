"""Memory that callers share with a GPU: theirs on the GPU, pinned memory of the host, and buffers of OpenGL."""

from __future__ import annotations

import ctypes
import os
import sys

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.driver import (
    DEVICE_MEMORY,
    LEGACY_STREAM,
    POINTER_CONTEXT,
    POINTER_DEVICE,
    POINTER_MEMORY,
    UNTIMED,
    try_release,
)
from jitdelegate.runtime.cuda_array import CudaArray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jitdelegate.program.program import Port
    from jitdelegate.runtime.cuda.context import Context
    from jitdelegate.runtime.cuda.device import Device


class Held:
    """A resource of the driver, released with this object.

    Attributes:
        context: where it belongs.
        handle: the driver's, or an address.
    """

    __slots__ = ("_process", "_release", "context", "handle")
    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects
    _try = staticmethod(try_release)
    _own_process = staticmethod(os.getpid)

    def __init__(self, context: Context, handle: int, release: Callable[[int], None]) -> None:
        self.context = context
        self.handle = handle
        self._release = release
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._is_ending() or self._process != self._own_process() or self.context.is_lost:
            return  # it is gone, or another process's
        self._try(self._release_now, self.handle)

    def _release_now(self, handle: int) -> None:
        with self.context.current():
            self._release(handle)


class DevicePlace(Place):
    """Memory of a GPU, the caller's or our own.

    Attributes:
        context: the context that it belongs to.
    """

    __slots__ = ("_event", "_follows_default", "context")

    def __init__(
        self,
        context: Context,
        gpu: int,
        address: int,
        nbytes: int,
        owner: object,
        *,
        event: Held | None = None,
        follows_default: bool = False,
        is_readonly: bool = False,
    ) -> None:
        """
        Args:
            event: recorded after the producer's work on the memory.
            follows_default: whether the producer goes on to work on it in the default stream.
        """
        super().__init__(address, nbytes, owner, gpu, is_readonly=is_readonly)
        self.context = context
        self._event = event
        self._follows_default = follows_default

    def acquire(self, stream: int) -> int:
        """The address, for work that is enqueued in the stream from now on, which follows the producer's; for
        `release`. The context is current."""
        driver = self.context.driver
        if self._event is not None:
            if self._follows_default:
                if driver.is_capturing(LEGACY_STREAM):
                    raise DeviceError(
                        "a CUDA graph is being captured, and runs on memory of other libraries follow the default"
                        " stream, which no capture allows; run the model before or after the capture"
                    )
                driver.record(self._event.handle, LEGACY_STREAM)
            driver.wait_for(self._event.handle, stream)
        return self.address

    def hand_over(self, stream: int) -> bool:
        """Let what another library enqueues in a stream of its own from now on follow the producer's work; whether
        there may be any.

        Raises:
            DeviceError: the driver does not know the stream, or it is being captured.
        """
        if self._event is not None:
            with self.context.current():
                self.acquire(stream)
        return self._event is not None

    def release(self, stream: int) -> None:
        """The work in the stream that needs the address has been enqueued."""

    def load(self, target: int, nbytes: int) -> None:
        with self.context.current():
            self._copy(self.context.driver.download, nbytes, lambda address: (target, address))

    def store(self, source: int, nbytes: int) -> None:
        with self.context.current():
            self._copy(self.context.driver.upload, nbytes, lambda address: (address, source))

    def _copy(self, copy: Callable[..., None], nbytes: int, ends: Callable[[int], tuple[int, int]]) -> None:
        """A copy in the default stream, which is waited for."""
        if nbytes:
            address = self.acquire(LEGACY_STREAM)
            try:
                copy(*ends(address), nbytes, LEGACY_STREAM)
            except DeviceError:
                try_release(self.release, LEGACY_STREAM)
                raise
            self.release(LEGACY_STREAM)
            self.context.driver.synchronize(LEGACY_STREAM)


class GlPlace(DevicePlace):
    """A part of an OpenGL buffer, which has an address from `acquire` to `release` only."""

    __slots__ = ("_offset", "_resource")

    def __init__(self, context: Context, gpu: int, resource: Held, offset: int, nbytes: int) -> None:
        super().__init__(context, gpu, 0, nbytes, resource)
        self._resource = resource
        self._offset = offset

    def is_at(self, other: Place) -> bool:
        return isinstance(other, GlPlace) and (other._resource, other._offset) == (self._resource, self._offset)

    def overlaps(self, other: Place) -> bool:
        if not (isinstance(other, GlPlace) and other._resource is self._resource):
            return False
        return self._offset < other._offset + other.nbytes and other._offset < self._offset + self.nbytes

    def shared_address(self) -> int:
        raise BufferError("an OpenGL buffer has an address only during runs, and cannot be shared further")

    def acquire(self, stream: int) -> int:
        """See `DevicePlace.acquire`; an OpenGL context that shares the buffer is current in this thread.

        Raises:
            DeviceError: it is not, or the buffer is too short.
        """
        address, nbytes = self.context.driver.map_resource(self._resource.handle, stream)
        if nbytes < self._offset + self.nbytes:
            try_release(self.release, stream)
            raise DeviceError(
                f"the OpenGL buffer has {nbytes} bytes, expected {self.nbytes} from byte {self._offset} on"
            )
        return address + self._offset

    def release(self, stream: int) -> None:
        self.context.driver.unmap_resource(self._resource.handle, stream)


class GpuMemory:
    """Makes places in the memory of one GPU and in pinned memory for it.

    Attributes:
        gpu: its number.
        driver: the driver.
        context: its primary context.
    """

    __slots__ = ("context", "driver", "gpu")

    def __init__(self, device: Device, context: Context | None = None) -> None:
        """
        Raises:
            DeviceError: the driver cannot make the context.
        """
        self.gpu = device.ordinal
        self.driver = device.driver
        self.context = context or hold_context(device)

    def pinned_place(self, nbytes: int) -> Place:
        """New zeroed memory of the host that the GPU reads and writes by itself.

        Raises:
            DeviceError: there is not so much.
        """
        with self.context.current():
            held = Held(self.context, self.driver.allocate_pinned(max(nbytes, 1)), self.driver.free_pinned)
        ctypes.memset(held.handle, 0, nbytes)
        return Place(held.handle, nbytes, held)

    def device_place(self, nbytes: int) -> DevicePlace:
        """New zeroed memory of the GPU.

        Raises:
            DeviceError: there is not so much.
        """
        driver = self.driver
        with self.context.current():
            held = Held(self.context, driver.allocate(max(nbytes, 1)), driver.free)
            driver.clear(held.handle, max(nbytes, 1), LEGACY_STREAM)
            driver.synchronize(LEGACY_STREAM)
        return DevicePlace(self.context, self.gpu, held.handle, nbytes, held)

    def foreign_place(
        self, address: int, nbytes: int, owner: object, *, is_readonly: bool, stream: int | None
    ) -> DevicePlace:
        """Memory of another library.

        Args:
            owner: keeps the memory alive.
            stream: the stream of the library's work on the memory; None if there is none.
        Raises:
            DeviceError: the memory is not this GPU's or another context's, or the driver does not know the stream.
        """
        event = None
        with self.context.current():
            if nbytes:
                self._check(address)
            if stream is not None:
                driver = self.driver
                event = Held(self.context, driver.create_event(UNTIMED), driver.destroy_event)
                driver.record(event.handle, stream)
        follows_default = stream == LEGACY_STREAM
        return DevicePlace(
            self.context,
            self.gpu,
            address,
            nbytes,
            owner,
            event=event,
            follows_default=follows_default,
            is_readonly=is_readonly,
        )

    def array_place(self, value: Any, port: Port) -> DevicePlace:
        """The memory of an object with `__cuda_array_interface__`, as an input of a program.

        Raises:
            TensorError: it is not dense, or has another type or shape.
            DeviceError: as for `foreign_place`.
        """
        array = CudaArray(value)
        if (array.dtype, array.shape) != (port.dtype, port.shape):
            raise TensorError(
                f"tensor {port.title!r}: found {array.dtype}{list(array.shape)},"
                f" expected {port.dtype}{list(port.shape)}"
            )
        return self.foreign_place(array.address, port.nbytes, value, is_readonly=array.is_readonly, stream=array.stream)

    def _check(self, address: int) -> None:
        kind = self.driver.pointer_attribute(POINTER_MEMORY, address)
        if kind != DEVICE_MEMORY:
            raise DeviceError(f"{address:#x} is no address of GPU memory of this process")
        gpu = self.driver.pointer_attribute(POINTER_DEVICE, address)
        if gpu != self.gpu:
            raise DeviceError(f"{address:#x} is memory of GPU {gpu}, expected GPU {self.gpu}")
        context = self.driver.pointer_attribute(POINTER_CONTEXT, address)  # pools have none
        if context not in (0, self.context.handle):
            raise DeviceError(f"{address:#x} belongs to another CUDA context, expected the primary one of GPU {gpu}")

    def gl_place(self, name: int, offset: int, nbytes: int) -> GlPlace:
        """A part of the OpenGL buffer with this name, in the thread's OpenGL context.

        Raises:
            DeviceError: the driver refuses it.
        """
        with self.context.current():
            held = Held(self.context, self.driver.register_gl_buffer(name), self.driver.unregister)
        return GlPlace(self.context, self.gpu, held, offset, nbytes)
