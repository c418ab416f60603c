"""One compiled model ready to run on a CUDA device: its memory, its kernels, and one CUDA graph that runs them."""

from __future__ import annotations

import _thread
import ctypes
import os
import time

from jitdelegate.cache.key import TOOLCHAIN
from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.driver import dotted, try_release
from jitdelegate.runtime.cuda.states import CudaStates
from jitdelegate.runtime.cuda.toolchain import cuda_major
from jitdelegate.runtime.cuda.weights import share_weights
from jitdelegate.runtime.io_binding import IOBinding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Launch, Program
    from jitdelegate.runtime.cuda.context import Context, Current
    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.cuda.profile import LaunchClock

    Step = tuple[int, tuple[int, int, int], tuple[int, int, int], int, int]

ALIGNMENT = 256


class CudaSession(IOBinding):
    """Runs `program` on `device`: copies in, kernels and copies out, launched together as one graph.

    Calls from several threads wait for each other. CUDA does not survive a fork: a session refuses to run in a child.

    Attributes:
        program: the program that runs.
        device: the device that it runs on.
        graph_failure: why the driver gave no graph, so that kernels are launched one by one; "" if it did.
    """

    def __init__(self, program: Program, device: Device, stream: int | None = None, *, profile: bool = False) -> None:
        """
        Args:
            stream: the handle of a stream of the device's primary context; the stream has to outlive the session. Runs
                follow the work in this stream. None: the session creates its own stream.
            profile: time each launch, for `kernel_seconds`; then there is no graph.
        Raises:
            ProgramError: the program is not for CUDA, is inconsistent, or its weights are damaged.
            DeviceError: the device cannot run it, or has too little memory; nothing is left behind.
        """
        super().__init__(program)
        if program.target != "cuda" or program.loader != "cubin":
            raise ProgramError(f"{program.loader} code for {program.target} cannot run on a CUDA device")
        device.check(program.features, cuda_major(program.part(TOOLCHAIN)))
        self.device = device
        self.graph_failure = ""
        self._driver = device.driver
        self._lock = _thread.allocate_lock()
        self._process = os.getpid()
        self._releases: list[tuple[Callable[[Any], None], Any]] = []
        self._context: Context | None = hold_context(device)
        try:
            with self._context.current():
                self._open(self._context, stream, profile=profile)
        except BaseException:
            self._free()
            raise
        self._begin_log()

    def _open(self, context: Context, stream: int | None, *, profile: bool) -> None:
        driver, program = self._driver, self.program
        # not the caller's stream: it may be the default one, which cannot be captured, or have work to wait for
        self._preparing = self._own(driver.create_stream(), driver.destroy_stream)
        self._stream = self._preparing if stream is None else stream
        weights = share_weights(program, context, self._preparing)
        self._own(weights, type(weights).release)
        arena = self._own(driver.allocate(max(program.arena_bytes, 1)), driver.free)
        beside = CudaStates.nbytes(program)
        room = self._own(driver.allocate(beside), driver.free) if beside else 0
        self._states = CudaStates(program, driver, room, arena, weights.place)
        self._place_ports(arena)
        self._arguments = _Arguments(program.launches, arena, weights.place)
        functions = self._load()
        self._steps: list[Step] = [
            (functions[launch.kernel], launch.grid, launch.block, launch.shared_bytes, address)
            for launch, address in zip(program.launches, self._arguments.addresses, strict=True)
        ]
        self._graph = 0
        self._clock: LaunchClock | None = None
        if profile:
            self._open_clock()
            return
        try:
            self._graph = self._own(self._capture(self._enqueue_steps), driver.destroy_executable)
        except DeviceError as error:
            self.graph_failure = str(error)

    def _open_clock(self) -> None:
        from jitdelegate.runtime.cuda.profile import LaunchClock  # imported late: few sessions are profiled

        driver = self._driver
        events = [self._own(driver.create_event(), driver.destroy_event) for _ in range(len(self._steps) + 1)]
        self._clock = LaunchClock(self.program, driver, events)

    @property
    def note(self) -> str:
        return f"kernels are launched one by one: {self.graph_failure}" if self.graph_failure else ""

    def _own(self, handle: Any, release: Callable[[Any], None]) -> Any:
        """The handle, to be released when the session is closed."""
        self._releases.append((release, handle))
        return handle

    def _place_ports(self, arena: int) -> None:
        """The addresses of each port in pinned memory and on the device, and its length."""
        program, start = self.program, 0
        places = []
        inputs, outputs = len(program.inputs), len(program.outputs)
        offsets = program.input_offsets[:inputs] + program.output_offsets[:outputs]
        for port, offset in zip(program.inputs + program.outputs, offsets, strict=True):
            places.append((start, arena + offset, port.nbytes))
            start += -(-port.nbytes // ALIGNMENT) * ALIGNMENT
        pinned = self._own(self._driver.allocate_pinned(max(start, 1)), self._driver.free_pinned)
        places = [(pinned + start, address, nbytes) for start, address, nbytes in places]
        self._inputs, self._outputs = places[:inputs], places[inputs:]

    def _load(self) -> list[int]:
        """The function of every entry; entries that share a binary share its module."""
        modules: dict[int, int] = {}
        image = Borrowed(self.program.code)
        functions = []
        for name, offset in self.program.entries:
            if offset not in modules:
                modules[offset] = self._load_module(image.address + offset)
            functions.append(self._driver.function(modules[offset], name))
        for function, nbytes in self._shared_bytes(functions).items():
            self._driver.allow_shared_bytes(function, nbytes)
        return functions

    def _load_module(self, image: int) -> int:
        try:
            return int(self._own(self._driver.load_module(image), self._driver.unload_module))
        except DeviceError as error:
            version = dotted(self._driver.version)
            raise DeviceError(
                f"the driver, which speaks CUDA {version}, refuses a kernel for {self.program.features}: {error}"
            ) from error

    def _shared_bytes(self, functions: Sequence[int]) -> dict[int, int]:
        """The most dynamic shared memory that each function is launched with, if any.

        The default limit counts static memory too, so every function with dynamic memory requests a higher limit.
        """
        most: dict[int, int] = {}
        for launch in self.program.launches:
            if launch.shared_bytes:
                function = functions[launch.kernel]
                most[function] = max(launch.shared_bytes, most.get(function, 0))
        return most

    def _capture(self, enqueue: Callable[[int], None]) -> int:
        """The work that `enqueue` puts into the stream it is called with, as a graph that is ready to run."""
        driver, stream = self._driver, self._preparing
        driver.begin_capture(stream)
        try:
            enqueue(stream)
        except DeviceError:
            self._leave_capture()
            raise
        graph = driver.end_capture(stream)
        try:
            executable = driver.instantiate(graph)
        finally:
            try_release(driver.destroy_graph, graph)
        try:
            driver.upload_graph(executable, stream)
        except DeviceError:
            try_release(driver.destroy_executable, executable)
            raise
        return executable

    def _leave_capture(self) -> None:
        try:
            self._driver.destroy_graph(self._driver.end_capture(self._preparing))
        except DeviceError:  # a capture that a failing call made invalid ends without a graph
            return

    def _enqueue_steps(self, stream: int) -> None:
        self._enqueue_inputs(stream)
        self._enqueue_kernels(stream, self._clock)
        for pinned, address, nbytes in self._outputs:
            if nbytes:
                self._driver.download(pinned, address, nbytes, stream)

    def _enqueue_inputs(self, stream: int) -> None:
        for pinned, address, nbytes in self._inputs:
            if nbytes:
                self._driver.upload(address, pinned, nbytes, stream)

    def _enqueue_kernels(self, stream: int, clock: LaunchClock | None = None) -> None:
        self._states.enqueue_before(stream)
        for number, step in enumerate(self._steps):
            if clock:
                clock.record(number, stream)
            self._driver.launch(*step, stream)
        if clock:
            clock.record(len(self._steps), stream)
        self._states.enqueue_after(stream)

    def _enqueue(self) -> None:
        """Enqueues one inference from pinned memory to pinned memory."""
        self._states.prepare(self._stream)
        if self._graph:
            self._driver.run_graph(self._graph, self._stream)
        else:
            self._enqueue_steps(self._stream)

    def run_on(self, addresses: list[int]) -> None:
        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            count = len(self._inputs)
            for source, (pinned, _, nbytes) in zip(addresses[:count], self._inputs, strict=True):
                ctypes.memmove(pinned, source, nbytes)
            self._enqueue()
            self._driver.synchronize(self._stream)
            if self._clock:
                self._clock.count_run()
            for target, (pinned, _, nbytes) in zip(addresses[count:], self._outputs, strict=True):
                ctypes.memmove(target, pinned, nbytes)

    def kernel_seconds(self) -> list[float | None]:
        with self._lock:
            return self._clock.kernel_seconds() if self._clock and self._context else super().kernel_seconds()

    def reset_states(self, *, resources: bool) -> None:
        self._refuse_fork()
        with self._lock:
            self._states.reset(resources=resources)

    def read_state(self, place: int) -> bytes:
        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            return self._states.read(place, self._stream)

    def write_state(self, place: int, content: bytes) -> None:
        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            self._states.write(place, content, self._stream)

    def states_so_far(self) -> list[bytes | None]:
        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            return self._states.so_far(self._stream)

    def _current(self) -> Current:
        if self._context is None:
            raise DeviceError("the session is closed")
        return self._context.current()

    def _refuse_capture(self) -> None:
        """Refuses to run while the caller captures its stream into a graph: waiting would break the capture."""
        if self._stream != self._preparing and self._driver.is_capturing(self._stream):
            raise DeviceError(
                f"a CUDA graph is being captured from stream {self._stream}, in which the model is to run: it copies"
                " values from and to the host and waits for them, which no graph holds; run it before or after the"
                " capture, or load it with another stream"
            )

    def run_seconds(self, runs: int, *, copies: bool = True) -> tuple[float, float]:
        """How long `runs` inferences take on the last inputs, without waiting between inferences.

        Args:
            copies: False leaves out the copies between host and device; then all inferences after the first compute on
                whatever the one before left in the inputs' memory.
        Returns:
            seconds by the device's clock, from an event before the first inference to one after the last, and seconds
            by the host's clock, from before the first inference until the last is done.
        Raises:
            DeviceError: the session is closed, its stream is being captured, or the device failed.
        """
        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            self._states.prepare(self._stream)
            if copies:
                return self._measure(runs, self._enqueue)
            return self._measured_graph(self._enqueue_kernels, runs)

    def launch_seconds(self, number: int, times: int, *, afresh: bool = True) -> float:
        """Seconds by the device's clock for launch `number`, run `times` times in a row in a graph.

        Args:
            afresh: run the launches before it first, on the last inputs, so that it computes the same as in an
                inference. False if this was already done for this launch, and nothing has run since.
        Raises:
            DeviceError: as for `run_seconds`.
        """
        step = self._steps[number]

        def enqueue(stream: int) -> None:
            for _ in range(times):
                self._driver.launch(*step, stream)

        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            if afresh:
                self._enqueue_until(number)
            return self._measured_graph(enqueue, 1)[0]

    def _enqueue_until(self, number: int) -> None:
        """Enqueues an inference up to a launch."""
        self._states.prepare(self._stream)
        self._enqueue_inputs(self._stream)
        self._states.enqueue_before(self._stream)
        for step in self._steps[:number]:
            self._driver.launch(*step, self._stream)

    def _measured_graph(self, enqueue: Callable[[int], None], runs: int) -> tuple[float, float]:
        """`_measure` of a graph, or of the same work without a graph where the driver gives none."""
        driver, stream = self._driver, self._stream
        if self.graph_failure:
            return self._measure(runs, lambda: enqueue(stream))
        graph = self._capture(enqueue)
        try:
            return self._measure(runs, lambda: driver.run_graph(graph, stream))
        finally:
            try_release(driver.destroy_executable, graph)

    def _measure(self, runs: int, enqueue: Callable[[], None]) -> tuple[float, float]:
        driver, events = self._driver, list[int]()
        try:
            for _ in range(2):
                events.append(driver.create_event())
            start = time.perf_counter()
            driver.record(events[0], self._stream)
            for _ in range(runs):
                enqueue()
            driver.record(events[1], self._stream)
            driver.synchronize(self._stream)
            end = time.perf_counter()
            return driver.seconds_between(*events), end - start
        finally:
            for event in events:
                try_release(driver.destroy_event, event)

    def verify(self) -> None:
        """Does nothing: the weights were hashed during the upload."""

    def close(self) -> None:
        """Free everything on the device; harmless a second time, and in a forked child, which owns nothing there.

        Does nothing while Python itself ends: the driver may be gone already, and the end of the process frees all.
        """
        if not self._is_ending() and self._process == os.getpid():
            self._end_requests()
            self._end_log()
            with self._lock:
                self._free()

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            self.close()

    def _free(self) -> None:
        """Release everything that is owned, newest first; ignores refusals of a failed or reset device, which has lost
        it all."""
        context, self._context = self._context, None
        if context is None:
            return
        releases, self._releases = self._releases, []
        try:
            with context.current():
                for release, handle in reversed(releases):
                    try_release(release, handle)
        except DeviceError:
            pass

    def _refuse_fork(self) -> None:
        if self._process != os.getpid():
            raise DeviceError(
                f"the model was loaded on a GPU in process {self._process}, which forked process {os.getpid()}:"
                " CUDA does not survive that; start processes by 'spawn', or fork before the first model is loaded"
            )


class _Arguments:
    """The kernels' arguments in memory, in the form that the driver needs for every launch.

    Attributes:
        addresses: by launch, the address of its pointers to its arguments' values.
    """

    __slots__ = ("_pointers", "_words", "addresses")

    def __init__(self, launches: Sequence[Launch], arena: int, place: Callable[[int], int]) -> None:
        """
        Args:
            place: the address of what lies at an offset in the weights.
        """
        bases = {"a": arena, "i": 0, "f": 0}
        words = [
            place(value) if kind == "w" else bases[kind] + value
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
