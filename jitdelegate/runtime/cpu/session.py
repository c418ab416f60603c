"""One compiled model ready to run: its code, its memory and its worker threads."""

from __future__ import annotations

import _thread
import ctypes
import os

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.memory import (
    ALIGNMENT,
    HOST_ENTRY,
    LEARNT,
    TEAM,
    Memory,
    States,
    Weights,
    Workspace,
    aligned,
    load_code,
    machine,
    undisturbed,
    work_bytes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.binding import Binding
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.cpu.builtin_run import BuiltinRun
    from jitdelegate.runtime.cpu.profile import KernelClock
    from jitdelegate.runtime.cpu.requests import NativeRequests
    from jitdelegate.runtime.cpu.team_past import TeamPast
    from jitdelegate.runtime.cpu.workers import Threads
    from jitdelegate.runtime.event import Event
    from jitdelegate.runtime.requests import Requests
    from jitdelegate.runtime.shared_file import SharedFile

_ARGUMENTS = 6 * ctypes.c_void_p
"""Arguments of one thread: arena, weights, io, sync, scratch; its number."""
_process = os.getpid()


def _note_fork() -> None:
    """Keep the number of this process at hand: asking the system takes a tenth of a small model's run."""
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class Session(IOBinding):
    """Runs `program` on the calling thread and `num_threads` - 1 workers.

    Calls from several threads wait for each other. After a fork the child goes on with workers of its own. From the
    third run on, a run is one call of a builtin function where nothing has to be checked or started before it
    (`_ready`). Whatever else uses the session's memory holds its lock, and lets no such run begin (`_pause`).

    Requests run on native threads, up to `requests_in_flight` at a time, each with memory of its own and its part of
    the workers; a program with states runs one at a time. Calls that touch states wait for all requests.

    Attributes:
        program: what it runs.

    Raises:
        ProgramError: the program has no code, or does not fit together.
        DeviceError: out of memory, or executable memory is not available.
    """

    def __init__(
        self,
        program: Program,
        num_threads: int = 1,
        requests_in_flight: int = 1,
        workspace: Workspace | None = None,
    ) -> None:
        """
        Args:
            workspace: where to compute, in turns with other sessions; None for memory of its own.
        """
        super().__init__(program)
        self._requests_in_flight = requests_in_flight
        self._native: NativeRequests | None = None
        self._native_memories: list[_Memory] = []
        self._lock = _thread.allocate_lock()
        self._num_threads = num_threads
        self._process = _process
        self._memory: _Memory | None = None
        self._builtin: BuiltinRun | None = None
        self._ready: BuiltinRun | None = None
        self._has_run = False
        self._past: TeamPast | None = None
        self._code = load_code(program)
        try:
            self._memory = _Memory(program, num_threads, workspace=workspace)
        except (DeviceError, ProgramError):
            self._code.close()
            raise
        self._arguments = self._memory.arguments[0]
        self._clock = self._memory.kernel_clock(program, self._code.clock) if self._code.clock else None
        self._begin_log()

    def recall(self, directory: CacheDirectory | None) -> None:
        memory = self._memory
        if directory is not None and memory is not None and memory.num_threads > 1:
            from jitdelegate.runtime.cpu.team_past import TeamPast  # not before: small programs have no team

            self._past = TeamPast(directory, self.program.code, memory.num_threads, memory.learnt)

    @property
    def shared(self) -> SharedFile | None:
        return self._memory.weights.file if self._memory else None

    def verify(self) -> None:
        if self._memory is not None:
            undisturbed(self.shared, self._memory.weights.verify)

    def close(self) -> None:
        """End the workers and free the memory; harmless a second time.

        Does nothing while Python exits: LiteRT closes sessions then too, and another thread may be inside a run that
        never returns. The system frees everything when the process ends.
        """
        if self._is_ending():
            return
        self._end_requests()
        self._end_log()
        self._follow_fork()
        if self._native is not None:
            self._native.close()
        with self._lock:
            memory, self._memory, self._ready = self._memory, None, None
            if memory is None:
                return
            if self._builtin is not None:
                self._builtin.pause()
            self._stop_workers(memory)
            self._free_native()
            if self._past is not None:
                self._past.close()
            memory.close()
            self._code.close()

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None:
            self.close()

    def invoke(self) -> None:
        ready, staged = self._ready, self._staged
        if ready is None or staged is None or self._process != _process:
            super().invoke()
            return
        status = ready.run(*staged)
        if status:
            self._end(status, staged)

    def run_bound(self, binding: Binding) -> None:
        if binding.is_direct:
            self.run_on(binding.addresses)
            return
        self._follow_requests()
        binding.start()
        self.run_on(binding.addresses)
        binding.finish()

    def run_on(self, addresses: Sequence[int]) -> None:
        ready = self._ready
        if ready is None or self._process != _process:
            self._run_locked(addresses)
            return
        status = ready.run(*addresses)
        if status:
            self._end(status, addresses)

    def _end(self, status: int, addresses: Sequence[int]) -> None:
        """End a run that was refused, or has not begun."""
        from jitdelegate.runtime.status import NOT_RUN  # not before: such runs are rare

        if status != NOT_RUN:
            raise _refusal(self.program, status)
        self._run_locked(addresses)

    def _run_locked(self, addresses: Sequence[int]) -> None:
        """One inference, after all checks."""
        self._follow_requests()
        with self._lock:
            memory = self._opened_memory()
            if memory.weights.file is None:
                self._compute(memory, addresses)
            else:
                self._compute_undisturbed(memory, addresses)
            if memory.states.before:
                memory.states.advance()
            if self._may_be_ready(memory):
                self._resume(memory)

    def _may_be_ready(self, memory: _Memory) -> bool:
        """Whether runs need no checks from now on; false at first, since many processes run a model once."""
        is_watched = memory.weights.file is not None or self._clock is not None
        is_shared = bool(memory.states.before) and not (self._native is None and self._requests is None)
        had_run, self._has_run = self._has_run, True
        return had_run and not (is_watched or is_shared or self._is_ending()) and bool(machine())

    def _resume(self, memory: _Memory) -> None:
        """Let runs begin without the session's lock, unless there is no memory for that; hold the lock."""
        if self._builtin is None:
            from jitdelegate.runtime.cpu.builtin_run import BuiltinRun  # not before: see _may_be_ready

            try:
                self._builtin = BuiltinRun(self._code, self._arguments, self.program)
            except DeviceError:
                return
        inputs, states = len(self.program.inputs), memory.states
        memory.io[inputs : inputs + len(states.before)] = states.before
        memory.io[len(memory.io) - len(states.after) :] = states.after
        self._builtin.resume()
        self._ready = self._builtin

    def _pause(self) -> None:
        """Let no run begin without the session's lock; hold it."""
        ready = self._ready
        if ready is None:
            return
        memory = self._opened_memory()
        has_turned = ready.pause()  # a signal's handler may raise: then the next one who pauses finds the same
        self._ready = None
        if has_turned:
            memory.states.advance()

    def _compute_undisturbed(self, memory: _Memory, addresses: Sequence[int]) -> None:
        undisturbed(memory.weights.file, lambda: self._compute(memory, addresses))

    def run_async(self, binding: Binding, needs: Sequence[Event] = (), after: Sequence[Event] = ()) -> Event:
        if self._process != _process:
            self._follow_fork()
        native = self._native or self._started_native()
        if native is None or binding.staged or not (self._requests is None or self._requests.is_idle):
            return super().run_async(binding, needs, after)
        native.wait_for_room()
        with self._lock:
            memory = self._opened_memory()
            memory.weights.verify()
            addresses: Sequence[int] = binding.addresses
            states = memory.states
            if states.before:
                self._pause()
                states.prepare()
                addresses = self._with_states(addresses, states)
            event = native.submit(self, addresses, binding, needs, after)
            if states.before:
                states.advance()  # the next request follows this one
            return event

    def _own_requests(self) -> Requests:
        requests = super()._own_requests()
        if self.program.states:
            with self._lock:
                self._pause()  # from now on, runs wait for requests
        return requests

    def _started_native(self) -> NativeRequests | None:
        """Native requests, started; None where the machine or the program has none."""
        if not machine() or self._clock or self._is_ending():
            return None
        from jitdelegate.runtime.cpu.requests import NativeRequests  # not before: most runs are waited for

        with self._lock:
            memory = self._opened_memory()
            if self._native is None:
                if memory.weights.file:
                    memory.weights.file.own()  # native threads run without checking for changes
                memory.weights.verify()
                count = 1 if memory.states.before else self._requests_in_flight
                try:
                    for _ in range(count):
                        self._native_memories.append(_Memory(self.program, max(self._num_threads // count, 1), memory))
                        self._start_workers(self._native_memories[-1])
                    arguments = [native.arguments[0] for native in self._native_memories]
                    outputs = len(self.program.outputs)
                    program = self.program
                    refusal = (lambda status: _refusal(program, status)) if program.refusals else None
                    self._native = NativeRequests(self._code, arguments, len(memory.io), outputs, refusal)
                except BaseException:
                    self._free_native()
                    raise
            return self._native

    def _free_native(self) -> None:
        """Free the memory of requests; their threads have ended."""
        memories, self._native_memories = self._native_memories, []
        for memory in memories:
            self._stop_workers(memory)
            memory.close_pages()

    def compute(self, addresses: Sequence[int]) -> None:
        self._follow_fork()
        with self._lock:
            self._compute(self._opened_memory(), addresses)

    def advance(self) -> None:
        with self._lock:
            self._opened_memory().states.advance()

    def _compute(self, memory: _Memory, addresses: Sequence[int]) -> None:
        self._pause()
        memory.weights.verify()
        if len(memory.workers) < memory.num_threads - 1:
            self._start_workers(memory)
        states = memory.states
        if states.before:
            self._settle()
            states.prepare()
            addresses = self._with_states(addresses, states)
        memory.io[:] = addresses
        status = self._code.run(*self._arguments)
        if status:
            raise _refusal(self.program, status)

    def _with_states(self, addresses: Sequence[int], states: States) -> Sequence[int]:
        """The content of io: inputs, current states, outputs, next states."""
        count = len(self.program.inputs)
        return [*addresses[:count], *states.before, *addresses[count:], *states.after]

    def _follow_requests(self) -> None:
        self._follow_fork()
        super()._follow_requests()

    def _settle(self) -> None:
        """Wait for all runs that use the states; hold the lock."""
        self._pause()
        if self._native is not None:
            self._native.settle()

    def _opened_memory(self) -> _Memory:
        if self._memory is None:
            raise DeviceError("the session is closed")
        return self._memory

    def reset_states(self, *, resources: bool) -> None:
        self._follow_requests()
        with self._lock:
            if self._memory is not None:
                self._settle()
                self._memory.states.reset(resources=resources)

    def read_state(self, position: int) -> bytes:
        self._follow_requests()
        with self._lock:
            return self._prepared_states().read(position)

    def write_state(self, position: int, content: bytes) -> None:
        self._follow_requests()
        with self._lock:
            self._prepared_states().write(position, content)

    def states_so_far(self) -> list[bytes | None]:
        self._follow_requests()
        with self._lock:
            self._settle()
            return self._opened_memory().states.so_far()

    def host(self, data_offset: Callable[[int], int]) -> tuple[int, Any]:
        """Let LiteRT's interpreter run the program on its own tensors from now on; other callers must not run it.

        Args:
            data_offset: tensor index -> offset of the tensor's data pointer in LiteRT's array of tensors.
        Returns:
            (address of the entry, its table of words).
        Raises:
            ProgramError: the weights are damaged, or the code has no such entry.
            DeviceError: the session is closed.
        """
        from jitdelegate.runtime.delegate_table import hosting_words  # not before: most models are not hosted

        with self._lock:
            memory, program = self._opened_memory(), self.program
            if not self._code.invoke:
                raise ProgramError(f"code has no entry {HOST_ENTRY}")
            if memory.weights.file:
                memory.weights.file.own()  # LiteRT runs without checking for changes
            memory.weights.verify()
            self._start_workers(memory)
            inputs, outputs = ([data_offset(port.index) for port in side] for side in (program.inputs, program.outputs))
            states = [data_offset(state.index) for state in program.states]
            self._pause()
            memory.io[:] = [*([0] * (len(inputs) + len(states) + len(outputs))), *memory.states.after]
            copies = [
                (address, offset, state.nbytes)
                for address, offset, state in zip(memory.states.after, states, program.states, strict=True)
            ]
            fills = list(enumerate([*inputs, *states, *outputs]))
            return self._code.invoke, hosting_words(memory.arguments[0], fills, copies, program.refusals)

    def kernel_seconds(self) -> list[float | None]:
        self._follow_fork()
        with self._lock:
            return self._clock.kernel_seconds() if self._clock and self._memory else super().kernel_seconds()

    def _prepared_states(self) -> States:
        """The states, with first values written."""
        memory = self._opened_memory()
        self._settle()

        def prepare() -> None:
            memory.weights.verify()
            memory.states.prepare()

        undisturbed(memory.weights.file, prepare)
        return memory.states

    def _follow_fork(self) -> None:
        """Start anew in a forked child: it has no workers, and the lock and the sync memory may be in any state."""
        if self._process == _process:
            return
        self._process = _process
        self._lock = _thread.allocate_lock()
        ready, self._ready = self._ready, None
        if ready is not None and ready.forked() and self._memory is not None:
            self._memory.states.advance()
        for memory in self._native_memories:
            memory.workers = []
        if self._memory is not None:
            self._memory.clear_sync()
            if self._past is not None:
                self._past.restore()
        native, self._native = self._native, None
        if native is not None and self._memory is not None:
            self._free_native()
            if native.left % 2:  # of the requests that had not run, each has swapped the states
                self._memory.states.advance()

    def _start_workers(self, memory: _Memory) -> None:
        while len(memory.workers) < memory.num_threads - 1:
            try:
                from jitdelegate.runtime.cpu import workers  # not before: one thread needs none

                workers.start(self._code.work, memory.worker(len(memory.workers) + 1), memory.workers)
            except (DeviceError, ImportError):  # no more threads, or Python exits: the caller finishes alone
                memory.num_threads = len(memory.workers) + 1

    def _stop_workers(self, memory: _Memory) -> None:
        """Stop the workers; returns once none of them uses the code or its memory."""
        if not memory.workers:
            return
        from jitdelegate.runtime.cpu import workers

        self._code.stop(*memory.arguments[0])
        while memory.workers:
            workers.join(memory.workers.pop())


def _refusal(program: Program, status: int) -> DeviceError:
    """The error of a run with this status word."""
    from jitdelegate.runtime.status import refusal  # not before: such runs are rare

    return refusal(program, status)


class _Memory:
    """The code's memory, in one block: io, arguments, sync, arena, scratch of each thread. The weights lie elsewhere;
    so do arena and scratch of a session that shares them.

    Attributes:
        io: pointers to inputs, current states, outputs and next states; set before each run. Those to large constants
            follow.
        states: values that live from run to run.
        weights: the program's constants.
        arguments: per thread, the pointers that the code is called with.
        num_threads: threads that share a run in this memory; 1 where the code shares none.
        workers: those of them that have been started, without the one that calls `run`.
    """

    __slots__ = (
        *("_given", "_has_team", "_pages", "_sync", "_sync_bytes", "_work"),
        *("arguments", "io", "num_threads", "states", "weights", "workers"),
    )

    def __init__(
        self, program: Program, num_threads: int, other: _Memory | None = None, workspace: Workspace | None = None
    ) -> None:
        """
        Args:
            other: memory of the same program, to share its weights and states.
            workspace: where to compute; None for memory of its own.
        """
        self._has_team = program.sync_bytes >= LEARNT + ALIGNMENT
        num_threads = num_threads if self._has_team else 1
        self.weights: Weights = other.weights if other else Weights(program)
        constants = self.weights.constants
        pointers = ctypes.c_void_p * (len(program.inputs) + len(program.outputs) + 2 * len(program.states))
        pages: Any = ctypes.c_void_p * len(constants)
        self._sync_bytes = aligned(program.sync_bytes)
        scratch_bytes = aligned(program.scratch_bytes)
        arguments = _ARGUMENTS * num_threads
        given = aligned(ctypes.sizeof(pointers) + ctypes.sizeof(pages))
        sync = given + aligned(ctypes.sizeof(arguments))
        beside, nbytes = sync + self._sync_bytes, work_bytes(program, num_threads)
        self._pages = Memory(beside if workspace else beside + nbytes)
        self._work: Memory | None = None
        try:
            self._work = workspace.pages(nbytes) if workspace else None
            self.states: States = other.states if other else States(program)
        except DeviceError:
            self.close_pages()
            raise
        start = self._pages.address
        arena = self._work.address if self._work else start + beside
        scratch = arena + aligned(program.arena_bytes)
        self._sync = start + sync
        self.io: Any = pointers.from_address(start)
        pages.from_address(start + ctypes.sizeof(pointers))[:] = constants
        self.arguments = [
            (arena, self.weights.address, start, self._sync, scratch + thread * scratch_bytes)
            for thread in range(num_threads)
        ]
        self._given = arguments.from_address(start + given)
        for thread, values in enumerate(self.arguments):
            self._given[thread][:] = [*values, thread]
        self.num_threads = num_threads
        self.workers: Threads = []
        self._set_team()

    def worker(self, thread: int) -> int:
        """The address of a thread's arguments, as the entry `work` takes them."""
        return ctypes.addressof(self._given[thread])

    @property
    def learnt(self) -> int:
        """The address of what runs remember about threads, where `num_threads` is not 1."""
        return self._sync + LEARNT

    def kernel_clock(self, program: Program, clock: int) -> KernelClock | None:
        """Reader of the stamps that profiled code leaves; None where the sync memory has no room for them."""
        from jitdelegate.runtime.cpu.profile import KernelClock, stamp_bytes  # not before: few programs are profiled

        has_room = program.sync_bytes >= stamp_bytes(len(program.kernels))
        return KernelClock(program, clock, self._sync) if has_room else None

    def clear_sync(self) -> None:
        """Reset the sync memory to its first state, without workers: a forked child has none."""
        self.workers = []
        ctypes.memset(self._sync, 0, self._sync_bytes)
        self._set_team()

    def _set_team(self) -> None:
        if self._has_team:
            ctypes.c_int32.from_address(self._sync + TEAM).value = self.num_threads

    def close(self) -> None:
        """Free the memory; the code and `io` must not be used afterwards."""
        self.weights.release()
        self.states.close()
        self.close_pages()

    def close_pages(self) -> None:
        """Free what is not shared with other memory of the program."""
        self._pages.close()
        if self._work is not None:
            self._work.close()
