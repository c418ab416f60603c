"""One compilation of one model at a time, across threads and processes.

Correctness never depends on it. Without the lock (no such system call, a read-only directory, a process that takes too
long), two processes compile the same model, and the later one replaces the entry by equal bytes.
"""

from __future__ import annotations

import os
import time

from jitdelegate.runtime.cache.place import LOCK_SUFFIX, close_quietly

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.place import Place

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class Lock:
    """Held between `acquire` and `release`.

    Attributes:
        timed_out: whether `acquire` waited for another process in vain.
    """

    __slots__ = ("_descriptor", "_name", "_place", "timed_out")

    def __init__(self, place: Place, entry: str) -> None:
        self._place = place
        self._name = f".{entry}{LOCK_SUFFIX}"
        self._descriptor = -1
        self.timed_out = False

    def acquire(self, longest_wait: float) -> bool:
        """Take the lock; False after `longest_wait` seconds, or where locks are not supported."""
        deadline = time.monotonic() + longest_wait
        pause = _FIRST_PAUSE
        while fcntl is not None:
            try:
                if self._try():
                    return True
            except OSError:
                return False
            if time.monotonic() >= deadline:
                self.timed_out = True
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return False

    def release(self) -> None:
        """Release the lock; harmless where it is not held."""
        if self._descriptor >= 0:
            self._place.remove(self._name)  # while it is held: nobody else holds what is removed
            descriptor, self._descriptor = self._descriptor, -1
            close_quietly(descriptor)

    def _try(self) -> bool:
        descriptor = self._place.open_lock(self._name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), self._place.stat(self._name)):
                self._descriptor, descriptor = descriptor, -1
                return True
        except (BlockingIOError, FileNotFoundError):
            pass  # held, or removed by the one who held it
        finally:
            if descriptor >= 0:
                close_quietly(descriptor)
        return False
