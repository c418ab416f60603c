"""Event: something that will have happened, such as the end of a request that runs meanwhile."""

from __future__ import annotations

import _thread

from jitdelegate.errors import DeviceError, EventTimeoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

FOREVER = -1
"""LiteRT's timeout for no limit."""


class Event:
    """Something that will have happened, usually that a request has run; `CompiledModel.run_async` returns one.

    It can be waited for by `wait`, in a coroutine by `await`, and by requests, where a tensor buffer has it
    (`TensorBuffer.set_event`). All of its methods may be called from any thread, at any time and any number of times.
    After a fork, events of requests of the parent process fail in the child.

    An event that is made by the class itself, `Event()`, is a managed one: it is done once `signal` was called.
    """

    __slots__ = ("__weakref__", "_callbacks", "_error", "_is_done", "_lock")

    def __init__(self) -> None:
        self._lock = _thread.RLock()  # a signal handler may signal the event during any call
        self._callbacks: list[Callable[[], object]] = []
        self._error: BaseException | None = None
        self._is_done = False

    @classmethod
    def create_managed(cls) -> Event:
        """An event that is done once `signal` was called: LiteRT's Event::CreateManaged."""
        return Event()

    def signal(self) -> None:
        """Let a managed event happen; harmless a second time.

        Raises:
            DeviceError: the event is not a managed one, but stands for a request or for work of a GPU.
        """
        self._finish(None)

    @property
    def done(self) -> bool:
        """Whether it has happened, or cannot happen any more."""
        return self._is_done

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has happened. Other threads of Python run meanwhile.

        Args:
            timeout: in seconds; None waits without a limit, as does LiteRT's -1.
        Raises:
            TimeoutError: it has not happened in time; the request goes on, and the event can be waited for again.
            DeviceError: the request failed, or its model was closed before it ran.
        """
        if not self.done and not self._block(None if timeout is None or timeout == FOREVER else max(timeout, 0.0)):
            raise EventTimeoutError(f"the event has not happened within {timeout} seconds")
        error = self._failure()
        if error is not None:
            raise error

    def wait_quietly(self) -> None:
        """Wait until it has happened, well or not."""
        if not self.done:
            self._block(None)

    def __await__(self) -> Generator[Any, None, None]:
        """As `wait`, in a coroutine: the loop, which may be any of asyncio's kind, runs on meanwhile.

        Cancelling this, as `asyncio.wait_for` does after its timeout, leaves the request alone, and the event can be
        awaited again.
        """
        if not self.done:
            from asyncio import get_running_loop  # whoever awaits has imported it

            loop = get_running_loop()
            future = loop.create_future()

            def resolve() -> None:
                if not future.done():  # it may have been cancelled
                    future.set_result(None)

            def tell() -> None:
                try:
                    loop.call_soon_threadsafe(resolve)
                except RuntimeError:  # the loop was closed meanwhile
                    return

            self._when_done(tell)
            yield from future
        self.wait(0)

    def _finish(self, error: BaseException | None) -> None:
        """Let it have happened, well or with an error; what was called before counts."""
        with self._lock:
            if self._is_done:
                return
            self._error, self._is_done = error, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _forget_lock(self) -> None:
        """After a fork: another thread of the parent may have held the lock."""
        self._lock = _thread.RLock()

    def _failure(self) -> BaseException | None:
        """Why it failed; asked once it is done."""
        return self._error

    def _when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` once it is done, in any thread; now if it is done already."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback()

    def _block(self, timeout: float | None) -> bool:
        """Wait for at most `timeout` seconds; whether it is done."""
        happened = _thread.allocate_lock()
        happened.acquire()
        self._when_done(happened.release)
        if happened.acquire(timeout=FOREVER if timeout is None else timeout):
            return True
        with self._lock:
            self._callbacks = [each for each in self._callbacks if each != happened.release]
        return self._is_done


class RequestEvent(Event):
    """The end of a request, or of a GPU's work."""

    __slots__ = ()

    def signal(self) -> None:
        raise DeviceError("only a managed event can be signaled, which Event.create_managed() makes")
