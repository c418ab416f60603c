"""Requests of a CUDA session: work in its stream, in order, each with a mark at its end."""

from __future__ import annotations

import _thread

from jitdelegate.runtime.cuda.mark import Mark
from jitdelegate.runtime.event import CudaEvent
from jitdelegate.runtime.requests import Watcher, failed_before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.errors import DeviceError
    from jitdelegate.runtime.cuda.context import Context
    from jitdelegate.runtime.event import Event

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

    __slots__ = ("_failed", "_may_be_refused", "_needs", "_requests", "_session")

    def __init__(
        self, mark: Mark, requests: CudaRequests, session: object, needs: Sequence[Event], *, may_be_refused: bool
    ) -> None:
        """
        Args:
            needs: events that had to happen first; the request fails where one of them fails.
            may_be_refused: for the values of its inputs.
        """
        super().__init__(mark)
        self._requests = requests
        self._session = session
        self._may_be_refused = may_be_refused
        self._failed: DeviceError | None = None
        self._needs = tuple(need for need in needs if isinstance(need, CudaRequest) and need.may_fail())

    def may_fail(self) -> bool:
        """Whether it can fail, or has failed, for the values of its inputs or because of what it needs."""
        self._forget_needs()
        return bool(self._needs or self._failed or (self._may_be_refused and not self.done) or self.mark.error)

    def _forget_needs(self) -> None:
        """Forget what it needed and has happened, but for a failure."""
        todo, seen = [self], {id(self)}  # a loop: a chain of requests may be longer than Python's stack
        while todo:
            event = todo[-1]
            earlier = [need for need in event._needs if need._needs and need.done and id(need) not in seen]
            if earlier:
                seen.update(map(id, earlier))
                todo += earlier
                continue
            todo.pop()
            happened = [need for need in event._needs if need.done]
            for need in happened:
                event._failed = event._failed or failed_before(need._failed or need.mark.error)
            event._needs = tuple(need for need in event._needs if need not in happened)

    def _failure(self) -> BaseException | None:
        self._requests.count()  # also those before it, for which nobody may wait
        self._forget_needs()
        return self._failed or super()._failure()

    def _when_done(self, callback: Callable[[], object]) -> None:
        if self.done:
            callback()
        else:
            self._requests.watcher.add(self, callback)
