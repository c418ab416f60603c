"""Worker: one Python thread that calls functions one after another, while there are any."""

from __future__ import annotations

import _thread
import atexit
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

IDLE = 1.0
"""Seconds without work after which the thread ends; starting another takes longer than waking one."""

_serving: dict[int, Worker] = {}
"""Workers with a thread, by their own number."""
_is_exiting = False


class Worker:
    """Calls functions in the order in which they were given, in a thread of its own.

    The thread begins with the first function and ends after a second without any, so nobody has to stop it, and it
    keeps nothing alive but the functions. A function must not raise.

    When Python exits, it waits for the functions, since LiteRT or a driver may be inside one. `is_ending` is true then,
    and functions give up what they can. In a forked child, functions are dropped.

    Attributes:
        is_ending: whether Python exits.
    """

    __slots__ = ("_functions", "_lock", "_on_drop", "_thread", "_wake", "is_ending")

    def __init__(self, on_drop: Callable[[], None]) -> None:
        """
        Args:
            on_drop: called in a forked child after functions were dropped.
        """
        self._on_drop = on_drop
        self.is_ending = False
        self._begin()

    def _begin(self) -> None:
        self._lock = _thread.allocate_lock()
        self._wake = _thread.allocate_lock()
        self._wake.acquire()
        self._functions: list[Callable[[], None]] = []
        self._thread = 0

    def call(self, function: Callable[[], None]) -> None:
        """Call the function once all that were given before have returned.

        Raises:
            DeviceError: Python exits, or the system allows no more threads.
        """
        with self._lock:
            if _is_exiting:
                raise DeviceError("Python is exiting")
            self._functions.append(function)
            if self._thread:
                if self._wake.locked():
                    self._wake.release()
                return
            try:
                self._thread = -1  # none of a thread's numbers
                _serving[id(self)] = self
                self._thread = _thread.start_new_thread(self._serve, ())
            except (RuntimeError, MemoryError) as error:
                self._functions.remove(function)
                self._end()
                raise DeviceError(f"no thread: {error}") from error

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the worker's."""
        return self._thread == _thread.get_ident()

    def _serve(self) -> None:
        while True:
            with self._lock:
                function = self._functions.pop(0) if self._functions else None
            if function is not None:
                function()
                function = None  # before waiting: it may keep a model alive
                continue
            if not self._wake.acquire(timeout=IDLE):
                with self._lock:
                    if not self._functions:
                        self._end()
                        return

    def _end(self) -> None:
        self._thread = 0
        _serving.pop(id(self), None)

    def abort(self) -> None:
        """Wait for the functions; Python exits."""
        done = _thread.allocate_lock()
        done.acquire()
        with self._lock:
            if not self._thread or self.is_current:
                return
            self._functions.append(done.release)
            if self._wake.locked():
                self._wake.release()
        done.acquire()

    def restart(self) -> None:
        """In a forked child: there is no thread, and locks may be held by threads of the parent."""
        self._begin()
        self._on_drop()


def _abort_all() -> None:
    global _is_exiting
    _is_exiting = True
    workers = [*_serving.values()]
    for worker in workers:
        worker.is_ending = True
    for worker in workers:
        worker.abort()


def _restart_all() -> None:
    workers = [*_serving.values()]
    _serving.clear()
    for worker in workers:
        worker.restart()


atexit.register(_abort_all)
os.register_at_fork(after_in_child=_restart_all)
