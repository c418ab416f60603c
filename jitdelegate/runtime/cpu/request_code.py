"""Machine code for native requests: the loop of a thread that runs them, and how others wait for and wake it.

It is the same for all programs, so it needs no compiler: the loop calls a program's entry `run`. Linux, on the
processors that have a file `request_code_*.py`.

Words that are waited for are a 64-bit number that only grows, then a 32-bit count of threads that sleep until it does.
A thread spins for microseconds first. Sleeping is the system's futex.
"""

from __future__ import annotations

import ctypes

from jitdelegate.runtime.memory import Memory, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WORD = 8
SUBMITTED, TAKEN, COMPLETED, STOP, RECORDS = 0, 64, 128, 192, 256
"""Offsets in the control memory: numbers of requests that were submitted, that threads have taken, and that have ended
with all before them; the stop flag; the ring of records. Beside the first lie the count of threads that sleep, and the
doorbell, the word on which they do."""
DRAIN, ABORT = 1, 2
"""Values of the stop flag: threads leave once no request waits, or at once. A request that waits for an event is
abandoned if the flag is larger than the patience of this wait."""
FINISHED, OUTCOME, EVENTS, COPIES, CONTENT = range(5)
"""Words of a record: the number of requests with which this one has ended; what became of it, ABANDONED or the status
word that `run` has returned; how many events it waits for, and how many copies follow the run; then a triple per event
(address of its word, value to wait for, patience), the addresses for io, and a triple per copy (target, source,
bytes)."""
ABANDONED = 1
"""Outcome of a request that did not run; no status word has this value."""
CONTROL, RUN, POINTERS, RECORD_BYTES, MASK, ARGUMENTS, LOOP_WORDS = 0, 1, 2, 3, 4, 5, 10
"""Words of what the loop is called with: the control memory, the entry `run`, how many addresses io has, bytes of a
record, number of records minus one, the arguments of `run`, of which the third is io."""


class RequestCode:
    """The functions, in memory that lives as long as the process.

    Attributes:
        loop: the address of `void *loop(void *words)`, for `workers.start`.
        wait: (address of a word, number, address of a timespec or None): returns once the word has reached the number.
            It may return early, after a signal or a wake-up of a thread with a timeout: look again.
        ring: (control memory): count one more request as submitted, and wake a thread for it.
        stop: (control memory, flag): set the stop flag, and wake all threads.
        tell: (address of a word, number): set a word that others wait for.
        order: (): call it after a word that Python has read, and before what the word tells of is read.

    Raises:
        DeviceError: executable memory is not available.
    """

    __slots__ = ("loop", "order", "ring", "stop", "tell", "wait")

    def __init__(self) -> None:
        own: Any = __import__(f"{__name__}_{machine()}", fromlist=["CODE"])
        memory = Memory(len(own.CODE) // 2)
        memory.write(bytes.fromhex(own.CODE))
        memory.make_executable()
        word, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        self.loop = memory.address
        # the interpreter's lock is released while waiting only: the others take less time than getting it back
        self.wait: Callable[[int, int, int | None], int] = ctypes.CFUNCTYPE(flag, word, number, ctypes.c_void_p)(
            memory.address + own.WAIT
        )
        self.ring: Callable[[int], None] = ctypes.PYFUNCTYPE(None, word)(memory.address + own.RING)
        self.stop: Callable[[int, int], None] = ctypes.PYFUNCTYPE(None, word, flag)(memory.address + own.STOP)
        self.tell: Callable[[int, int], None] = ctypes.PYFUNCTYPE(None, word, number)(memory.address + own.TELL)
        self.order: Callable[[], None] = ctypes.PYFUNCTYPE(None)(memory.address + own.ORDER)


_code: RequestCode | None = None


def request_code() -> RequestCode:
    """The functions, made once per process.

    Raises:
        DeviceError: executable memory is not available.
    """
    global _code
    if _code is None:
        _code = RequestCode()
    return _code
