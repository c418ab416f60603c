"""A program's run as a builtin function of Python, which takes a fraction of the time of a call through ctypes.

Its code is the same for all programs, so it needs no compiler. It takes the run's lock, writes the given addresses to
io, calls the program's entry `run` without the interpreter's lock, and exchanges current and next states. Linux, on the
processors that have a file `builtin_run_*.py`.
"""

from __future__ import annotations

import ctypes
import struct

from jitdelegate.runtime.memory import Memory, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.memory import Code

_RUN, _LOCK, _ARGUMENTS, _IO, _COUNTS, _TURNS, _SPARE = 0, 1, 2, 4, 7, 10, 11
"""Words of what the code is called with: the function to call; 0 while nothing runs, 1 during a run, 2 if threads sleep
until it ends; the arguments of the entry, of which the third is io; how many inputs there are, how many states, and how
many addresses before the next states; how often states were exchanged; room for addresses, instead of io after
`close`."""
_FUNCTIONS = ("PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong")
"""What the code calls, in the order of the addresses behind it."""
_POSITIONAL = 0x80
"""Python's METH_FASTCALL: the arguments come as an array."""
_DEFINITION = struct.Struct("PPiP")
"""A PyMethodDef: name, code, flags, docstring."""
_NAME = b"run\0"

_made: tuple[int, int] | None = None


class BuiltinRun:
    """Runs of one program in one session's memory, between `resume` and `pause`. Calls from several threads wait for
    each other.

    Attributes:
        run: one inference on the addresses of all inputs, then of all outputs; returns its status word, or NOT_RUN.

    Raises:
        DeviceError: executable memory is not available.
    """

    __slots__ = ("_entry", "_idle", "_io", "_words", "run")

    def __init__(self, code: Code, arguments: Sequence[int], program: Program) -> None:
        """
        Args:
            code: of the program; it may be freed after `close`, as may what the arguments point to.
            arguments: of its entry `run`.
        """
        definition, self._idle = _made or _make()
        self._entry, self._io = code.entry, arguments[2]
        inputs, states, outputs = len(program.inputs), len(program.states), len(program.outputs)
        counts = inputs, states, inputs + states + outputs
        spare = [0] * (counts[2] + states)
        content = [self._idle, 0, *arguments, *counts, 0, *spare]
        self._words: Any = (ctypes.c_int64 * len(content))(*content)
        new: Any = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.run: Callable[..., int] = new(definition, ctypes.addressof(self._words), None)

    def resume(self) -> None:
        """Let calls run the program from now on, on the states in io."""
        self._words[_TURNS], self._words[_IO] = 0, self._io
        self._words[_RUN] = self._entry

    def pause(self) -> bool:
        """Wait for the run in progress; later calls return NOT_RUN, and change nothing.

        Returns:
            whether current and next states have changed places since `resume`.
        """
        self._words[_RUN] = self._idle
        self.run()
        self._words[_IO] = ctypes.addressof(self._words) + _SPARE * ctypes.sizeof(ctypes.c_int64)
        return bool(self._words[_TURNS] % 2)

    def forked(self) -> bool:
        """In a forked child: as `pause`, without whoever ran meanwhile."""
        self._words[_LOCK] = 0
        return self.pause()


def _make() -> tuple[int, int]:
    """The addresses of the function's definition, and of what is called between runs; they live as long as the
    process."""
    global _made
    own: Any = __import__(f"{__name__}_{machine()}", fromlist=["CODE"])
    functions = (getattr(ctypes.pythonapi, name) for name in _FUNCTIONS)
    addresses = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    code = bytes.fromhex(own.CODE) + struct.pack(f"{len(_FUNCTIONS)}P", *addresses)
    memory = Memory(len(code) + _DEFINITION.size + len(_NAME))
    definition = memory.address + len(code)
    content = _DEFINITION.pack(definition + _DEFINITION.size, memory.address, _POSITIONAL, 0)
    memory.write(code + content + _NAME)
    memory.make_executable()
    _made = definition, memory.address + own.IDLE
    return _made
