"""Memory of a session, by address: zeroed pages for activations and scratch, values that live from run to run, machine
code with its functions, and the weights, with a check that these are intact."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import ZEROS, check_range
from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.buffers import Borrowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jitdelegate.program.program import Bytes, Program

    Function = Callable[[int, int, int, int, int], None]
    Run = Callable[[int, int, int, int, int], int]
    SharedFile = Any
    """That of shared_file.py, which imports this module."""

ALIGNMENT = 64
LARGE_PAGE = 2 << 20
"""Bytes that one entry of the processor's tables maps, on x86-64 and on AArch64 with pages of 4 KB. With large pages a
first run has fewer page faults, and all runs fewer misses of the tables' cache."""
_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC
_FAILED = ctypes.c_void_p(-1).value

_MOVE = 0x1 | 0x2  # Linux's MREMAP_MAYMOVE and MREMAP_FIXED
_LARGEST = sys.maxsize  # ctypes would drop the upper bits of sizes beyond size_t

TRIES = 2
"""Most disturbed runs before the weights become private."""
_NEVER = -1
ENTRIES = ("run", "work", "stop")
HOST_ENTRY = "invoke"
CLOCK_ENTRY = "clock"  # of profiled code
TEAM = 68
"""Offset in the sync memory of the number of threads that share runs, an int32 that is set before the first run."""
LEARNT = 192
"""Offset in the sync memory of what runs remember about threads, which `runtime.cpu.team_past` keeps."""

# f(arena, weights, io, sync, scratch); the interpreter's lock is released around each call
_PROTOTYPE = ctypes.CFUNCTYPE(None, *(5 * [ctypes.c_void_p]))
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, *(5 * [ctypes.c_void_p]))

libc = ctypes.CDLL(None, use_errno=True)
"""The C library; a call that failed has left its errno in `ctypes.get_errno()`."""
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,
)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


MACHINES = {"x86_64": True, "aarch64": False}
"""Processors that our own machine code runs on, and whether one finds at once what was written as code."""


def machine() -> str:
    """The processor's name if our machine code runs in this process, "" elsewhere: on other systems, in 32 bits."""
    name = os.uname().machine if sys.platform == "linux" and sys.maxsize > 1 << 32 else ""
    return name if name in MACHINES else ""


class Memory:
    """Private zeroed pages, freed by `close` only.

    They come from the system directly: Python's mmap objects would be unmapped when the interpreter ends, while a
    worker thread may still run code or spin on words in them.

    Attributes:
        address: of the first byte, page-aligned; 0 once closed.
        nbytes: size, at least 1.

    Raises:
        DeviceError: out of memory, or the system does not allow it.
    """

    __slots__ = ("address", "nbytes")

    def __init__(self, nbytes: int, *, has_gaps: bool = False) -> None:
        """
        Args:
            has_gaps: whether parts will never be touched, which large pages would make resident.
        """
        self.nbytes = max(nbytes, 1)
        self.address = _map(self.nbytes)
        if not has_gaps:
            ask_for_large_pages(self.address, self.nbytes)

    def write(self, content: Bytes) -> None:
        """Copy `content`, at most `nbytes` bytes, to the start."""
        if len(content) > self.nbytes:
            raise DeviceError(f"{len(content)} bytes do not fit in memory of {self.nbytes}")
        memoryview((ctypes.c_char * self.nbytes).from_address(self.address)).cast("B")[: len(content)] = content

    def make_executable(self) -> None:
        """Make the pages executable and read-only."""
        if libc.mprotect(self.address, self.nbytes, _EXECUTABLE):
            raise _refusal("no executable memory")
        if not MACHINES.get(machine(), True):
            _show_as_code(self.address, self.nbytes)

    def replace(self, address: int) -> None:
        """Move these pages to `address` atomically, over the pages there; this object is empty then. Linux only."""
        move = libc.mremap
        move.restype = ctypes.c_void_p
        move.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        if move(self.address, self.nbytes, self.nbytes, _MOVE, address) == _FAILED:
            raise _refusal(f"no memory of {self.nbytes} bytes at {address:#x}")
        self.address = 0

    def close(self) -> None:
        """Free the pages; harmless a second time."""
        address, self.address = self.address, 0
        if address:
            libc.munmap(address, self.nbytes)


