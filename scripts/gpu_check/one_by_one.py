"""Programs one after another on the GPU, in child processes: a failure of one loses only its own results.

A kernel that fails takes the whole process's context with it, and one that never ends keeps the process waiting. So
after each failure the next program runs in a new child. Children are forked, which is safe because this process never
uses the GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import ParamSpec, TypeVar

from jitdelegate.errors import DeviceError, JitDelegateError
from scripts.gpu_check.bundle import Bundle, Prepared
from scripts.gpu_check.child import end_with
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import Row

SECONDS = 15.0
"""For one program; the longest should take two."""
P, T = ParamSpec("P"), TypeVar("T")


class Child:
    """A process with one context for all that runs in it."""

    def __init__(self) -> None:
        forked = multiprocessing.get_context("fork")
        self._pool = ProcessPoolExecutor(1, forked, initializer=end_with, initargs=(os.getpid(),))
        self._process = self._pool.submit(os.getpid).result()

    def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the function answers there.

        Raises:
            DeviceError: the process died, or the function failed or did not end in time.
        """
        try:
            return self._pool.submit(function, *arguments, **named).result(SECONDS)
        except BrokenProcessPool as error:
            raise DeviceError("the process died") from error
        except TimeoutError as error:
            raise DeviceError(f"it did not end within {SECONDS:g} s") from error
        except JitDelegateError:
            raise
        except Exception as error:  # of other software, such as LiteRT
            raise DeviceError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """End the process, whatever it does."""
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        self._pool.shutdown()


def one_by_one(
    child: Child,
    programs: Sequence[Prepared],
    measure: Callable[[Prepared], Sequence[Row]],
    failed: Callable[[Prepared, str], Row],
) -> Iterator[Row]:
    """What `measure` finds of each program, or what `failed` makes of the reason why it finds nothing.

    Args:
        child: where it begins; closed in the end.
    """
    try:
        for prepared in programs:
            try:
                yield from child.run(measure, prepared)
            except JitDelegateError as error:
                yield failed(prepared, str(error))
                child.close()
                child = Child()
    finally:
        child.close()


def programs_of(bundle: Bundle, group: str = "") -> list[Prepared]:
    """As `prepared_here`, for a child to answer."""
    return list(prepared_here(bundle, group))
