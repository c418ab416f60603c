"""Native threads for machine code. No Python runs in them, so they can leave while Python itself ends."""

from __future__ import annotations

import ctypes
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal  # which wraps the same functions in enums, at ten times the cost
else:
    import _signal

_FAULTS = {_signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGSEGV}
"""Signals that a thread raises by what it does itself; blocking them would end the process without a word."""

_libc = ctypes.CDLL(None)
_libc.pthread_create.argtypes = 4 * (ctypes.c_void_p,)
_libc.pthread_join.argtypes = 2 * (ctypes.c_void_p,)


def start(routine: int, argument: int) -> int:
    """A thread that runs `void *routine(void *argument)` in machine code; `join` has to follow once.

    Signals go to the process's other threads.

    Args:
        routine: its address.
        argument: what it is called with.
    Raises:
        DeviceError: the system gives no more threads.
    """
    thread = ctypes.c_void_p()
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - _FAULTS)
    try:
        status = _libc.pthread_create(ctypes.byref(thread), None, routine, argument)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    if status:
        raise DeviceError(f"no thread: {os.strerror(status)}")
    return thread.value or 0


def join(thread: int) -> None:
    """Return when the thread has left its code."""
    _libc.pthread_join(thread, None)
