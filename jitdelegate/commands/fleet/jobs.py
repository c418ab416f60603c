"""Runs jobs on workers of any kind; a job that fails stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import Any, Protocol, TypeVar

from jitdelegate.errors import JitDelegateError

Name = TypeVar("Name")
TRIES = 2
"""How often a job is begun whose worker fails or goes away. The second worker is another one, if the system has one."""


class Workers(Protocol):
    """Processes that run functions of modules which they can import; each is begun TRIES times at most."""

    @property
    def room(self) -> int:
        """How many jobs they take at once; those that wait there need memory, too."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Begin a job, or let it wait for a worker."""


def run_jobs(
    workers: Workers, function: Callable[..., Any], jobs: Iterable[tuple[Name, tuple[Any, ...]]]
) -> Iterator[tuple[Name, Future[Any]]]:
    """The name and the outcome of each job as it ends.

    Args:
        jobs: names and arguments of `function`; the next ones are made when there is room for them.
    """
    waiting, running = iter(jobs), dict[Future[Any], Name]()
    while True:
        for name, arguments in islice(waiting, max(0, workers.room - len(running))):
            running[workers.submit(function, *arguments)] = name
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future


def told(error: BaseException) -> str:
    """The words of a job's error; Ray adds a traceback to it, and keeps it as the cause."""
    error = getattr(error, "cause", None) or error
    return f"{error}" if isinstance(error, JitDelegateError) else f"{type(error).__name__}: {error}"
