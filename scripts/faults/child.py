"""Work in forked processes; a child that dies is a result."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

PATIENCE = 120
"""Seconds until a process counts as hanging."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        answer: what its work answered, None if it died before.
        status: its exit status, negative for a signal.
    """

    answer: object
    status: int

    @property
    def text(self) -> str:
        """The answer, or how it died."""
        if self.answer is not None:
            return str(self.answer)
        return f"ended by {signal.Signals(-self.status).name}" if self.status < 0 else f"exit status {self.status}"


class Child:
    """A forked process that does `work`, whose answer has to be one that can be pickled."""

    def __init__(self, work: Callable[[], object], patience: int = PATIENCE) -> None:
        """
        Args:
            patience: seconds until the process counts as hanging.
        """
        reading, writing = os.pipe()
        self._process = os.fork()
        if not self._process:
            signal.alarm(patience)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LiteRT writes there what it does
            try:
                os.write(writing, pickle.dumps(work()))
            finally:
                os._exit(0)
        os.close(writing)
        self._stream: BinaryIO = os.fdopen(reading, "rb")

    def is_over(self) -> bool:
        """Whether it has ended."""
        return os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until the condition holds, or the process has ended."""
        while not condition() and not self.is_over():
            time.sleep(0.001)

    def end(self) -> Ended:
        """Wait for it."""
        with self._stream as stream:
            content = stream.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        return Ended(pickle.loads(content) if content else None, status)


def run_child(work: Callable[[], object]) -> Ended:
    """`work` in a forked process."""
    return Child(work).end()
