"""Requests of a CUDA session: work in its stream, in order, each with a mark at its end."""

from __future__ import annotations

import _thread

from jitdelegate.runtime.cuda.mark import Mark
from jitdelegate.runtime.event import CudaEvent
from jitdelegate.runtime.requests import Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.runtime.cuda.context import Context

DEPTH = 256
"""Most requests that the GPU has not ended; whoever enqueues another waits for the first."""


class CudaRequests:
    """The requests in a session's stream that are not known to have ended. The session's lock is held for `add`.

    Their marks keep alive what the GPU reads and writes.
    """

    __slots__ = ("_ended", "_lock", "_marks", "watcher")

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._ended = 0
        self._lock = _thread.RLock()
        self.watcher = Watcher(self.count, self._wait)

    def add(self, context: Context, stream: int, then: Callable[[], None]) -> Mark:
        """The end of what is in the stream now, after which `then` is called; it may raise a DeviceError."""
        self.count()
        mark = Mark.record(context, stream, then)
        self._marks.append(mark)
        return mark

    def make_room(self) -> None:
        """Wait until one more request may be enqueued."""
        while len(marks := [*self._marks]) >= DEPTH:
            marks[0].wait(None)
            self.count()

    def settle(self) -> None:
        """Wait for all requests."""
        for mark in [*self._marks]:
            mark.wait(None)
        self.count()

    def count(self) -> int:
        """How many have ended; their outputs are in place."""
        with self._lock:
            while self._marks and self._marks[0].is_done():
                self._marks.pop(0)
                self._ended += 1
            return self._ended

    def _wait(self, ended: int) -> None:
        marks = [*self._marks]
        if marks and self._ended == ended:
            marks[0].wait(None)


class CudaRequest(CudaEvent):
    """The end of a request of a session, which it keeps alive."""

    __slots__ = ("_requests", "_session")

    def __init__(self, mark: Mark, requests: CudaRequests, session: object) -> None:
        super().__init__(mark)
        self._requests = requests
        self._session = session

    def _failure(self) -> BaseException | None:
        self._requests.count()  # also those before it, for which nobody may wait
        return super()._failure()

    def _when_done(self, callback: Callable[[], object]) -> None:
        if self.done:
            callback()
        else:
            self._requests.watcher.add(self, callback)