class Workspace:
    """Memory in which the sessions of a program's partitions compute, one after another; the last one frees it.

    Args:
        program: has the largest sizes of its partitions.
        num_threads: of each session.
    """

    __slots__ = ("_nbytes", "_pages", "_users")

    def __init__(self, program: Program, num_threads: int) -> None:
        self._nbytes = work_bytes(program, num_threads)
        self._pages: Memory | None = None
        self._users = 0

    def pages(self, nbytes: int) -> Memory:
        """At least `nbytes` bytes for one session, which closes them. Others write to them between its runs."""
        if nbytes > self._nbytes:
            return Memory(nbytes)
        if self._pages is None:
            self._pages = Memory(self._nbytes)
        self._users += 1
        return _Share(self, self._pages)

    def leave(self) -> None:
        """A session computes elsewhere from now on."""
        self._users -= 1
        if not self._users and self._pages is not None:
            self._pages.close()
            self._pages = None


class _Share(Memory):
    """The pages of a workspace, for one session."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: Workspace, pages: Memory) -> None:
        self.address, self.nbytes = pages.address, pages.nbytes
        self._workspace = workspace

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            self._workspace.leave()


def work_bytes(program: Program, num_threads: int) -> int:
    """Bytes of a program's arena, then of each thread's scratch."""
    return aligned(program.arena_bytes) + num_threads * aligned(program.scratch_bytes)


def aligned(nbytes: int) -> int:
    """The first multiple of ALIGNMENT at or after `nbytes`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _show_as_code(address: int, nbytes: int) -> None:
    """Let instruction caches see what was written. Linux does that too for pages that become executable for the first
    time, as these do; without libgcc, which need not be there, that has to do."""
    try:
        clear = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError):
        return
    clear(ctypes.c_void_p(address), ctypes.c_void_p(address + nbytes))


def _map(nbytes: int) -> int:
    if nbytes > _LARGEST:
        raise DeviceError(f"no memory of {nbytes} bytes: this system counts up to {_LARGEST}")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _FAILED:
        raise _refusal(f"no memory of {nbytes} bytes")
    return int(address)


def ask_for_large_pages(address: int, nbytes: int) -> None:
    """Let the system map memory by large pages. Kernels that have none refuse, which does not matter."""
    if _HUGE is not None and nbytes >= LARGE_PAGE:
        libc.madvise(address, nbytes, _HUGE)


def _refusal(what: str) -> DeviceError:
    return DeviceError(f"{what}: {os.strerror(ctypes.get_errno())}")


def states_in_place(program: Program) -> set[int]:
    """Positions of the states whose old and new value may be the same memory."""
    inputs, outputs = len(program.inputs), len(program.outputs)
    return {made - outputs for given, made in program.aliases if given - inputs == made - outputs >= 0}


