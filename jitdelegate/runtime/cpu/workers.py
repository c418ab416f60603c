"""Native threads for machine code. No Python runs in them, so they can leave while Python itself ends."""

from __future__ import annotations

import ctypes
import os

from jitdelegate.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal  # which wraps the same numbers in enums, at ten times the cost

    Threads = list[ctypes.c_void_p]
else:
    import _signal

_FAULTS = (_signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGSEGV)
"""Signals that a thread raises by what it does itself; blocking them would end the process without a word."""

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

    Signals go to the process's other threads. A handler of Python's that raises, as on Ctrl-C, may end this function at
    any point: no thread is there then that `threads` has not, and the signals are what they were.

    Args:
        routine: its address.
        argument: what it is called with.
    Raises:
        DeviceError: the system gives no more threads.
    """
    thread, before = ctypes.c_void_p(), _SignalSet()
    threads.append(thread)  # first: who comes later may never come
    # by C alone: Python's function calls handlers, which raise, when the mask has changed already
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
    """Return when the thread has left its code, at once for one whose `start` was interrupted before it was there."""
    if thread.value:
        _libc.pthread_join(thread, None)
