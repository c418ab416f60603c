"""NVIDIA's driver, libcuda, through ctypes: the calls for sessions. Failures are DeviceErrors that name the call.

Handles and addresses are integers. Where a caller must release the result of a method, the method's docstring names the
method that releases it. Nothing in this module keeps resources: `context.py` and the sessions do.
"""

from __future__ import annotations

import ctypes
from struct import Struct

from jitdelegate.errors import DeviceError, GpuError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

NEEDED_VERSION = 12000
"""As cuDriverGetVersion returns it: 1000 * major + 10 * minor. Code for sm_90 came with 12.0; every call is older."""

_int, _unsigned, _size, _byte = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_ubyte
_pointer, _text, _device_pointer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
# Exported names: cuda.h maps the plain ones to those with _v2. An output comes first where CUDA has it first.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_unsigned,),
    "cuDriverGetVersion": (_pointer,),
    "cuGetErrorName": (_int, _pointer),
    "cuGetErrorString": (_int, _pointer),
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, _int),
    "cuDeviceGetName": (_pointer, _int, _int),
    "cuDeviceGetAttribute": (_pointer, _int, _int),
    "cuDevicePrimaryCtxGetState": (_int, _pointer, _pointer),
    "cuDevicePrimaryCtxRetain": (_pointer, _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_pointer,),
    "cuModuleLoadData": (_pointer, _pointer),
    "cuModuleUnload": (_pointer,),
    "cuModuleGetFunction": (_pointer, _pointer, _text),
    "cuFuncSetAttribute": (_pointer, _int, _int),
    "cuLaunchKernel": (_pointer, *(7 * (_unsigned,)), _pointer, _pointer, _pointer),
    "cuLaunchKernelEx": (_pointer, _pointer, _pointer, _pointer),
    "cuMemGetInfo_v2": (_pointer, _pointer),
    "cuMemAlloc_v2": (_pointer, _size),
    "cuMemFree_v2": (_device_pointer,),
    "cuMemHostAlloc": (_pointer, _size, _unsigned),
    "cuMemFreeHost": (_pointer,),
    "cuMemcpyHtoDAsync_v2": (_device_pointer, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _device_pointer, _size, _pointer),
    "cuMemcpyDtoDAsync_v2": (_device_pointer, _device_pointer, _size, _pointer),
    "cuMemsetD8Async": (_device_pointer, _byte, _size, _pointer),
    "cuStreamCreate": (_pointer, _unsigned),
    "cuStreamDestroy_v2": (_pointer,),
    "cuStreamSynchronize": (_pointer,),
    "cuThreadExchangeStreamCaptureMode": (_pointer,),
    "cuStreamIsCapturing": (_pointer, _pointer),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, _pointer),
    "cuGraphInstantiateWithFlags": (_pointer, _pointer, ctypes.c_ulonglong),
    "cuGraphDestroy": (_pointer,),
    "cuGraphExecDestroy": (_pointer,),
    "cuGraphUpload": (_pointer, _pointer),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuEventCreate": (_pointer, _unsigned),
    "cuEventDestroy_v2": (_pointer,),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventQuery": (_pointer,),
    "cuEventSynchronize": (_pointer,),
    "cuEventElapsedTime": (_pointer, _pointer, _pointer),
    "cuStreamWaitEvent": (_pointer, _pointer, _unsigned),
    "cuPointerGetAttribute": (_pointer, _int, _device_pointer),
}
OPENGL_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuGraphicsGLRegisterBuffer": (_pointer, _unsigned, _unsigned),
    "cuGraphicsUnregisterResource": (_pointer,),
    "cuGraphicsMapResources": (_unsigned, _pointer, _pointer),
    "cuGraphicsUnmapResources": (_unsigned, _pointer, _pointer),
    "cuGraphicsResourceGetMappedPointer_v2": (_pointer, _pointer, _pointer),
}
"""Functions that drivers of machines without graphics may lack."""
OUT_OF_MEMORY = 2
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76
MAX_DYNAMIC_SHARED_BYTES = 8
NON_BLOCKING = 1
CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = 1, 2
CAPTURE_IMPLICIT = 906
NOT_READY = 600
INVALID_VALUE = 1
STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Errors after which a GPU refuses all work of a process: of kernels (addresses, instructions, time limits, assertions)
and of hardware. Source: cuda.h, those after which "the process must be terminated"."""
LEGACY_STREAM = 1
"""The default stream, which other libraries use unless told otherwise."""
UNTIMED = 2
POINTER_CONTEXT, POINTER_MEMORY, POINTER_ON_DEVICE, POINTER_DEVICE = 1, 2, 3, 9
"""Facts about an address, by cuda.h's CUpointer_attribute."""
HOST_MEMORY, DEVICE_MEMORY = 1, 2
DEPENDENT_GRAPHS_VERSION = 12030
"""Lowest version of a driver whose graphs let launches begin before those that they follow have ended."""
LAUNCH_CONFIG = Struct("=7I4xQQI4x")
"""cuda.h's CUlaunchConfig: grid, block, shared bytes, stream, address and number of attributes."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
# cuda.h's CUlaunchAttribute: a number, and a union of 64 bytes
_BEGINS_EARLY = ctypes.create_string_buffer(Struct("=i4xi60x").pack(_PROGRAMMATIC_STREAM_SERIALIZATION, 1), 72)


CALLERS = frozenset({INVALID_VALUE, *range(205, 209), *range(210, 214), 219, 400, *range(900, 910)})
"""Errors for which a caller's memory, OpenGL context, stream or capture may be to blame; all others are the GPU's."""


class StickyError(GpuError):
    """After it, every call for this GPU fails, as long as the process lives."""


def declare(library: Any) -> None:
    """Set the prototypes of a library that ctypes opened.

    Raises:
        DeviceError: it lacks a function.
    """
    try:
        for name, arguments in PROTOTYPES.items():
            getattr(library, name).argtypes = arguments
    except AttributeError as error:
        raise DeviceError(f"the NVIDIA driver is too old: {error}") from error
    for name, arguments in OPENGL_PROTOTYPES.items():
        if hasattr(library, name):
            getattr(library, name).argtypes = arguments


class Driver:
    """libcuda, initialised.

    Attributes:
        version: CUDA version of the driver, as 1000 * major + 10 * minor.
    """

    __slots__ = ("_library", "version")

    def __init__(self, library: Any) -> None:
        """
        Args:
            library: libcuda, declared.
        Raises:
            DeviceError: the driver is too old, or finds no device.
        """
        self._library = library
        self.version = self._answer("cuDriverGetVersion", _int())
        if self.version < NEEDED_VERSION:
            raise DeviceError(
                f"the NVIDIA driver is too old: it speaks CUDA {dotted(self.version)},"
                f" expected at least {dotted(NEEDED_VERSION)}"
            )
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise self._failure(name, code)

    def _answer(self, name: str, result: Any, *arguments: Any) -> Any:
        """The value that a driver call writes to its first argument."""
        self._call(name, ctypes.byref(result), *arguments)
        return result.value

    def _failure(self, name: str, code: int) -> DeviceError:
        kind, sentence = (self._text(function, code) for function in ("cuGetErrorName", "cuGetErrorString"))
        error = StickyError if code in STICKY else DeviceError if code in CALLERS else GpuError
        return error(f"{name} failed with {kind or 'an unknown error'} ({code}): {sentence or 'no text for it'}")

    def _text(self, function: str, code: int) -> str:
        text = _text()
        getattr(self._library, function)(code, ctypes.byref(text))
        return (text.value or b"").decode("utf-8", "replace")

    def device_count(self) -> int:
        return int(self._answer("cuDeviceGetCount", _int()))

    def device(self, ordinal: int) -> int:
        """The handle of the device with this number."""
        return int(self._answer("cuDeviceGet", _int(), ordinal))

    def device_name(self, device: int) -> str:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), device)
        return name.value.decode("utf-8", "replace")

    def capability(self, device: int) -> tuple[int, int]:
        """Major and minor number of the device's architecture."""
        return self.attribute(CAPABILITY_MAJOR, device), self.attribute(CAPABILITY_MINOR, device)

    def multiprocessors(self, device: int) -> int:
        """Number of multiprocessors of the device."""
        return self.attribute(MULTIPROCESSORS, device)

    def attribute(self, number: int, device: int) -> int:
        """An attribute of the device, by cuda.h's CUdevice_attribute."""
        return int(self._answer("cuDeviceGetAttribute", _int(), number, device))

    def context_is_active(self, device: int) -> bool:
        """Whether the device's primary context exists: retained by anyone, and not reset since."""
        flags, active = _unsigned(), _int()
        self._call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
        return bool(active.value)

    def retain_context(self, device: int) -> int:
        """The device's primary context, which the whole process shares; for `release_context`."""
        return int(self._answer("cuDevicePrimaryCtxRetain", _pointer(), device))

    def release_context(self, device: int) -> None:
        self._call("cuDevicePrimaryCtxRelease_v2", device)

    def push_context(self, context: int) -> None:
        """Make a context the calling thread's context, until `pop_context`."""
        self._call("cuCtxPushCurrent_v2", context)

    def pop_context(self) -> None:
        self._call("cuCtxPopCurrent_v2", ctypes.byref(_pointer()))

    def load_module(self, image: int) -> int:
        """The module of the CUDA binary at this address, which is copied; for `unload_module`."""
        return int(self._answer("cuModuleLoadData", _pointer(), image))

    def unload_module(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        return int(self._answer("cuModuleGetFunction", _pointer(), module, name.encode()))

    def allow_shared_bytes(self, function: int, nbytes: int) -> None:
        """Allow launches with this much dynamic shared memory; 48 KiB in all are always allowed."""
        self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED_BYTES, nbytes)

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: int,
        stream: int,
        *,
        is_dependent: bool = False,
    ) -> None:
        """Enqueue a kernel.

        Args:
            arguments: the address of one pointer per argument, each to its value.
            is_dependent: it may begin before the launch before it in the stream has ended, for which its kernel waits.
        """
        if is_dependent:
            config = LAUNCH_CONFIG.pack(*grid, *block, shared_bytes, stream, ctypes.addressof(_BEGINS_EARLY), 1)
            self._call("cuLaunchKernelEx", config, function, arguments, None)
        else:
            self._call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, arguments, None)

    def allocate(self, nbytes: int) -> int:
        """The address of device memory, at a multiple of 256 and not zeroed; for `free`.

        Raises:
            GpuError: out of memory; says how much was requested and how much is free.
        """
        address = _device_pointer()
        code = self._library.cuMemAlloc_v2(ctypes.byref(address), nbytes)
        if code == OUT_OF_MEMORY:
            free, total = self.memory()
            raise GpuError(f"no GPU memory of {nbytes} bytes: {free} of {total} bytes are free")
        if code:
            raise self._failure("cuMemAlloc_v2", code)
        return address.value

    def memory(self) -> tuple[int, int]:
        """(free bytes, bytes) of the current context's device."""
        free, total = _size(), _size()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address)

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of host memory that the GPU accesses directly; for `free_pinned`."""
        address = _pointer()
        code = self._library.cuMemHostAlloc(ctypes.byref(address), nbytes, 0)
        if code == OUT_OF_MEMORY:
            raise GpuError(f"no pinned host memory of {nbytes} bytes")
        if code:
            raise self._failure("cuMemHostAlloc", code)
        return int(address.value or 0)

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy from the host to the device."""
        self._call("cuMemcpyHtoDAsync_v2", target, source, nbytes, stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy from the device to the host."""
        self._call("cuMemcpyDtoHAsync_v2", target, source, nbytes, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy within the device."""
        self._call("cuMemcpyDtoDAsync_v2", target, source, nbytes, stream)

    def clear(self, target: int, nbytes: int, stream: int, byte: int = 0) -> None:
        """Enqueue equal bytes for the device's memory."""
        self._call("cuMemsetD8Async", target, byte, nbytes, stream)

    def create_stream(self) -> int:
        """A stream that does not wait for the default one; for `destroy_stream`."""
        return int(self._answer("cuStreamCreate", _pointer(), NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy_v2", stream)

    def synchronize(self, stream: int) -> None:
        """Wait for all enqueued work; raises errors of this work."""
        self._call("cuStreamSynchronize", stream)

    def exchange_capture_mode(self, mode: int) -> int:
        """Set the calling thread's capture mode, and return the former one."""
        result = _int(mode)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(result))
        return result.value

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is being captured into a graph, or its capture is broken."""
        status = _int()
        code = self._library.cuStreamIsCapturing(stream, ctypes.byref(status))
        if code == CAPTURE_IMPLICIT:  # the default stream, while one that waits for it is captured
            return True
        if code:
            raise self._failure("cuStreamIsCapturing", code)
        return bool(status.value)

    def begin_capture(self, stream: int) -> None:
        """Capture the work that this thread enqueues into a graph instead of running it; calls of other threads neither
        break the capture nor are affected."""
        self._call("cuStreamBeginCapture_v2", stream, CAPTURE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """The captured graph; for `destroy_graph`."""
        graph = _pointer()
        self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        return int(graph.value or 0)

    def destroy_graph(self, graph: int) -> None:
        self._call("cuGraphDestroy", graph)

    def instantiate(self, graph: int) -> int:
        """An executable graph; for `destroy_executable`. The graph itself may be destroyed."""
        return int(self._answer("cuGraphInstantiateWithFlags", _pointer(), graph, 0))

    def destroy_executable(self, executable: int) -> None:
        self._call("cuGraphExecDestroy", executable)

    def upload_graph(self, executable: int, stream: int) -> None:
        """Prepare the device for an executable graph now instead of at its first run."""
        self._call("cuGraphUpload", executable, stream)

    def run_graph(self, executable: int, stream: int) -> None:
        """Enqueue one run of a graph."""
        self._call("cuGraphLaunch", executable, stream)

    def create_event(self, flags: int = 0) -> int:
        """An event for a stream, timed unless `flags` is UNTIMED; for `destroy_event`."""
        return int(self._answer("cuEventCreate", _pointer(), flags))

    def destroy_event(self, event: int) -> None:
        self._call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def has_happened(self, event: int) -> bool:
        """Whether the device has passed an event; raises errors of the work before it."""
        code = self._library.cuEventQuery(event)
        if code not in (0, NOT_READY):
            raise self._failure("cuEventQuery", code)
        return not code

    def synchronize_event(self, event: int) -> None:
        """Wait until the device has passed an event; raises errors of the work before it."""
        self._call("cuEventSynchronize", event)

    def wait_for(self, event: int, stream: int) -> None:
        """Let what is enqueued from now on wait for what the event was recorded after."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def pointer_attribute(self, number: int, address: int) -> int:
        """A fact about an address; 0 where the driver does not know it."""
        value = ctypes.c_uint64()
        code = self._library.cuPointerGetAttribute(ctypes.byref(value), number, address)
        if code == INVALID_VALUE:
            return 0
        if code:
            raise self._failure("cuPointerGetAttribute", code)
        return value.value

    def mapped(self, address: int) -> int:
        """The address by which kernels reach pinned memory of the host; 0 if they do not."""
        return self.pointer_attribute(POINTER_ON_DEVICE, address)

    def register_gl_buffer(self, name: int) -> int:
        """An OpenGL buffer of the thread's OpenGL context for CUDA; for `unregister`.

        Raises:
            DeviceError: the driver knows no OpenGL, or no such buffer.
        """
        if not hasattr(self._library, "cuGraphicsGLRegisterBuffer"):
            raise DeviceError("this NVIDIA driver does not share buffers with OpenGL")
        return int(self._answer("cuGraphicsGLRegisterBuffer", _pointer(), name, 0))

    def unregister(self, resource: int) -> None:
        self._call("cuGraphicsUnregisterResource", resource)

    def map_resource(self, resource: int, stream: int) -> tuple[int, int]:
        """(address, bytes) of a registered buffer, for work in the stream, which follows OpenGL's; for `unmap_resource`
        in the same stream."""
        self._call("cuGraphicsMapResources", 1, ctypes.byref(_pointer(resource)), stream)
        address, nbytes = _device_pointer(), _size()
        try:
            self._call("cuGraphicsResourceGetMappedPointer_v2", ctypes.byref(address), ctypes.byref(nbytes), resource)
        except DeviceError:
            try_release(self.unmap_resource, resource, stream)
            raise
        return address.value, nbytes.value

    def unmap_resource(self, resource: int, stream: int) -> None:
        """Give the buffer back to OpenGL, whose work follows the stream's."""
        self._call("cuGraphicsUnmapResources", 1, ctypes.byref(_pointer(resource)), stream)

    def seconds_between(self, start: int, end: int) -> float:
        """Seconds between two recorded events that the device has passed."""
        return float(self._answer("cuEventElapsedTime", ctypes.c_float(), start, end)) / 1e3


def try_release(release: Callable[..., object], *handles: Any) -> None:
    """Release a resource and ignore failures, which matter less than an earlier error, or cannot be handled."""
    try:
        release(*handles)
    except DeviceError:
        return


def dotted(version: int) -> str:
    """12.4 for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"