class States:
    """The states of one session. An unfinished run leaves them unchanged, but for rows of those that a run updates in
    place, which the next run overwrites if it is the same run again.

    Attributes:
        before: per state, the address that the next run reads.
        after: per state, the address that the next run writes; the same one for a state that is updated in place.

    Raises:
        DeviceError: out of memory.
    """

    __slots__ = ("_memory", "_program", "_stale", "after", "before")

    def __init__(self, program: Program) -> None:
        self._program = program
        # a cache line between buffers stays unused: kernels may read some bytes beyond the end
        rooms = [aligned(state.nbytes) + ALIGNMENT for state in program.states]
        steps = [0 if position in states_in_place(program) else room for position, room in enumerate(rooms)]
        self._memory = Memory(sum(rooms) + sum(steps)) if rooms else None
        start = self._memory.address if self._memory else 0
        self.before: list[int] = []
        self.after: list[int] = []
        for room, step in zip(rooms, steps, strict=True):
            self.before.append(start)
            self.after.append(start + step)
            start += room + step
        self._stale = list(range(len(rooms)))

    def reset(self, *, resources: bool) -> None:
        """Reset to the first values, those of resource variables if `resources`."""
        states, stale = enumerate(self._program.states), self._stale
        self._stale = [number for number, state in states if resources or not state.is_resource or number in stale]

    def prepare(self) -> None:
        """Write the first values of reset states; they stay reset until a run has ended. The program's weights, which
        hold the values, have been verified."""
        for position in self._stale:
            state = self._program.states[position]
            if state.initial == ZEROS:
                ctypes.memset(self.before[position], 0, state.nbytes)
            else:
                first = bytes(self._program.weights[state.initial : state.initial + state.nbytes])
                ctypes.memmove(self.before[position], first, state.nbytes)

    def read(self, position: int) -> bytes:
        """Current value of a state, as row-major bytes; call `prepare` first, unless a run has ended since."""
        return ctypes.string_at(self.before[position], self._program.states[position].nbytes)

    def write(self, position: int, content: bytes) -> None:
        """Set the current value of a state."""
        self._stale = [other for other in self._stale if other != position]
        ctypes.memmove(self.before[position], content, self._program.states[position].nbytes)

    def advance(self) -> None:
        """Make the values that the run has written the current ones."""
        self.before, self.after = self.after, self.before
        self._stale = []

    def so_far(self) -> list[bytes | None]:
        """Current value of each state; None for its first value."""
        return [None if position in self._stale else self.read(position) for position in range(len(self.before))]

    def close(self) -> None:
        """Free the memory."""
        if self._memory:
            self._memory.close()


class Code:
    """The loaded functions; valid until `close`.

    Attributes:
        entry: the address of `run`.
        run: one inference by the calling thread; returns its status word.
        work: the address of `void *work(void *arguments)`, a worker thread's routine. Its arguments are five
            pointers and the thread's number, from 1 on.
        stop: makes every worker return, also one that has not started yet.
        invoke: the address of the entry for LiteRT's interpreter, 0 where there is none.
        clock: the address of profiled code's clock, else 0.
    """

    __slots__ = ("_owner", "clock", "entry", "invoke", "run", "stop", "work")

    def __init__(self, addresses: dict[str, int], owner: Any) -> None:
        missing = [name for name in ENTRIES if not addresses.get(name)]
        if missing:
            raise ProgramError(f"code has no entry {', '.join(missing)}")
        self._owner = owner
        self.entry = addresses["run"]
        self.run: Run = _RUN(self.entry)
        self.work = addresses["work"]
        self.stop: Function = _PROTOTYPE(addresses["stop"])
        self.invoke = addresses.get(HOST_ENTRY, 0)
        self.clock = addresses.get(CLOCK_ENTRY, 0)

    def close(self) -> None:
        """Free the code; no thread may run it afterwards."""
        self._owner.close()


def load_code(program: Program) -> Code:
    """The functions of `program`, in their own memory.

    Raises:
        ProgramError: the code lacks an entry, or the loader refuses it.
        DeviceError: executable memory is not available.
    """
    if program.loader == "flat":
        return _load_flat(program)
    if program.loader == "object":
        return _load_object(program)
    raise ProgramError(
        f"a program for {program.target} has code for the loader {program.loader}, expected flat or object"
    )


def _load_flat(program: Program) -> Code:
    """Copy the position-independent blob: a file that changes later cannot change running code."""
    memory = Memory(len(program.code))
    try:
        memory.write(program.code)
        memory.make_executable()
        return Code({name: memory.address + offset for name, offset in program.entries}, memory)
    except (DeviceError, ProgramError):
        memory.close()
        raise


