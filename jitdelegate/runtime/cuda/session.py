"""One compiled model ready to run on a CUDA device: its memory, its kernels, and one CUDA graph that runs them."""

from __future__ import annotations

import _thread
import ctypes
import os

from jitdelegate.errors import DeviceError, GpuError, ProgramError
from jitdelegate.runtime.buffers import borrow
from jitdelegate.runtime.cache.key import TOOLCHAIN
from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.runtime.cuda.driver import StickyError, try_release
from jitdelegate.runtime.cuda.fork import make_fork
from jitdelegate.runtime.cuda.functions import load_functions
from jitdelegate.runtime.cuda.graph import capture
from jitdelegate.runtime.cuda.route import Route, port_offsets
from jitdelegate.runtime.cuda.states import CudaStates
from jitdelegate.runtime.cuda.toolchain import cuda_major
from jitdelegate.runtime.cuda.weights import share_weights
from jitdelegate.runtime.cuda.work import Work
from jitdelegate.runtime.event import CudaEvent
from jitdelegate.runtime.io_binding import IOBinding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from jitdelegate.program.program import Port, Program
    from jitdelegate.runtime.binding import Binding, Place
    from jitdelegate.runtime.buffers import Tensor
    from jitdelegate.runtime.cuda.binding import CudaBinding
    from jitdelegate.runtime.cuda.context import Context, Current
    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.cuda.mark import Mark
    from jitdelegate.runtime.cuda.memory import DevicePlace, GpuMemory
    from jitdelegate.runtime.cuda.profile import LaunchClock
    from jitdelegate.runtime.cuda.requests import CudaRequests
    from jitdelegate.runtime.cuda.status import CudaStatus
    from jitdelegate.runtime.event import Event

    Made = TypeVar("Made")

MOST_GRAPHS = 8
"""Routes whose graphs a session keeps, the most recently used ones."""


