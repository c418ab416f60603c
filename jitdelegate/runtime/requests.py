"""Requests: runs that a caller need not wait for, on a Python thread, and the events at their ends."""

from __future__ import annotations

import _thread

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.event import Event, RequestEvent
from jitdelegate.runtime.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CLOSED = "the model was closed before the request ran"
EXITED = "Python exited before the request ran"
FORKED = "the request is one of the process that forked this one"
SLICE = 0.05
"""Seconds between looks at whether to go on waiting for another's event."""


class Requests:
    """Requests of one session or model, which run one after another in the order in which they came.

    Any thread may call any method.
    """

    __slots__ = ("_events", "_is_closed", "_lock", "_worker")

    def __init__(self) -> None:
        self._worker = Worker(self._drop)
        self._lock = _thread.allocate_lock()
        self._events: list[Event] = []
        self._is_closed = False

    def submit(self, run: Callable[[], None], needs: Sequence[Event] = (), after: Sequence[Event] = ()) -> RequestEvent:
        """Call `run` later; the event has its error.

        Args:
            needs: events that have to happen first; if one fails, so does the request.
            after: events that have to happen first, well or not.
        Raises:
            DeviceError: closed, or there is no thread to be had.
        """
        event = RequestEvent()
        with self._lock:
            if self._is_closed:
                raise DeviceError("the model is closed")
            self._events.append(event)
            try:
                self._worker.call(lambda: self._serve(event, run, needs, after))
            except DeviceError:
                self._events.remove(event)
                raise
        return event

    def _serve(self, event: Event, run: Callable[[], None], needs: Sequence[Event], after: Sequence[Event]) -> None:
        error = DeviceError(EXITED) if self._worker.is_ending else self._wait(needs, after) or outcome(run)
        with self._lock:
            self._events.remove(event)
        event._finish(error)

    def _wait(self, needs: Sequence[Event], after: Sequence[Event]) -> BaseException | None:
        """Wait for events; the reason why the request cannot run."""
        for event in (*needs, *after):
            while not event._block(SLICE):
                if self._is_closed or self._worker.is_ending:
                    return DeviceError(CLOSED if self._is_closed else EXITED)
        return next(filter(None, (failed_before(event._failure()) for event in needs)), None)

    @property
    def is_idle(self) -> bool:
        """Whether all requests have ended."""
        return not self._events

    def close(self) -> None:
        """Wait for all requests, and take no more. Those whose events have not happened fail instead."""
        with self._lock:
            self._is_closed = True
        self.settle()

    def settle(self) -> None:
        """Wait for all requests, unless one of them calls this."""
        for event in [] if self._worker.is_current else [*self._events]:
            event.wait_quietly()

    def _drop(self) -> None:
        self._lock = _thread.allocate_lock()
        events, self._events = self._events, []
        for event in events:
            event._forget_lock()
            event._finish(DeviceError(FORKED))


def outcome(run: Callable[[], None]) -> BaseException | None:
    """The error that `run` raises; None if it raises none."""
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the event gets it
        return error
    return None


def failed_before(cause: BaseException | None) -> DeviceError | None:
    """The error of a request that had to wait for an event, which failed for this cause; None without one."""
    if cause is None:
        return None
    error = DeviceError(f"what the request had to wait for has failed: {cause}")
    error.__cause__ = cause
    return error


def all_of(events: Sequence[Event]) -> Event:
    """An event that happens when all of these have happened, well or not."""
    both, left = Event(), [*events]

    def count() -> None:
        left.pop()  # without a lock: a signal handler may signal an event during this
        if not left:
            both._finish(None)

    for event in events:
        event._when_done(count)
    return both


class Watcher:
    """Calls functions when events of one queue are done; it has a thread only while there are such functions."""

    __slots__ = ("_block", "_count", "_is_watching", "_lock", "_pending", "_worker")

    def __init__(self, count: Callable[[], int], block: Callable[[int], None]) -> None:
        """
        Args:
            count: how many events of the queue are done.
            block: returns when more are done than this number, or now and then.
        """
        self._count = count
        self._block = block
        self._worker = Worker(self._drop)
        self._lock = _thread.allocate_lock()
        self._pending: list[tuple[Event, Callable[[], object]]] = []
        self._is_watching = False

    def add(self, event: Event, callback: Callable[[], object]) -> None:
        """Call `callback`, which must not raise, once the event is done.

        Raises:
            DeviceError: there is no thread to be had.
        """
        with self._lock:
            self._pending.append((event, callback))
            if self._is_watching:
                return
            try:
                self._worker.call(self._watch)
            except DeviceError:
                self._pending.pop()
                raise
            self._is_watching = True

    def _watch(self) -> None:
        while not self._worker.is_ending:
            count = self._count()
            with self._lock:
                pending, self._pending = self._pending, []
                done = []
                for event, callback in pending:
                    if event.done:
                        done.append(callback)
                    else:
                        self._pending.append((event, callback))
                self._is_watching = bool(pending)
            if not pending:
                return
            for callback in done:
                callback()
            if self._pending:
                self._block(count)

    def _drop(self) -> None:
        self._lock = _thread.allocate_lock()
        self._pending = []
        self._is_watching = False
