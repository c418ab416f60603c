# ruff: noqa: N802 - the functions are called as in libcuda
"""libcuda as a Python object: bookkeeping, streams that run when they are waited for, graphs and what breaks their
captures, and errors on demand."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from tests.gpu.stub.capture import (
    CAPTURE_GLOBAL,
    CAPTURE_RELAXED,
    CAPTURE_THREAD_LOCAL,
    Capture,
    Node,
    Stream,
    Watch,
    Work,
    is_row,
    ordered,
)
from tests.gpu.stub.cubins import has_kernel, image_at
from tests.gpu.stub.handles import DeviceRange, Event, Executable, Function, GlBuffer, Graph, PinnedRange
from tests.gpu.stub.memory import DeviceMemory, HostMemory

Value = int | float


@dataclass(frozen=True)
class Launched:
    """A launch as the device sees it.

    Attributes:
        kinds: those of its arguments, as in `program.Launch`.
        is_dependent: whether it may begin while the launch before it still runs.
    """

    image: bytes
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    values: list[Value]
    kinds: str
    is_dependent: bool = False


Execute = Callable[[Launched, DeviceMemory], None]

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE = 1, 2, 3, 100, 101
INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS = 200, 201, 400, 500, 700
INVALID_GRAPHICS_CONTEXT, NOT_READY = 219, 600
CONTEXT_IS_DESTROYED, LAUNCH_FAILED = 709, 719
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_ISOLATION = 900, 901, 904, 905
CAPTURE_IMPLICIT, CAPTURE_WRONG_THREAD = 906, 908
ERRORS = {
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    NOT_INITIALIZED: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    NO_DEVICE: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_IMAGE: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    INVALID_CONTEXT: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    INVALID_GRAPHICS_CONTEXT: ("CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid OpenGL or DirectX context"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    NOT_READY: ("CUDA_ERROR_NOT_READY", "device not ready"),
    ILLEGAL_ADDRESS: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    CONTEXT_IS_DESTROYED: ("CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"),
    LAUNCH_FAILED: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    CAPTURE_UNSUPPORTED: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
    CAPTURE_INVALIDATED: ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error"),
    CAPTURE_UNJOINED: ("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined to the first one"),
    CAPTURE_ISOLATION: ("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work"),
    CAPTURE_IMPLICIT: ("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on it"),
    CAPTURE_WRONG_THREAD: ("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture"),
}
WITHOUT_INITIALISATION = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"}
WITHOUT_CONTEXT = {
    *("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"),
    *("cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2"),
    *("cuThreadExchangeStreamCaptureMode", "cuPointerGetAttribute"),
}
"""Everything else works on what is current in the calling thread."""
UNSAFE = {
    *("cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuModuleLoadData", "cuModuleUnload"),
    *("cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery"),
}
"""What breaks captures, as the mode of the capture and of the calling thread say: allocating, freeing, waiting."""
_FORMATS = {"a": "<Q", "p": "<Q", "w": "<Q", "s": "<Q", "i": "<i", "f": "<f"}


class CudaError(Exception):
    """What a function answers instead of 0."""


def entry(function: Callable[..., None]) -> Callable[..., int]:
    """A function of libcuda: counted, refused where the test wants it, 0 where it ends well."""
    name = function.__name__

    @wraps(function)
    def call(library: Library, *arguments: Any) -> int:
        with library.lock:
            try:
                library.enter(name)
                function(library, *arguments)
            except CudaError as error:
                if name == "cuStreamEndCapture":  # which ends a capture also where it fails
                    library.live[arguments[0]].capture.end()
                return int(error.args[0])
        return 0

    return call


class Library:
    """One process's libcuda.

    Attributes:
        calls: how often each function was called.
        live: handle to what it stands for, of all that has not been given back.
        contexts: how often the primary context is retained.
        is_active: whether the primary context is there.
        memory: the device's.
        is_failed: whether a kernel used an address that is not there, after which nothing works.
        is_halted: whether the device does nothing that nobody waits for.
        milliseconds: what launches of a kernel take, by its name, besides the one that everything takes.
        launches: how often each kernel ran.
        choose: takes one of the nodes of a graph that could run next; usually the first one captured.
    """

    def __init__(
        self,
        execute: Execute,
        kinds: Mapping[str, str],
        *,
        memory: DeviceMemory | None = None,
        capability: tuple[int, int] = (9, 0),
        multiprocessors: int = 132,
        version: int = 13000,
        devices: int = 1,
        total_bytes: int = 1 << 30,
        name: str = "Stub 9000",
        maps_pinned: bool = False,
    ) -> None:
        """
        Args:
            execute: runs a kernel.
            kinds: kernel name to its arguments' kinds, as in `program.Launch`.
            maps_pinned: whether kernels reach pinned memory of the host.
        """
        self.execute = execute
        self.kinds = kinds
        self.memory: DeviceMemory = HostMemory() if memory is None else memory
        self.attributes = {16: multiprocessors, 75: capability[0], 76: capability[1]}
        self.version = version
        self.devices = devices
        self.free_bytes = self.total_bytes = total_bytes
        self.name = name
        self.maps_pinned = maps_pinned
        self.calls: Counter[str] = Counter()
        self.live: dict[int, Any] = {}
        self.contexts = 0
        self.is_active = False
        self.lock = threading.RLock()
        self.is_failed = self.is_halted = False
        self.milliseconds: dict[str, float] = {}
        self.launches: Counter[str] = Counter()
        self.choose: Callable[[Sequence[Node]], Node] = lambda ready: ready[0]
        self.streams = {1: Stream(), 2: Stream()}  # the default ones, which are always there
        self.gl_buffers: dict[int, GlBuffer] = {}
        self._functions: dict[int, Function] = {}  # they go with their module, nobody gives them back
        self._failures: dict[str, list[int]] = {}
        self._current = threading.local()
        self._process: int | None = None
        self._next_handle = 0x1000
        self._clock = 0.0

    def fail(self, name: str, code: int, *, after: int = 0, times: int = 1) -> None:
        """Let the function answer `code`, `times` times, after having worked `after` times more."""
        self._failures[name] = [0] * after + [code] * times

    def leaks(self) -> list[str]:
        """What has not been given back, but for the context, which a process keeps."""
        return [type(thing).__name__ for thing in self.live.values()]

    def reset(self) -> None:
        """As another library's cuDevicePrimaryCtxReset: all is gone, and who retained the context still counts."""
        self.live.clear()
        self.is_active = False

    def enter(self, name: str) -> None:
        self.calls[name] += 1
        planned = self._failures.get(name)
        code = planned.pop(0) if planned else 0
        if code:
            raise CudaError(code)
        if name not in WITHOUT_INITIALISATION:
            self._expect(self._process == os.getpid(), NOT_INITIALIZED)  # also in a forked child
        if name not in WITHOUT_INITIALISATION | WITHOUT_CONTEXT:
            self._expect(self.contexts and getattr(self._current, "stack", []), INVALID_CONTEXT)
            self._expect(self.is_active, CONTEXT_IS_DESTROYED)
            self._expect(not self.is_failed, ILLEGAL_ADDRESS)
        if name in UNSAFE:
            self._break_captures()

    def _break_captures(self) -> None:
        """Refuse what a capture forbids, and break that capture."""
        mode, me = getattr(self._current, "mode", CAPTURE_GLOBAL), threading.get_ident()
        captures = (thing.capture for thing in self.live.values() if isinstance(thing, Stream))
        broken = [capture for capture in captures if capture and capture.forbids(mode, me)]
        for capture in broken:
            capture.is_broken = True
        self._expect(not broken, CAPTURE_UNSUPPORTED)

    @staticmethod
    def _expect(truth: object, code: int) -> None:
        if not truth:
            raise CudaError(code)

    def _keep(self, out: Any, thing: Any) -> None:
        self._next_handle += 16
        self.live[self._next_handle] = thing
        out._obj.value = self._next_handle

    def _find(self, handle: int, kind: type) -> Any:
        thing = self.streams.get(handle) or self.live.get(handle)
        self._expect(isinstance(thing, kind), INVALID_HANDLE)
        return thing

    def _drop(self, handle: int, kind: type) -> None:
        self._find(handle, kind)
        del self.live[handle]

    def _enqueue(self, stream: int, run: Work, *, is_launch: bool = False, is_dependent: bool = False) -> None:
        target: Stream = self._find(stream, Stream)
        self._expect(not (target.capture and target.capture.is_broken), CAPTURE_INVALIDATED)
        if not target.capture:
            self._expect(not is_dependent, INVALID_VALUE)
            target.pending.append(run)
            return
        # a node that begins early waits for one kernel; anything else it would not wait for
        follows_kernel = [node.is_launch for node in target.ends] == [True]
        self._expect(follows_kernel or not is_dependent, INVALID_VALUE)
        target.capture.add(target, run, is_launch=is_launch)

    @entry
    def cuInit(self, flags: int) -> None:
        self._expect(self._process in (None, os.getpid()), NOT_INITIALIZED)
        self._expect(self.devices, NO_DEVICE)
        self._process = os.getpid()

    @entry
    def cuDriverGetVersion(self, out: Any) -> None:
        out._obj.value = self.version

    @entry
    def cuGetErrorName(self, code: int, out: Any) -> None:
        out._obj.value = ERRORS[code][0].encode()

    @entry
    def cuGetErrorString(self, code: int, out: Any) -> None:
        out._obj.value = ERRORS[code][1].encode()

    @entry
    def cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = self.devices

    @entry
    def cuDeviceGet(self, out: Any, ordinal: int) -> None:
        self._expect(ordinal < self.devices, INVALID_DEVICE)
        out._obj.value = ordinal

    @entry
    def cuDeviceGetName(self, buffer: Any, length: int, device: int) -> None:
        buffer.value = self.name.encode()[: length - 1]

    @entry
    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> None:
        out._obj.value = self.attributes[attribute]

    @entry
    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> None:
        flags._obj.value, active._obj.value = 0, int(self.is_active)

    @entry
    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        self.contexts += 1
        self.is_active = True
        out._obj.value = 0xC0 + device

    @entry
    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        self._expect(self.contexts, INVALID_CONTEXT)
        self.contexts -= 1
        self.is_active = self.contexts > 0

    @entry
    def cuCtxPushCurrent_v2(self, context: int) -> None:
        self._expect(self.contexts, INVALID_CONTEXT)
        self._current.stack = [*getattr(self._current, "stack", []), context]

    @entry
    def cuCtxPopCurrent_v2(self, out: Any) -> None:
        out._obj.value = self._current.stack.pop()

    @entry
    def cuModuleLoadData(self, out: Any, address: int) -> None:
        image = image_at(address)
        self._expect(image, INVALID_IMAGE)
        self._keep(out, image)

    @entry
    def cuModuleUnload(self, module: int) -> None:
        self._drop(module, bytes)

    @entry
    def cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> None:
        image = self._find(module, bytes)
        self._expect(has_kernel(image, name.decode()), NOT_FOUND)
        self._next_handle += 16
        self._functions[self._next_handle] = Function(image, name.decode())
        out._obj.value = self._next_handle

    @entry
    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self._expect(attribute == 8, INVALID_VALUE)
        self._functions[function].most_shared_bytes = value

    @entry
    def cuLaunchKernel(self, function: int, *rest: Any) -> None:
        *sizes, shared_bytes, stream, arguments, extra = rest
        self._launch(function, sizes, shared_bytes, stream, arguments, extra)

    @entry
    def cuLaunchKernelEx(self, config: bytes, function: int, arguments: int, extra: Any) -> None:
        """With one attribute: that the launch may begin before those before it in the stream have ended."""
        *sizes, shared_bytes, stream, attributes, count = struct.unpack("=7I4xQQI4x", config)
        self._expect(count == 1, INVALID_VALUE)
        number, value = struct.unpack("=i4xi60x", ctypes.string_at(attributes, 72))
        self._expect((number, value) == (6, 1), INVALID_VALUE)
        self._launch(function, sizes, shared_bytes, stream, arguments, extra, is_dependent=True)

    def _launch(
        self,
        function: int,
        sizes: Sequence[int],
        shared_bytes: int,
        stream: int,
        arguments: int,
        extra: Any,
        *,
        is_dependent: bool = False,
    ) -> None:
        known = self._functions[function]
        self._expect(all(sizes) and extra is None and shared_bytes <= known.most_shared_bytes, INVALID_VALUE)
        kinds = self.kinds[known.name]
        x, y, z, width, height, depth = sizes
        grid, block = (x, y, z), (width, height, depth)
        values = self._values(arguments, kinds)
        launched = Launched(known.image, known.name, grid, block, shared_bytes, values, kinds, is_dependent)

        def run() -> None:
            with self._pinned_memory(values):
                self.execute(launched, self.memory)
            self._clock += self.milliseconds.get(known.name, 0.0)
            self.launches[known.name] += 1

        self._enqueue(stream, run, is_launch=True, is_dependent=is_dependent)

    @staticmethod
    def _values(arguments: int, kinds: str) -> list[Value]:
        """The values that the pointers at this address lead to, as the driver copies them at the launch."""
        pointers = (ctypes.c_uint64 * len(kinds)).from_address(arguments) if kinds else ()
        return [
            struct.unpack(_FORMATS[kind], ctypes.string_at(pointer, struct.calcsize(_FORMATS[kind])))[0]
            for kind, pointer in zip(kinds, pointers, strict=True)
        ]

    @entry
    def cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = self.free_bytes, self.total_bytes

    @entry
    def cuMemAlloc_v2(self, out: Any, nbytes: int) -> None:
        self._expect(nbytes, INVALID_VALUE)
        self._expect(nbytes <= self.free_bytes, OUT_OF_MEMORY)
        self.free_bytes -= nbytes
        address = self.memory.allocate(nbytes)
        self.live[address] = DeviceRange(nbytes, self._current.stack[-1])
        out._obj.value = address

    @entry
    def cuMemFree_v2(self, address: int) -> None:
        self.free_bytes += self._find(address, DeviceRange).nbytes
        self._drop(address, DeviceRange)
        self.memory.free(address)

    @entry
    def cuMemHostAlloc(self, out: Any, nbytes: int, flags: int) -> None:
        room = PinnedRange(ctypes.create_string_buffer(b"\x5a" * nbytes, nbytes))
        address = ctypes.addressof(room.buffer)
        self.live[address] = room
        out._obj.value = address

    @entry
    def cuMemFreeHost(self, address: int) -> None:
        room: PinnedRange = self._find(address, PinnedRange)
        if room.mapped:
            self.memory.free(room.mapped)
        self._drop(address, PinnedRange)

    @entry
    def cuMemcpyHtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._enqueue(stream, lambda: self.memory.write(target, ctypes.string_at(source, nbytes)))

    @entry
    def cuMemcpyDtoHAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> None:
        def run() -> None:
            with self._pinned_memory([source]):
                content = self.memory.read(source, nbytes)
            ctypes.memmove(target, content, nbytes)  # it may be pinned memory too

        self._enqueue(stream, run)

    @entry
    def cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._enqueue(stream, lambda: self.memory.write(target, self.memory.read(source, nbytes)))

    @entry
    def cuMemsetD8Async(self, target: int, value: int, nbytes: int, stream: int) -> None:
        def run() -> None:
            with self._pinned_memory([target]):
                self.memory.write(target, bytes([value]) * nbytes)

        self._enqueue(stream, run)

    @entry
    def cuStreamCreate(self, out: Any, flags: int) -> None:
        self._keep(out, Stream())

    @entry
    def cuStreamDestroy_v2(self, stream: int) -> None:
        self._drop(stream, Stream)

    @entry
    def cuStreamSynchronize(self, stream: int) -> None:
        target: Stream = self._find(stream, Stream)
        if target.capture:  # whatever the modes are
            target.capture.is_broken = True
            raise CudaError(CAPTURE_UNSUPPORTED)
        while target.pending:
            self._run(target.pending.pop(0))

    def _run(self, work: Work) -> None:
        try:
            work()
        except IndexError as error:
            self.is_failed = True
            raise CudaError(ILLEGAL_ADDRESS) from error
        self._clock += 1.0

    @entry
    def cuThreadExchangeStreamCaptureMode(self, place: Any) -> None:
        mode, place._obj.value = place._obj.value, getattr(self._current, "mode", CAPTURE_GLOBAL)
        self._expect(mode in (CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED), INVALID_VALUE)
        self._current.mode = mode

    @entry
    def cuStreamIsCapturing(self, stream: int, status: Any) -> None:
        capture = self._find(stream, Stream).capture
        status._obj.value = 0 if capture is None else 1 + capture.is_broken

    @entry
    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        target: Stream = self._find(stream, Stream)
        self._expect(target.capture is None, INVALID_VALUE)
        target.follow(Capture(mode, threading.get_ident()), ())

    @entry
    def cuStreamEndCapture(self, stream: int, out: Any) -> None:
        target: Stream = self._find(stream, Stream)
        capture = target.capture
        assert capture is not None
        self._expect(capture.mode == CAPTURE_RELAXED or capture.thread == threading.get_ident(), CAPTURE_WRONG_THREAD)
        self._expect(not capture.is_broken, CAPTURE_INVALIDATED)
        self._expect(capture.is_joined(), CAPTURE_UNJOINED)
        capture.end()
        self._keep(out, Graph(capture.nodes))

    @entry
    def cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> None:
        self._keep(out, Executable(self._find(graph, Graph).nodes))

    @entry
    def cuGraphDestroy(self, graph: int) -> None:
        self._drop(graph, Graph)

    @entry
    def cuGraphExecDestroy(self, executable: int) -> None:
        self._drop(executable, Executable)

    @entry
    def cuGraphUpload(self, executable: int, stream: int) -> None:
        self._find(executable, Executable)

    @entry
    def cuGraphLaunch(self, executable: int, stream: int) -> None:
        nodes = self._find(executable, Executable).nodes
        watch = None if is_row(nodes) else Watch(nodes)
        for node in ordered(nodes, self.choose):
            self._enqueue(stream, node.run if watch is None else partial(self._run_watched, node, watch))

    def _run_watched(self, node: Node, watch: Watch) -> None:
        self.memory.touched = []
        try:
            node.run()
            watch.note(node, self.memory.touched)
        finally:
            self.memory.touched = None

    @entry
    def cuEventCreate(self, out: Any, flags: int) -> None:
        self._keep(out, Event())

    @entry
    def cuEventDestroy_v2(self, event: int) -> None:
        self._drop(event, Event)

    @entry
    def cuEventRecord(self, event: int, stream: int) -> None:
        known: Event = self._find(event, Event)
        source: Stream = self._find(stream, Stream)
        if source.capture:
            self._expect(not source.capture.is_broken, CAPTURE_INVALIDATED)
            known.captured = source.capture, source.ends
            return
        known.captured = None

        def run() -> None:
            known.time = self._clock

        self._enqueue(stream, run)
        known.recorded = self._find(stream, Stream), run

    @entry
    def cuEventQuery(self, event: int) -> None:
        """The device goes on meanwhile: it does one thing between two looks."""
        source, mark = self._find(event, Event).recorded
        if mark in source.pending:
            if not self.is_halted:
                self._go_on(source)
            self._expect(mark not in source.pending, NOT_READY)

    @entry
    def cuEventSynchronize(self, event: int) -> None:
        source, mark = self._find(event, Event).recorded
        while mark in source.pending:
            self._go_on(source)

    def _go_on(self, stream: Stream) -> None:
        """Do the next thing in a stream; after a failure it does nothing of what was enqueued."""
        try:
            self._run(stream.pending.pop(0))
        except CudaError:
            stream.pending.clear()
            raise

    @entry
    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        target: Stream = self._find(stream, Stream)
        known: Event = self._find(event, Event)
        if known.captured:
            capture, ends = known.captured
            self._expect(target.capture in (None, capture) and capture.streams[0].capture is capture, CAPTURE_ISOLATION)
            target.follow(capture, ends)
            return
        self._expect(not target.capture, CAPTURE_ISOLATION)
        source, mark = known.recorded

        def run() -> None:
            while mark in source.pending:
                self._run(source.pending.pop(0))

        self._enqueue(stream, run)

    @entry
    def cuPointerGetAttribute(self, out: Any, attribute: int, address: int) -> None:
        rooms = ((start, room) for start, room in self.live.items() if isinstance(room, DeviceRange | PinnedRange))
        found = [room for start, room in rooms if start <= address < start + room.nbytes]
        self._expect(found, INVALID_VALUE)
        if attribute == 3:
            self._expect(self.maps_pinned or isinstance(found[0], DeviceRange), INVALID_VALUE)
            out._obj.value = address if isinstance(found[0], DeviceRange) else self._mapped(found[0], address)
            return
        kind = 1 if isinstance(found[0], PinnedRange) else 2
        facts = {1: found[0].context, 2: kind, 9: max(found[0].context - 0xC0, 0)}
        out._obj.value = facts[attribute]

    def _mapped(self, room: PinnedRange, address: int) -> int:
        """The device's address of pinned memory, which is not the host's here."""
        if not room.mapped:
            room.mapped = self.memory.allocate(room.nbytes)
        return room.mapped + address - ctypes.addressof(room.buffer)

    @contextmanager
    def _pinned_memory(self, values: Sequence[Value]) -> Iterator[None]:
        """Pinned memory to which arguments point has the same content for the host and the device, after this too."""
        rooms = [one for one in self.live.values() if isinstance(one, PinnedRange) and one.mapped]
        reached = [room for room in rooms if any(0 <= value - room.mapped < room.nbytes for value in values)]
        with self._unwatched():
            for room in reached:
                self.memory.write(room.mapped, room.buffer.raw)
        yield
        with self._unwatched():
            for room in reached:
                room.buffer.raw = self.memory.read(room.mapped, room.nbytes)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """For copies that a GPU does not make: nobody notes what they touch."""
        touched, self.memory.touched = self.memory.touched, None
        yield
        self.memory.touched = touched

    @entry
    def cuGraphicsGLRegisterBuffer(self, out: Any, name: int, flags: int) -> None:
        self._expect(name in self.gl_buffers and flags == 0, INVALID_VALUE)
        self._keep(out, self.gl_buffers[name])

    @entry
    def cuGraphicsUnregisterResource(self, resource: int) -> None:
        self._drop(resource, GlBuffer)

    @entry
    def cuGraphicsMapResources(self, count: int, resources: Any, stream: int) -> None:
        """The buffer is CUDA's, at another address each time, until the stream has come to where it is unmapped."""
        buffer: GlBuffer = self._find(resources._obj.value, GlBuffer)
        while buffer.leaving:
            self._run(buffer.leaving.pending.pop(0))
        self._expect(count == 1 and not buffer.address, INVALID_VALUE)
        buffer.address = self.memory.allocate(len(buffer.content))
        self.memory.write(buffer.address, buffer.content)

    @entry
    def cuGraphicsResourceGetMappedPointer_v2(self, address: Any, nbytes: Any, resource: int) -> None:
        buffer: GlBuffer = self._find(resource, GlBuffer)
        self._expect(buffer.address, INVALID_VALUE)
        address._obj.value, nbytes._obj.value = buffer.address, len(buffer.content)

    @entry
    def cuGraphicsUnmapResources(self, count: int, resources: Any, stream: int) -> None:
        buffer: GlBuffer = self._find(resources._obj.value, GlBuffer)
        self._expect(count == 1 and buffer.address and not buffer.leaving, INVALID_VALUE)
        buffer.leaving = self._find(stream, Stream)

        def run() -> None:
            buffer.content = self.memory.read(buffer.address, len(buffer.content))
            self.memory.free(buffer.address)
            buffer.address, buffer.leaving = 0, None

        self._enqueue(stream, run)

    @entry
    def cuEventElapsedTime(self, out: Any, start: int, end: int) -> None:
        """In milliseconds: one for each thing that a stream did."""
        out._obj.value = self._find(end, Event).time - self._find(start, Event).time
