"""Worker processes on this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NoReturn

from jitdelegate.commands.fleet.jobs import TRIES
from jitdelegate.errors import CompilerFailedError

GRACE = 5.0
"""Seconds in which a worker that is told to end removes files that it has not finished."""
_context = get_context("spawn")  # a fork would copy locks that other threads hold


class Processes:
    """`with Processes(count) as workers:`, as `jobs.Workers`. They end with the block; where an error leaves it, at
    once."""

    def __init__(self, count: int) -> None:
        self.room = count
        self._threads = ThreadPoolExecutor(count)  # each has one worker, which only it talks to
        self._own = threading.local()
        self._workers: set[_Worker] = set()
        self._lock = threading.Lock()
        self._is_open = True

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_open = False
            workers = [*self._workers]
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()
        self._threads.shutdown(cancel_futures=True)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """See `jobs.Workers`. Its outcome may be a CompilerFailedError, which says how the worker failed."""
        return self._threads.submit(self._run, function, arguments)

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        for left in reversed(range(TRIES)):
            worker = self._worker()
            try:
                return worker.run(function, arguments)
            except CompilerFailedError:
                worker.end()
                self._own.worker = None
                with self._lock:
                    self._workers.discard(worker)
                    if not (left and self._is_open):
                        raise
        raise AssertionError("the last try returns or raises")

    def _worker(self) -> _Worker:
        found: _Worker | None = getattr(self._own, "worker", None)
        if found is None:
            with self._lock:
                if not self._is_open:
                    raise CompilerFailedError("the workers are to end")
                found = self._own.worker = _Worker()
                self._workers.add(found)
        return found


class _Worker:
    def __init__(self) -> None:
        self._orders, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # else nobody would notice that the process has ended

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """
        Raises:
            CompilerFailedError: the function has raised an error, or its process has ended.
        """
        try:
            self._orders.send((function, arguments))
            answer, trouble = self._orders.recv()
        except (EOFError, OSError) as error:
            self.process.join(GRACE)
            raise CompilerFailedError(f"the process that compiles {_end(self.process.exitcode)}") from error
        if trouble:
            raise CompilerFailedError(trouble)
        return answer

    def end(self) -> None:
        self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()


def _serve(orders: Connection) -> None:
    """Run functions until nobody asks for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for all; the caller says what ends
    signal.signal(signal.SIGTERM, _leave)
    while True:
        try:
            function, arguments = orders.recv()
        except EOFError:
            return
        try:
            answer: tuple[Any, str] = function(*arguments), ""
        except Exception as error:  # noqa: BLE001  whatever it is, it concerns this job only
            answer = None, f"{type(error).__name__}: {error}"
        try:
            orders.send(answer)
        except OSError:
            return


def _leave(*_: object) -> NoReturn:
    """Unlike the signal's default, let functions remove files that they have not finished."""
    sys.exit(128 + signal.SIGTERM)


def _end(status: int | None) -> str:
    if status is None or status >= 0:
        return f"has ended with status {status}"
    name = signal.Signals(-status).name
    return f"was ended by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
