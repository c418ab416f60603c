"""What sessions found out about teams of threads, from one process to the next: a small file beside the entries.

Code times its runs, and finds out whether workers help (`targets/cpu/entry/team.py`). A process that begins anew would
run a network that a team slows down by a team at first, and a large one for a hundred runs. So a session writes what
it knows when it ends, or when Python does, and another one of the same code, on the same machine and with as many
threads, begins there. Runs neither read nor write the file, and results never depend on it.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os

from xxhash import xxh3_128

from jitdelegate.runtime.cache.records import Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Bytes
    from jitdelegate.runtime.cache.directory import CacheDirectory

NAME = ".teams"
LARGEST = 256
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Names the machine since it began, also in containers: where virtual CPUs lie may change with every start."""
WORTH = 8
"""What has passed of the time between two trials is written after one part in so many of it."""
_MAGIC = b"JITDTEA1"
_IDENTITY_BYTES = 16
_Words = 5 * ctypes.c_int64
_IS_ALONE, _IS_TRIAL, _PASSED, _LIMIT = range(4)
_pasts: dict[int, TeamPast] = {}


class TeamPast:
    """The words of one session's team, and what a file has of them."""

    def __init__(self, directory: CacheDirectory, code: Bytes, num_threads: int, address: int) -> None:
        """Begin where the last process ended.

        Args:
            code: of the program: what is timed.
            num_threads: threads that share runs.
            address: of the words, which `close` reads last.
        """
        self._records = Records(directory, NAME, _MAGIC, _IDENTITY_BYTES + ctypes.sizeof(_Words), LARGEST)
        self._identity = _identity(code, num_threads)
        self._words: ctypes.Array[ctypes.c_int64] | None = _Words.from_address(address)
        self._known = _Words()
        self._lock = _thread.allocate_lock()
        _, _, own = self._records.read().partition(self._identity)
        if own:
            self._known = _Words.from_buffer_copy(own)
        self.restore()
        _pasts[id(self)] = self

    def restore(self) -> None:
        """Set the words, which are zeros, to what is known."""
        if self._words is not None:
            ctypes.memmove(self._words, self._known, ctypes.sizeof(_Words))

    def close(self) -> None:
        """Write what is new; harmless a second time. The words are not used any more."""
        with self._lock:
            words, self._words = self._words, None
            _pasts.pop(id(self), None)
            if words is None or words[_IS_TRIAL] or not self._tells(words):
                return
            before, _, own = self._records.read().partition(self._identity)
            self._records.write(before + own[ctypes.sizeof(_Words) :] + self._identity + bytes(words))

    def _tells(self, words: ctypes.Array[ctypes.c_int64]) -> bool:
        """Whether the words tell more than the file."""
        known = self._known
        if (words[_IS_ALONE], words[_LIMIT]) != (known[_IS_ALONE], known[_LIMIT]):
            return True
        return (words[_PASSED] - known[_PASSED]) * WORTH > words[_LIMIT]


def _identity(code: Bytes, num_threads: int) -> bytes:
    """16 bytes that differ for another code, number of threads, set of CPUs or machine."""
    state = xxh3_128(code)
    try:
        descriptor = os.open(BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
        try:
            state.update(os.read(descriptor, 64))
        finally:
            os.close(descriptor)
    except OSError:
        state.update(os.uname().nodename.encode())
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    state.update(f"{num_threads} {cpus}".encode())
    return state.digest()


def _close_all() -> None:
    """Python exits, and closes no session."""
    for past in [*_pasts.values()]:
        past.close()


atexit.register(_close_all)
