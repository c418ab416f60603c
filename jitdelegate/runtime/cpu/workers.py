"""Native threads for machine code. No Python runs in them, so they can end while Python exits."""

from __future__ import annotations

import ctypes
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal  # the same numbers wrapped in enums, at ten times the cost

    Threads = list[ctypes.c_void_p]
else:
    import _signal

_FAULTS = (_signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGSEGV)
"""Signals that a thread causes itself; blocking them would end the process silently."""

_libc = ctypes.CDLL(None)
_libc.pthread_create.argtypes = 4 * (ctypes.c_void_p,)
_libc.pthread_join.argtypes = 2 * (ctypes.c_void_p,)
_libc.pthread_sigmask.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SignalSet = ctypes.c_char * 128  # as large as anywhere
_others = _SignalSet()
_libc.sigfillset(_others)
for _number in _FAULTS:
    _libc.sigdelset(_others, int(_number))


def start(routine: int, argument: int, threads: Threads) -> None:
    """Add a thread to `threads` that runs `void *routine(void *argument)` in machine code; `join` has to follow once.

    Signals go to the process's other threads. A Python signal handler that raises, as on Ctrl-C, may end this function
    at any point: then every thread is in `threads`, and the signal mask is restored.

    Args:
        routine: its address.
        argument: its argument.
    Raises:
        DeviceError: the system allows no more threads.
    """
    thread, before = ctypes.c_void_p(), _SignalSet()
    threads.append(thread)  # first: an interrupt may end the function before a later line
    # through C: Python's function runs handlers, which may raise, after it has changed the mask
    _libc.pthread_sigmask(_signal.SIG_BLOCK, None, before)
    try:
        _libc.pthread_sigmask(_signal.SIG_BLOCK, _others, None)
        status = _libc.pthread_create(ctypes.byref(thread), None, routine, argument)
    finally:
        _libc.pthread_sigmask(_signal.SIG_SETMASK, before, None)
    if status:
        threads.remove(thread)
        raise DeviceError(f"no thread: {os.strerror(status)}")


def join(thread: ctypes.c_void_p) -> None:
    """Wait until the thread has ended; returns at once if `start` was interrupted before the thread existed."""
    if thread.value:
        _libc.pthread_join(thread, None)
