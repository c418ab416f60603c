"""One compilation of one model at a time, across threads and processes.

Others wait as long as the holder computes: while a process compiles, it touches the lock file once a second, and a dead
one's lock is free. Correctness never depends on it. Without the lock (no such system call, a read-only directory, a
holder that is stopped or hangs), two processes compile the same model, and the later one replaces the entry by equal
bytes.
"""

from __future__ import annotations

import _thread
import os
import time

from jitdelegate.runtime.cache.directory import LOCK_SUFFIX, close_quietly

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.runtime.cache.directory import CacheDirectory

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
BEAT = 1.0
"""Seconds from one sign of life to the next."""
LEAST_WORK = 0.001
"""Seconds of CPU time of this process in between, without which there is none: a compiler that hangs is not waited
for."""


class Lock:
    """Held between `acquire` and `release`.

    Attributes:
        timed_out: whether `acquire` waited for another process in vain.
    """

    __slots__ = ("_descriptor", "_directory", "_name", "timed_out")

    def __init__(self, directory: CacheDirectory, entry: str) -> None:
        self._directory = directory
        self._name = f".{entry}{LOCK_SUFFIX}"
        self._descriptor = -1
        self.timed_out = False

    def acquire(self, longest_wait: float, longest_silence: float = float("inf")) -> bool:
        """Take the lock; False after `longest_wait` seconds, once its holder has given no sign of life for
        `longest_silence` seconds, or where locks are not supported."""
        heard, last = time.monotonic(), 0
        deadline, pause = heard + longest_wait, _FIRST_PAUSE
        while fcntl is not None:
            try:
                if self._try():
                    return True
            except OSError:
                return False
            now, sign = time.monotonic(), self._last_sign()
            if sign != last:
                heard, last = now, sign
            if now >= min(deadline, heard + longest_silence):
                self.timed_out = True
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return False

    def release(self) -> None:
        """Release the lock; harmless where it is not held."""
        if self._descriptor >= 0:
            self._directory.remove(self._name)  # while it is held: nobody else holds what is removed
            descriptor, self._descriptor = self._descriptor, -1
            close_quietly(descriptor)

    def beating(self) -> Beats:
        """`with lock.beating():` gives signs of life from a thread, up to the end."""
        return Beats(self._directory, self._name, is_held=self._descriptor >= 0)

    def _last_sign(self) -> int:
        """When its holder gave a sign of life, by the file system's clock."""
        try:
            return self._directory.stat(self._name).st_mtime_ns
        except OSError:
            return 0

    def _try(self) -> bool:
        descriptor = self._directory.open_lock(self._name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), self._directory.stat(self._name)):
                self._descriptor, descriptor = descriptor, -1
                return True
        except (BlockingIOError, FileNotFoundError):
            pass  # held, or removed by the one who held it
        finally:
            if descriptor >= 0:
                close_quietly(descriptor)
        return False


class Beats:
    """See `Lock.beating`. Nobody waits for its thread, which may touch the file once more after the end."""

    def __init__(self, directory: CacheDirectory, name: str, *, is_held: bool) -> None:
        self._directory, self._name, self._is_held = directory, name, is_held
        self._going_on = _thread.allocate_lock()

    def __enter__(self) -> None:
        self._going_on.acquire()
        if self._is_held and not _is_address_space_limited():
            try:  # noqa: SIM105 - contextlib is not imported on the load path
                _thread.start_new_thread(self._beat, ())
            except (RuntimeError, MemoryError):
                pass  # others may compile as well

    def __exit__(self, *_: object) -> None:
        self._going_on.release()

    def _beat(self) -> None:
        worked = time.process_time()
        while not self._going_on.acquire(timeout=BEAT):
            before, worked = worked, time.process_time()
            try:
                if worked - before >= LEAST_WORK:
                    self._directory.touch(self._name)
            except OSError:
                return  # others may compile as well


def _is_address_space_limited() -> bool:
    """Whether the stack and the heap of a thread might take what LiteRT needs after the compiler found no memory."""
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit  # not before: a hit waits for nobody

    return getrlimit(RLIMIT_AS)[0] != RLIM_INFINITY
