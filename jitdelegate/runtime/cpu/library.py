"""Makes a program's machine code callable."""

from __future__ import annotations

import ctypes

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.runtime.memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jitdelegate.program.program import Program

    Function = Callable[[int, int, int, int, int], None]
    Run = Callable[[int, int, int, int, int], int]

ENTRIES = ("run", "work", "stop")
HOST_ENTRY = "invoke"
CLOCK_ENTRY = "clock"  # of profiled code
TEAM = 68
"""Offset in the sync memory of the number of threads that share runs, an int32 that is set before the first run."""

# f(arena, weights, io, sync, scratch); the interpreter's lock is released around each call
_PROTOTYPE = ctypes.CFUNCTYPE(None, *(5 * [ctypes.c_void_p]))
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, *(5 * [ctypes.c_void_p]))


class Code:
    """The loaded functions; valid until `close`.

    Attributes:
        run: one inference by the calling thread; returns its status word.
        work: the address of `void *work(void *arguments)`, a worker thread's routine. Its arguments are five
            pointers and the thread's number, from 1 on.
        stop: makes every worker return, also one that has not started yet.
        invoke: the address of the entry for LiteRT's interpreter, 0 where there is none.
        clock: the address of profiled code's clock, else 0.
    """

    __slots__ = ("_owner", "clock", "invoke", "run", "stop", "work")

    def __init__(self, addresses: dict[str, int], owner: Any) -> None:
        missing = [name for name in ENTRIES if not addresses.get(name)]
        if missing:
            raise ProgramError(f"code has no entry {', '.join(missing)}")
        self._owner = owner
        self.run: Run = _RUN(addresses["run"])
        self.work = addresses["work"]
        self.stop: Function = _PROTOTYPE(addresses["stop"])
        self.invoke = addresses.get(HOST_ENTRY, 0)
        self.clock = addresses.get(CLOCK_ENTRY, 0)

    def close(self) -> None:
        """Free the code; no thread may run it afterwards."""
        self._owner.close()


def load(program: Program) -> Code:
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