class CudaSession(IOBinding):
    """Runs `program` on `device`: copies in, kernels and copies out, launched together as one graph.

    Kernels work on the GPU's memory of a binding; nothing is copied for it. Memory of the host is copied by way of
    pinned memory, unless it is pinned itself. Each choice of memory has a graph of its own, made at its first run.

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
        self._ports, self._offsets = program.inputs + program.outputs, port_offsets(program)
        self._lock = _thread.allocate_lock()
        self._process = os.getpid()
        self._enqueued: CudaRequests | None = None
        self._releases: list[tuple[Callable[[Any], None], Any]] = []
        self._works: dict[Any, Work] = {}
        self._staged_works: dict[frozenset[int], Work] = {}
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
        self._weights = weights.address_of
        self._arena = self._own(driver.allocate(max(program.arena_bytes, 1)), driver.free)
        beside = CudaStates.nbytes(program)
        room = self._own(driver.allocate(beside), driver.free) if beside else 0
        self._states = CudaStates(program, driver, room, self._arena, self._weights)
        self._status = self._own_status() if program.refusals else None
        self._functions = load_functions(program, driver, self._own)
        self._own_regions: dict[int, int] = {}
        self._pinned: list[int] = []
        self._fork = None if profile else make_fork(program.launches, driver, self._own)
        self._clock: LaunchClock | None = None
        if profile:
            self._open_clock()

    def _own_status(self) -> CudaStatus:
        from jitdelegate.runtime.cuda.status import CudaStatus  # imported late: few programs refuse values

        return CudaStatus(self.program, self._driver, self._own, self._stream)

    def _open_clock(self) -> None:
        from jitdelegate.runtime.cuda.profile import LaunchClock  # imported late: few sessions are profiled

        driver = self._driver
        events = [self._own(driver.create_event(), driver.destroy_event) for _ in range(len(self.program.launches) + 1)]
        self._clock = LaunchClock(self.program, driver, events)

    @property
    def note(self) -> str:
        return f"kernels are launched one by one: {self.graph_failure}" if self.graph_failure else ""

    def _own(self, handle: Any, release: Callable[[Any], None]) -> Any:
        """The handle, to be released when the session is closed."""
        self._releases.append((release, handle))
        return handle

    def _region(self, offset: int) -> int:
        """The session's own device memory of inputs and outputs with this offset."""
        if offset not in self._own_regions:
            ports = zip(self._ports, self._offsets, strict=True)
            nbytes = max(port.nbytes for port, own in ports if own == offset)
            self._own_regions[offset] = self._own(self._driver.allocate(max(nbytes, 1)), self._driver.free)
        return self._own_regions[offset]

    def _staged_work(self, on_gpu: frozenset[int] = frozenset()) -> Work:
        """The work of runs whose inputs and outputs are in pinned memory of the session.

        Args:
            on_gpu: positions of inputs that are in the session's device memory already.
        """
        work = self._staged_works.get(on_gpu)
        if work is None:
            driver = self._driver
            for port in self._ports[len(self._pinned) :]:
                room = driver.allocate_pinned(max(port.nbytes, 1))
                self._pinned.append(self._own(room, driver.free_pinned))
            device = [self._region(offset) if at in on_gpu else 0 for at, offset in enumerate(self._offsets)]
            work = self._prepared(Route(self.program, self._pinned, device, self._region, driver.mapped))
            self._staged_works[on_gpu] = work
        return work

    def _prepared(self, route: Route) -> Work:
        """The work of a route, as a graph if the driver gives one."""
        memory = self._arena, self._weights, self._states
        work = Work(self.program, self._driver, self._functions, *memory, route, self._status)
        if not (self._clock or self.graph_failure):
            try:
                work.graph = self._captured(work.enqueue)
            except StickyError:
                raise
            except DeviceError as error:
                self.graph_failure = str(error)
        return work

    def _captured(self, enqueue: Callable[..., None]) -> int:
        """What `enqueue` enqueues, with branches and launches that begin early if the driver has them, as a graph."""
        if self._fork:
            try:
                return capture(self._driver, self._preparing, lambda stream: enqueue(stream, fork=self._fork))
            except StickyError:
                raise
            except DeviceError:
                self._fork = None  # from now on a row of launches
        return capture(self._driver, self._preparing, enqueue)

    def _enqueue(self, work: Work) -> None:
        """Enqueues one inference."""
        self._states.prepare(self._stream)
        if work.graph:
            self._driver.run_graph(work.graph, self._stream)
        else:
            work.enqueue(self._stream, self._clock)

    def _wait(self) -> None:
        """Waits for what was enqueued."""
        self._driver.synchronize(self._stream)
        if self._clock:
            self._clock.count_run()
        if self._status:
            self._status.check(self._stream)

    def make_place(self, position: int, *, on_device: bool = False) -> Place:
        nbytes = self._ports[position].nbytes
        self._refuse_fork()
        with self._lock, self._current():
            memory = self._memory()
            return memory.device_place(nbytes) if on_device else memory.pinned_place(nbytes)

    def bind(self, places: Sequence[Place]) -> CudaBinding:
        from jitdelegate.runtime.cuda.binding import CudaBinding  # imported late: load() makes its own outputs

        self._refuse_fork()
        with self._lock, self._current():
            return CudaBinding(self.program, places, self._memory(), self._region)

    def _memory(self) -> GpuMemory:
        from jitdelegate.runtime.cuda.memory import GpuMemory  # imported late, as above

        return GpuMemory(self.device, self._context)

    def run_bound(self, binding: Binding) -> None:
        from jitdelegate.runtime.cuda.binding import CudaBinding

        assert isinstance(binding, CudaBinding), "a binding of another session"
        self._refuse_fork()
        self._follow_requests()

        def then() -> None:
            self._wait()
            binding.finish()

        self._enqueue_bound(binding, then)

    def run_async(self, binding: Binding, needs: Sequence[Event] = (), after: Sequence[Event] = ()) -> Event:
        """See `IOBinding.run_async`. The request is work in the session's stream, and follows other work of the GPU
        there; events of the host, and memory that is copied by way of the host, are waited for on a thread."""
        from jitdelegate.runtime.cuda.binding import CudaBinding
        from jitdelegate.runtime.cuda.requests import CudaRequest, CudaRequests

        assert isinstance(binding, CudaBinding), "a binding of another session"
        self._refuse_fork()
        is_idle = self._requests is None or self._requests.is_idle
        if self._clock or not is_idle or not self._follows(binding, needs, after):
            return super().run_async(binding, needs, after)
        if self._enqueued is None:
            self._enqueued = CudaRequests()
        self._enqueued.make_room()
        add = self._enqueued.add

        def then() -> Mark:
            assert self._context
            return add(self._context, self._stream, self._end_of_request(binding))

        mark = self._enqueue_bound(binding, then, (*needs, *after))
        return CudaRequest(mark, self._enqueued, self, needs, may_be_refused=self._status is not None)

    def _end_of_request(self, binding: CudaBinding) -> Callable[[], None]:
        """What is left to do once the request that was just enqueued has ended."""
        if self._status is None:
            return binding.finish
        check = self._status.take(self._stream)

        def end() -> None:
            check()
            binding.finish()

        return end

    def _follows(self, binding: CudaBinding, needs: Sequence[Event], after: Sequence[Event]) -> bool:
        """Whether a request may be enqueued now: the events have happened, or the stream can wait for them."""
        for event in (*needs, *after):
            if event.done:
                continue
            if not isinstance(event, CudaEvent) or event.mark.context is not self._context or binding.copies_on_host:
                return False
        return not any(event.done and event._failure() for event in needs)

    def _enqueue_bound(self, binding: CudaBinding, then: Callable[[], Made], events: Sequence[Event] = ()) -> Made:
        """Enqueues one inference on a binding's memory, after events; the answer of `then`, which is called after that.

        Raises:
            DeviceError: no GpuError once the run may have changed its inputs, as it cannot be repeated then.
        """
        has_begun = False
        try:
            with self._lock, self._current():
                self._refuse_capture()
                for event in events:
                    if isinstance(event, CudaEvent):
                        event.mark.follow(self._stream)
                route = binding.acquire(self._stream)
                try:
                    try:
                        work = self._bound_work(route)
                        has_begun = not work.graph
                        self._enqueue(work)
                        has_begun = True
                    except BaseException:
                        try_release(binding.release, self._stream)
                        raise
                    binding.release(self._stream)
                    return then()
                except BaseException:  # a part of the work may use memory that nobody keeps alive
                    try_release(self._driver.synchronize, self._stream)
                    raise
        except GpuError as error:
            if has_begun and binding.changes_inputs:
                raise DeviceError(f"{error}; the run may have changed those of its inputs that are outputs") from error
            raise

    def _bound_work(self, route: Route) -> Work:
        """The work of a route, from the last run on the same memory if there was one lately."""
        work = self._works.pop(route.key, None) or self._prepared(route)
        self._works[route.key] = work  # the last one
        while len(self._works) > MOST_GRAPHS:
            self._works.pop(next(iter(self._works))).drop()
        return work

    def run(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """See `IOBinding.run`; arrays with `__cuda_array_interface__` in memory of this GPU are copied there."""
        on_gpu = [position for position, value in enumerate(inputs) if hasattr(value, "__cuda_array_interface__")]
        if not on_gpu or len(inputs) != len(self.program.inputs):
            return super().run(inputs)
        addresses: list[int] = []
        held: list[object] = []
        places: dict[int, DevicePlace] = {}
        self._refuse_fork()
        for position, (value, port) in enumerate(zip(inputs, self.program.inputs, strict=True)):
            if position in on_gpu:
                places[position] = self._array_place(value, port)
                addresses.append(0)
            else:
                held.append(memory := borrow(value, port))
                addresses.append(memory.address)
        outputs: list[Any] = [self.new_output(position) for position in range(len(self.program.outputs))]
        self._run_staged([*addresses, *map(ctypes.addressof, outputs)], places)
        return self.handed_out(outputs)

    def input_place(self, value: Any, port: Port) -> Place:
        is_on_gpu = hasattr(value, "__cuda_array_interface__")
        return self._array_place(value, port) if is_on_gpu else super().input_place(value, port)

    def _array_place(self, value: Any, port: Port) -> DevicePlace:
        with self._current():
            return self._memory().array_place(value, port)

    def run_on(self, addresses: Sequence[int]) -> None:
        self._run_staged(addresses, {})

    def _run_staged(self, addresses: Sequence[int], on_gpu: dict[int, DevicePlace]) -> None:
        """One inference on the host's memory, but for inputs in the memory of the GPU."""
        self._refuse_fork()
        self._follow_requests()
        with self._lock, self._current():
            self._refuse_capture()
            work = self._staged_work(frozenset(on_gpu))
            count = len(self.program.inputs)
            sides = list(zip(addresses, self._pinned, self._ports, strict=True))
            for position, (source, room, port) in enumerate(sides[:count]):
                if position not in on_gpu:
                    ctypes.memmove(room, source, port.nbytes)
                elif port.nbytes:
                    target = self._region(self._offsets[position])
                    self._driver.copy(target, on_gpu[position].acquire(self._stream), port.nbytes, self._stream)
            self._enqueue(work)
            self._wait()
            for target, room, port in sides[count:]:
                ctypes.memmove(target, room, port.nbytes)

    def kernel_seconds(self) -> list[float | None]:
        with self._lock:
            return self._clock.kernel_seconds() if self._clock and self._context else super().kernel_seconds()

    def reset_states(self, *, resources: bool) -> None:
        self._refuse_fork()
        self._follow_requests()
        with self._lock:
            self._states.reset(resources=resources)

    def read_state(self, position: int) -> bytes:
        self._refuse_fork()
        self._follow_requests()
        with self._lock, self._current():
            self._refuse_capture()
            return self._states.read(position, self._stream)

    def write_state(self, position: int, content: bytes) -> None:
        self._refuse_fork()
        self._follow_requests()
        with self._lock, self._current():
            self._refuse_capture()
            self._states.write(position, content, self._stream)

    def states_so_far(self) -> list[bytes | None]:
        self._refuse_fork()
        self._follow_requests()
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
            work = self._staged_work()
            self._states.prepare(self._stream)
            if copies:
                return self._measured(runs, lambda: self._enqueue(work))
            return self._measured_graph(lambda stream: work.enqueue_kernels(stream, fork=self._fork), runs)

    def soil(self) -> None:
        """Reset all states, and fill what runs write with bytes that are NaN as floats: outputs and intermediate
        results. So a run that reads the results of the one before it cannot give the same outputs.

        Raises:
            DeviceError: the session is closed, or the device failed.
        """
        self._refuse_fork()
        with self._lock, self._current():
            self._states.reset(resources=True)
            ports = zip(self._ports, self._offsets, strict=True)
            regions = [(self._own_regions[at], port.nbytes) for port, at in ports if at in self._own_regions]
            for address, nbytes in (*regions, (self._arena, self.program.arena_bytes)):
                if nbytes:
                    self._driver.clear(address, nbytes, self._stream, 0xFF)

    def launch_seconds(self, number: int, times: int, *, afresh: bool = True) -> float:
        """Seconds by the device's clock for launch `number`, run `times` times in a row in a graph.

        Args:
            afresh: run the launches before it first, on the last inputs, so that it computes the same as in an
                inference. False if this was already done for this launch, and nothing has run since.
        Raises:
            DeviceError: as for `run_seconds`.
        """

        def enqueue(stream: int) -> None:
            for _ in range(times):
                work.enqueue_launch(number, stream)

        self._refuse_fork()
        with self._lock, self._current():
            self._refuse_capture()
            work = self._staged_work()
            if afresh:
                self._states.prepare(self._stream)
                work.enqueue_inputs(self._stream)
                work.enqueue_until(number, self._stream)
            return self._measured_graph(enqueue, 1)[0]

    def _measured_graph(self, enqueue: Callable[[int], None], runs: int) -> tuple[float, float]:
        """`_measured` runs of a graph, or of the same work without a graph where the driver gives none."""
        driver, stream = self._driver, self._stream
        if self.graph_failure:
            return self._measured(runs, lambda: enqueue(stream))
        graph = capture(driver, self._preparing, enqueue)
        try:
            return self._measured(runs, lambda: driver.run_graph(graph, stream))
        finally:
            try_release(driver.destroy_executable, graph)

    def _measured(self, runs: int, enqueue: Callable[[], None]) -> tuple[float, float]:
        from jitdelegate.runtime.cuda.timing import measured  # imported late: few sessions are measured

        try:
            return measured(self._driver, self._stream, runs, enqueue)
        finally:
            if self._status:
                self._status.forget(self._stream)

    def verify(self) -> None:
        """Does nothing: the weights were hashed during the upload."""

    def close(self) -> None:
        """Free everything on the device; harmless a second time, and in a forked child, which owns nothing there.

        Does nothing while Python itself ends: the driver may be gone already, and the end of the process frees all.
        """
        if not self._is_ending() and self._process == os.getpid():
            self._end_requests()
            if self._enqueued is not None:
                self._enqueued.settle()
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
                for work in (*self._works.values(), *self._staged_works.values()):
                    work.drop()
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