def _load_object(program: Program) -> Code:
    """Link the object file with LLVM: works on any CPU and system of llvmlite, which it imports."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    try:
        engine.add_object_file(binding.ObjectFileRef.from_data(bytes(program.code)))
        engine.finalize_object()
    except RuntimeError as error:
        raise ProgramError(f"llvmlite cannot load the code: {error}") from error
    return Code({name: engine.get_function_address(name) for name, _ in program.entries}, engine)


class Weights:
    """The weights of one program, held in place until `release`.

    Attributes:
        address: of the first byte, page-aligned.
        constants: per large constant, its address, which may be in memory of another program that has it too.
        file: the file that they are shared with; None if they are private from the start.

    Raises:
        ProgramError: a large constant is out of bounds.
    """

    __slots__ = ("_held", "_mapped", "_program", "_verified", "address", "constants", "file")

    def __init__(self, program: Program) -> None:
        """Use the program's weights in place if they are page-aligned; else give the program an aligned copy."""
        self._held = Borrowed(program.weights)
        if self._held.address % PAGE:
            self._held.release()
            program.weights = _copy_at_page(program.weights)
            self._held = Borrowed(program.weights)
        self.address = self._held.address
        self._mapped = _mapping(program.weights)
        self._program = program
        self._verified = _NEVER
        self.constants = [self._address_of(first * PAGE, pages * PAGE) for first, pages in _large_constants(program)]
        self.file = shared_file(program.weights)

    def _address_of(self, start: int, nbytes: int) -> int:
        """The address of these bytes."""
        at = self.address + start
        return self._mapped.elsewhere(at, nbytes) if self._mapped else at

    def verify(self) -> None:
        """Hash the weights, unless that was done since the file last changed.

        Raises:
            ProgramError: they are damaged.
        """
        changes = self.file.changes if self.file else 0
        if self._verified != changes:
            parts = self._mapped.parts(self.address, len(self._program.weights)) if self._mapped else ()
            verify_weights(self._program, parts)
            self._verified = changes

    def release(self) -> None:
        """Release the memory; harmless a second time."""
        self._held.release()


def _large_constants(program: Program) -> list[tuple[int, int]]:
    """(first page, pages) of each large constant, checked."""
    numbers, whole = program.large_constants, len(program.weights) // PAGE
    constants = list(zip(numbers[::2], numbers[1::2], strict=False))
    for first, pages in constants:
        check_range("first page of a large constant", first, whole)
        check_range("pages of a large constant", pages, whole - first, 1)
    return constants


def _copy_at_page(weights: Bytes) -> memoryview:
    room = bytearray(len(weights) + PAGE)
    start = -Borrowed(room).address % PAGE
    copy = memoryview(room)[start : start + len(weights)]
    copy[:] = weights
    return copy.toreadonly()


def _mapping(weights: Bytes) -> SharedFile | None:
    """The object that has mapped these bytes, shared or private by now; None for bytes of another kind."""
    owner: SharedFile | None = getattr(weights, "obj", None)
    return owner if hasattr(owner, "elsewhere") else None  # without importing SharedFile, which is rarely needed


def shared_file(weights: Bytes) -> SharedFile | None:
    """The file that these bytes are shared with; None for private ones."""
    owner = _mapping(weights)
    return owner if owner is not None and owner.shared else None


def undisturbed(file: SharedFile | None, run: Callable[[], None]) -> None:
    """Call `run`, which reads the file's bytes, until a call ends without a change of the file.

    Args:
        file: None if the bytes are private.
        run: verifies what it reads if `changes` differs from the last call. It may be called several times; only the
            last call counts.
    Raises:
        DeviceError: the file keeps changing, and there is no memory for a copy.
    """
    if file is None:
        run()
        return
    for _ in range(TRIES):
        file.look()
        before = file.changes
        run()
        file.look()
        if file.changes == before:
            return
    file.own()
    run()
