"""Makes chosen calls of this process fail: by a preloaded library where there is a C compiler, else by patched `os`."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("library.c")
PRELOADED = "JITDELEGATE_FAULT_LIBRARY"
"""Names the library in the environment of a process that has it."""
COUNT, FAIL, FAIL_EVER_AFTER, KILL, SHORT = range(5)
"""What happens to the call: nothing, one fails, all from it on fail that are about the same folder, the process is
killed before it, half is done."""
CACHE, MODEL, PREBUILT, REMOTE = range(4)
"""The watched folders by their numbers."""
MEMORY = 4
"""Stands for a folder where the call was for memory."""


def compiled_library(folder: Path) -> Path | None:
    """The library, made in `folder`; None where there is no C compiler for it, or another system than Linux."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "faults.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    return made if subprocess.run(command, capture_output=True).returncode == 0 else None


class Preloaded:
    """System calls that fail in C: Python, its modules in C and ctypes see what they would see of a failing system."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.fault_names.restype = ctypes.c_char_p

    def watch(self, number: int, folder: Path) -> None:
        """Let calls below this folder count."""
        self._library.fault_watch(number, os.fsencode(folder))

    def arm(self, mode: int, at: int = 0, error: int = 0) -> None:
        """Count from here on; the call number `at` is the one."""
        self._library.fault_arm(mode, at, error)

    def disarm(self) -> tuple[int, int, list[str]]:
        """How many calls there were, the folder of the first that failed (-1 for none), what they were when counted."""
        count = self._library.fault_disarm()
        return count, self._library.fault_folder(), self._library.fault_names().decode().split()


class Patched:
    """Python's functions for system calls, replaced. Calls for the model cannot be told from those for the cache."""

    CALLS = (
        *("open", "close", "dup", "fstat", "stat", "read", "readv", "preadv", "write", "fchmod", "fsync", "fdatasync"),
        *("replace", "unlink", "listdir", "mkdir"),
    )
    HALF = ("read", "readv", "preadv", "write")

    def __init__(self) -> None:
        self._armed = False
        self._names: list[str] = []
        for module, names in ((os, self.CALLS), (fcntl, ("flock",))):
            for name in names:
                if hasattr(module, name):
                    setattr(module, name, self._patched(name, getattr(module, name)))

    def _patched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._strikes(name):
                if self._mode != SHORT:
                    if name == "close":
                        real(*arguments)
                    raise OSError(self._error, os.strerror(self._error))
                arguments = _halved(name, arguments)
            return real(*arguments, **options)

        return call

    def _strikes(self, name: str) -> bool:
        if not self._armed:
            return False
        self._names.append(name)
        number = len(self._names)
        if self._mode == KILL and number == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        hit = number == self._at or (self._mode == FAIL_EVER_AFTER and number > self._at)
        if not hit or self._mode == COUNT or (self._mode == SHORT and name not in self.HALF):
            return False
        self._folder = MODEL
        return True

    def watch(self, number: int, folder: Path) -> None:
        """As `Preloaded.watch`; here all calls count."""

    def arm(self, mode: int, at: int = 0, error: int = 0) -> None:
        """As `Preloaded.arm`."""
        self._mode, self._at, self._error, self._folder = mode, at, error, -1
        self._names, self._armed = [], True

    def disarm(self) -> tuple[int, int, list[str]]:
        """As `Preloaded.disarm`."""
        self._armed = False
        return len(self._names), self._folder, self._names


def _halved(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments for the first half of a transfer."""
    descriptor, what, *rest = arguments
    if name == "read":
        return descriptor, max(1, what // 2), *rest
    if name == "write":
        return descriptor, memoryview(what)[: max(1, len(what) // 2)], *rest
    first = memoryview(what[0])
    return descriptor, [first[: max(1, len(first) // 2)]], *rest


def injector() -> Preloaded | Patched:
    """Of this process."""
    library = os.environ.get(PRELOADED)
    return Preloaded(library) if library else Patched()
