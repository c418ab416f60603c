"""Native requests: threads that Python knows nothing of run a session's requests, several at a time."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import time
from _weakref import ref

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cpu import request_code, workers
from jitdelegate.runtime.event import Event, RequestEvent
from jitdelegate.runtime.memory import ALIGNMENT, aligned
from jitdelegate.runtime.requests import CLOSED, EXITED, FORKED, Watcher, all_of, failed_before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.runtime.binding import Binding
    from jitdelegate.runtime.cpu.workers import Threads
    from jitdelegate.runtime.memory import Code

DEPTH = 256
"""Most requests that wait or run; a power of two. Whoever submits another waits for the first."""
MOST_EVENTS = 8
"""Most events that a request waits for one by one."""
IMPATIENT, PATIENT = 0, request_code.ABORT
"""Up to which stop flag a request waits for an event: another's may never happen, those of the same requests do."""
_LAST = (1 << 63) - 1
_WORD = request_code.WORD
_COMPLETED, _RECORDS = request_code.COMPLETED // _WORD, request_code.RECORDS // _WORD

_open: dict[int, NativeRequests] = {}
"""All that are not closed, by their own number."""


class NativeRequests:
    """Requests that native threads run, each with memory of its own. They begin and are told in the order in which they
    came; as many run at a time as there are threads.

    Any thread may call any method. Whatever the threads read is kept alive until they have done.

    Attributes:
        watcher: calls functions when events of these requests are done.
        left: in a forked child, how many requests had not ended in the parent.
    """

    __slots__ = (
        *(
            "_abandoned",
            "_closing",
            "_code",
            "_completed",
            "_control",
            "_final",
            "_held",
            "_let_go_of",
            "_lock",
            "_loops",
        ),
        *("_memory", "_reason", "_record_words", "_refusal", "_submitted", "_threads", "_words", "left", "watcher"),
    )

    def __init__(
        self,
        code: Code,
        arguments: Sequence[Sequence[int]],
        pointers: int,
        outputs: int,
        refusal: Callable[[int], DeviceError] | None = None,
    ) -> None:
        """
        Args:
            code: of the program.
            arguments: of its entry `run`, for each thread.
            pointers: number of addresses in io.
            outputs: number of outputs among them.
            refusal: the error of a run with this status word; None if the program refuses no values.
        Raises:
            DeviceError: executable memory or threads are not available.
        """
        self._code = request_code.request_code()
        words = request_code.CONTENT + 3 * MOST_EVENTS + pointers + 3 * outputs
        record = aligned(words * _WORD)
        self._record_words = record // _WORD
        # Python's own memory, since events read it after the session is closed
        self._memory = ctypes.create_string_buffer(request_code.RECORDS + DEPTH * record + ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self._control = start + -start % ALIGNMENT
        self._words: Any = (ctypes.c_int64 * ((request_code.RECORDS + DEPTH * record) // _WORD)).from_address(
            self._control
        )
        self._completed = self._control + request_code.COMPLETED
        self._submitted = self._let_go_of = 0
        self._lock, self._closing = _thread.allocate_lock(), _thread.RLock()
        self._held: list[Any] = [None] * DEPTH
        self._reason = ""
        self._refusal = refusal
        self.left = 0
        self._final: int | None = None
        self._abandoned: set[int] = set()
        self.watcher = Watcher(self._count, self._await_more)
        self._threads: Threads = []
        self._loops = []
        for loop_arguments in arguments:
            content = (self._control, code.entry, pointers, record, DEPTH - 1, *loop_arguments)
            self._loops.append((ctypes.c_uint64 * request_code.LOOP_WORDS)(*content))
        self._start()

    def _start(self) -> None:
        for loop in self._loops:
            try:
                workers.start(self._code.loop, ctypes.addressof(loop), self._threads)
            except DeviceError:  # no more threads: the others run all requests
                if not self._threads:
                    raise
        _open[id(self)] = self

    def wait_for_room(self) -> None:
        """Wait until another request can be submitted without waiting."""
        while self._submitted - self._words[_COMPLETED] >= DEPTH:
            self.wait(self._submitted - DEPTH + 1, None)

    def submit(
        self,
        session: object,
        addresses: Sequence[int],
        binding: Binding,
        needs: Sequence[Event],
        after: Sequence[Event],
    ) -> Event:
        """Let the program run on `addresses`, with the binding's copies after it.

        Args:
            session: kept alive by the event.
            needs, after: as for `IOBinding.run_async`.
        Raises:
            DeviceError: closed.
        """
        waits, words, events = self._waits((*needs, *after)) if needs or after else ((), (), ())
        needs = tuple(need for need in needs if self._may_fail_for(need)) if needs else ()
        while True:
            with self._lock:  # in one statement: Ctrl-C must not leave it held
                if self._reason:
                    raise DeviceError(self._reason)
                if self._submitted - self._words[_COMPLETED] < DEPTH:
                    done = self._let_go()
                    event = self._enqueue(session, addresses, binding, needs, (waits, words, events))
                    break
            self.wait_for_room()
        _retire(done)
        return event

    def _enqueue(
        self,
        session: object,
        addresses: Sequence[int],
        binding: Binding,
        needs: tuple[Event, ...],
        waiting: tuple[Sequence[int], Sequence[Any], Sequence[Event]],
    ) -> Event:
        """Write a record to the ring, which has room, and wake a thread for it; hold the lock.

        Args:
            waiting: what `_waits` returns.
        """
        waits, words, events = waiting
        slot = self._submitted % DEPTH
        content = [0, len(waits) // 3, len(binding.copies), *waits, *addresses]
        for copy in binding.copies:
            content += copy
        first = _RECORDS + slot * self._record_words + request_code.OUTCOME
        self._words[first : first + len(content)] = content
        goal = self._submitted + 1
        event = NativeEvent(self, session, goal, needs)
        self._held[slot] = (ref(event), binding, words, events)
        self._submitted = goal
        self._code.ring(self._control)
        return event

    def _may_fail_for(self, event: Event) -> bool:
        """Whether an event that a request of these needs may fail otherwise than by their being closed."""
        if isinstance(event, NativeEvent) and event.requests is self and not self._reason:
            return event.may_fail()
        return not event.done or event._failure() is not None

    def _waits(self, events: Sequence[Event]) -> tuple[Sequence[int], Sequence[Any], Sequence[Event]]:
        """Triples for the record, words among them to keep, and events to keep for their words."""
        waits: list[int] = []
        words: list[Any] = []
        own, others = 0, []
        for event in events:
            if isinstance(event, NativeEvent) and event.requests is self:
                own = max(own, event.goal)
            elif not event.done:
                others.append(event)
        if not others and (own <= self._words[_COMPLETED] or len(self._threads) == 1):
            return (), (), ()
        if own > self._words[_COMPLETED] and len(self._threads) > 1:
            waits += (self._completed, own, PATIENT)
        for event in others if len(others) < MOST_EVENTS else [all_of(others)]:
            if isinstance(event, NativeEvent):
                waits += (event.requests._completed, event.goal, IMPATIENT)
            else:
                words.append(self._word(event))
                waits += (ctypes.addressof(words[-1]), 1, IMPATIENT)
        return waits, words, others

    def _word(self, event: Event) -> Any:
        """A word that is 1 once the event has happened."""
        word, tell = (ctypes.c_int64 * 2)(), self._code.tell
        event._when_done(lambda: tell(ctypes.addressof(word), 1))
        return word

    def _let_go(self) -> list[Any]:
        """What requests kept alive that have ended; hold the lock."""
        completed, done = min(self._words[_COMPLETED], self._submitted), []
        if self._let_go_of < completed:
            self._code.order()
        while self._let_go_of < completed:
            slot = self._let_go_of % DEPTH
            done.append(self._held[slot])
            if self._refusal is not None:
                self._note_refusal(self._refusal, slot)
            self._held[slot] = None
            self._let_go_of += 1
        return done

    def _note_refusal(self, refusal: Callable[[int], DeviceError], slot: int) -> None:
        """Give an event the error of its request, if that was refused; its record is about to be written anew."""
        status = self._words[_RECORDS + slot * self._record_words + request_code.OUTCOME]
        event = self._held[slot][0]()
        if event is not None and status not in (0, request_code.ABANDONED):
            event._refuse(refusal(status))

    @property
    def may_refuse(self) -> bool:
        """Whether a request may be refused for the values of its inputs."""
        return self._refusal is not None

    def note_refusals(self, goal: int) -> None:
        """Let the events of ended requests up to number `goal` know whether they were refused."""
        if self._refusal is not None and self._let_go_of < goal:
            with self._lock:
                done = self._let_go()
            _retire(done)

    def _count(self) -> int:
        return int(self._words[_COMPLETED])

    def _await_more(self, completed: int) -> None:
        """Return when more than `completed` requests have ended."""
        self._code.wait(self._completed, completed + 1, None)

    def is_done(self, goal: int) -> bool:
        """Whether as many requests have ended as `goal`."""
        if self._words[_COMPLETED] < goal:
            return False
        self._code.order()
        return True

    def wait(self, goal: int, timeout: float | None) -> bool:
        """Wait for at most `timeout` seconds until as many requests have ended as `goal`; whether they have."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._words[_COMPLETED] < goal:
            if end is None:
                self._code.wait(self._completed, goal, None)
                continue
            left = end - time.monotonic()
            if left <= 0:
                return False
            seconds = int(left)
            timespec = (ctypes.c_int64 * 2)(seconds, int((left - seconds) * 1e9))
            self._code.wait(self._completed, goal, ctypes.addressof(timespec))
        self._code.order()
        return True

    def tidy(self) -> None:
        """Let go of what requests kept alive that have ended, unless another thread is about to."""
        if self._let_go_of < self._submitted and self._lock.acquire(False):
            try:
                done = self._let_go()
            finally:
                self._lock.release()
            _retire(done)

    def settle(self) -> None:
        """Wait for all requests."""
        self.wait(self._submitted, None)

    @property
    def pending(self) -> int:
        """How many requests have not ended."""
        return max(self._submitted - self._count(), 0)

    def failure(self, goal: int) -> DeviceError | None:
        """Why the request that ended as number `goal` did not run; None if it did."""
        if not self._reason:
            return None
        if self._final is None:
            first = _RECORDS + (goal - 1) % DEPTH * self._record_words
            did_run = self._words[first] != goal or self._words[first + request_code.OUTCOME] != request_code.ABANDONED
        else:
            did_run = goal <= self._final and goal not in self._abandoned
        return None if did_run else DeviceError(self._reason)

    def close(self, flag: int = request_code.DRAIN, reason: str = CLOSED) -> None:
        """Wait for all requests, except those whose events have not happened, which fail; take no more.

        Args:
            flag: ABORT lets all requests fail that do not run yet.
        """
        with self._closing:
            if self._final is not None:
                return
            with self._lock:
                self._reason = self._reason or reason
            self._code.stop(self._control, flag)
            while self._threads:
                workers.join(self._threads[-1])
                self._threads.pop()
            self._end()
        _open.pop(id(self), None)

    def forked(self) -> None:
        """In a forked child: there are no threads, and another thread of the parent may have held the lock."""
        self._lock, self._closing = _thread.allocate_lock(), _thread.RLock()
        self._reason = self._reason or FORKED
        self._threads = []
        self.left = self.pending
        self._end()

    def _end(self) -> None:
        """Let all requests have ended."""
        self.note_refusals(self._submitted)
        final = min(self._count(), self._submitted)
        for goal in range(max(final - DEPTH, 0) + 1, final + 1):
            if self.failure(goal):
                self._abandoned.add(goal)
        self._final = final
        self._code.tell(self._completed, _LAST)
        self._held = [None] * DEPTH
        self._let_go_of = self._submitted


class NativeEvent(RequestEvent):
    """The end of a native request.

    Attributes:
        requests: to which it belongs.
        goal: how many of these have ended when this one has.
    """

    __slots__ = ("_failed", "_needs", "_session", "goal", "requests")

    def __init__(self, requests: NativeRequests, session: object, goal: int, needs: tuple[Event, ...]) -> None:
        """
        Args:
            needs: events that had to happen first, and may fail.
        """
        self.requests = requests
        self.goal = goal
        self._session = session
        self._needs = needs
        self._failed: DeviceError | None = None

    @property
    def done(self) -> bool:
        return self.requests.is_done(self.goal)

    def _block(self, timeout: float | None) -> bool:
        return self.requests.wait(self.goal, timeout)

    def _when_done(self, callback: Callable[[], object]) -> None:
        if self.done:
            callback()
        else:
            self.requests.watcher.add(self, callback)

    def may_fail(self) -> bool:
        """Whether it can fail, or has failed, because of what it needs or of its inputs' values."""
        todo, seen = [self], {id(self)}  # a loop: a chain of requests may be longer than Python's stack
        while todo:
            earlier = [
                need
                for need in todo[-1]._needs
                if isinstance(need, NativeEvent) and need._needs and need.done and id(need) not in seen
            ]
            if earlier:
                seen.update(map(id, earlier))
                todo += earlier
            else:
                todo.pop()._forget_needs()
        self.requests.note_refusals(self.goal)
        may_be_refused = self.requests.may_refuse and not self.done
        return bool(self._needs or self._failed or may_be_refused)

    def _refuse(self, error: DeviceError) -> None:
        """Let the request have failed for the values of its inputs."""
        self._failed = self._failed or error

    def _forget_needs(self) -> None:
        """Forget what it needed and has happened, but for a failure."""
        happened = [need for need in self._needs if need.done]
        for need in happened:
            cause = need._own_failure() if isinstance(need, NativeEvent) else need._failure()
            self._failed = self._failed or failed_before(cause)
        self._needs = tuple(need for need in self._needs if need not in happened)

    def _own_failure(self) -> BaseException | None:
        self.requests.note_refusals(self.goal)
        return self._failed or self.requests.failure(self.goal)

    def _failure(self) -> BaseException | None:
        self.requests.tidy()
        self.may_fail()
        return self._own_failure()


def _retire(held: list[Any]) -> None:
    """Let go of what ended requests have kept alive, outside of any lock: it may use these requests as it ends.

    Their events forget what they needed: a chain of requests would keep all before alive.
    """
    while held:
        event = held.pop(0)[0]()
        if event is not None and event._needs:
            event.may_fail()


def _abort_all() -> None:
    """Before Python frees what the threads read. It runs before the workers' own function in `runtime.worker`, which is
    registered earlier: one of these may wait for a native request."""
    for request in [*_open.values()]:
        request.close(request_code.ABORT, EXITED)


def _forget_all() -> None:
    requests = [*_open.values()]
    _open.clear()
    for request in requests:
        request.forked()


atexit.register(_abort_all)
os.register_at_fork(after_in_child=_forget_all)
