"""Event: something that will have happened, such as the end of a request that runs meanwhile."""

from __future__ import annotations

import _thread

from jitdelegate.errors import DeviceError, EventTimeoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, NoReturn

    from jitdelegate.runtime.cuda.mark import Mark

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

    @classmethod
    def from_cuda_event(cls, handle: int, device: int = 0) -> Event:
        """What a CUDA event of the caller's stands for, when it was last recorded; it has to outlive this object.

        A model on the same GPU waits for it in its stream, without this process's help.

        Args:
            handle: a CUevent or cudaEvent_t: `event.cuda_event` of PyTorch, `event.ptr` of CuPy.
            device: the GPU's number.
        Raises:
            DeviceError: there is no such GPU, or no driver.
        """
        from jitdelegate.runtime.cuda.mark import Mark  # not before: most events are none of a GPU's

        return CudaEvent(Mark.of_event(handle, device))

    @classmethod
    def from_cuda_stream(cls, handle: int, device: int = 0) -> Event:
        """The end of all work that is in a CUDA stream of the caller's now.

        Args:
            handle: a CUstream or cudaStream_t: `stream.cuda_stream` of PyTorch, `stream.ptr` of CuPy.
            device: the GPU's number.
        Raises:
            DeviceError: there is no such GPU or no driver, or the driver refuses to record an event.
        """
        from jitdelegate.runtime.cuda.mark import Mark

        return CudaEvent(Mark.of_stream(handle, device))

    def signal(self) -> None:
        """Let a managed event happen; harmless a second time.

        Raises:
            DeviceError: the event is not a managed one, but stands for a request or for work of a GPU.
        """
        self._finish(None)

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always. What will happen in one process cannot be told from another.
        """
        raise TypeError("an Event cannot be copied or pickled; wait for it, and pass on the result")

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
        if timeout is not None and (timeout == FOREVER or timeout > _thread.TIMEOUT_MAX):  # more than clocks count
            timeout = None
        if not self.done and not self._block(None if timeout is None else max(timeout, 0.0)):
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
            self._callbacks = [callback for callback in self._callbacks if callback != happened.release]
        return self._is_done


class RequestEvent(Event):
    """The end of a request, or of a GPU's work."""

    __slots__ = ()

    def signal(self) -> None:
        raise DeviceError("only a managed event can be signaled, which Event.create_managed() makes")


class CudaEvent(RequestEvent):
    """The end of a GPU's work.

    Attributes:
        mark: the point in a stream.
    """

    __slots__ = ("mark",)

    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    @property
    def done(self) -> bool:
        return self.mark.is_done()

    def _failure(self) -> BaseException | None:
        return self.mark.error

    def _block(self, timeout: float | None) -> bool:
        return self.mark.wait(timeout)

    def _when_done(self, callback: Callable[[], object]) -> None:
        """As in the base class; in a thread for this event, since others may happen in any order."""
        if self.done:
            callback()
            return

        def wait() -> None:
            self.mark.wait(None)
            callback()

        try:
            _thread.start_new_thread(wait, ())
        except RuntimeError as error:
            raise DeviceError(f"no thread: {error}") from error
