"""A program's run as a builtin function of Python, which takes a fraction of the time of a call through ctypes.

Its code is the same for all programs, so it needs no compiler. It takes the run's lock, writes the given addresses to
io, and calls the program's entry `run` without the interpreter's lock. Linux, on the processors that have a file
`builtin_run_*.py`.
"""

from __future__ import annotations

import ctypes
import struct

from jitdelegate.runtime.memory import Memory, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.runtime.memory import Code

_RUN, _LOCK, _ARGUMENTS, _IO, _SPARE = 0, 1, 2, 4, 7
"""Words of what the code is called with: the entry; 0 while nothing runs, 1 during a run, 2 if threads sleep until it
ends; the arguments of the entry, of which the third is io; room for addresses, instead of io after `close`."""
_FUNCTIONS = ("PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong")
"""What the code calls, in the order of the addresses behind it."""
_POSITIONAL = 0x80
"""Python's METH_FASTCALL: the arguments come as an array."""
_DEFINITION = struct.Struct("PPiP")
"""A PyMethodDef: name, code, flags, docstring."""
_NAME = b"run\0"

_made: tuple[int, int] | None = None


class BuiltinRun:
    """Runs of one program in one session's memory. Calls from several threads wait for each other.

    Attributes:
        run: one inference on the addresses of inputs, current states, outputs and next states; returns its status word,
            CLOSED after `close`. Without addresses, those of the last run are used again.

    Raises:
        DeviceError: executable memory is not available.
    """

    __slots__ = ("_closed", "_words", "run")

    def __init__(self, code: Code, arguments: Sequence[int], pointers: int) -> None:
        """
        Args:
            code: of the program; it may be freed after `close`, as may what the arguments point to.
            arguments: of its entry `run`.
            pointers: number of addresses in io.
        """
        definition, self._closed = _made or _make()
        self._words: Any = (ctypes.c_int64 * (_SPARE + pointers))(code.entry, 0, *arguments)
        new: Any = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.run: Callable[..., int] = new(definition, ctypes.addressof(self._words), None)

    def forked(self) -> None:
        """In a forked child: whoever ran meanwhile is gone."""
        self._words[_LOCK] = 0

    def close(self) -> None:
        """Wait for the run in progress; later ones do nothing."""
        self._words[_RUN] = self._closed
        self.run()
        self._words[_IO] = ctypes.addressof(self._words) + _SPARE * struct.calcsize("P")


def _make() -> tuple[int, int]:
    """The addresses of the function's definition, and of what runs after `close`; they live as long as the process."""
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
    _made = definition, memory.address + own.CLOSED
    return _made
