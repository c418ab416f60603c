"""Runs jobs in forked processes, so that one that crashes or hangs is a result and does not end the command."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Failed:
    """Stands for the answer of a job that gave none.

    Attributes:
        reason: the traceback of what it raised, or what ended its process.
    """

    reason: str


def in_child(jobs: Sequence[Callable[[], Answer]], seconds: int) -> Iterator[Answer | Failed]:
    """One answer per job, all from one forked process, and from another one after a crash.

    Args:
        jobs: functions whose answers can be pickled.
        seconds: after which a job is ended.
    """
    jobs = list(jobs)
    while jobs:
        answers = _fork(jobs, seconds)
        yield from answers
        jobs = jobs[len(answers) :]


def _fork(jobs: Sequence[Callable[[], Answer]], seconds: int) -> list[Answer | Failed]:
    """The answers up to the first crash."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _serve(jobs, seconds, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answers = list(_received(stream))
    _, status = os.waitpid(child, 0)
    if len(answers) < len(jobs):
        answers.append(Failed(f"ended by {_ended_by(status)}"))
    return answers


def _serve(jobs: Sequence[Callable[[], object]], seconds: int, writing: int) -> NoReturn:
    """The child's life; whatever happens, it does not go on with what the parent was doing."""
    faulthandler.disable()  # a crash is an answer here
    try:
        with os.fdopen(writing, "wb") as stream:
            for job in jobs:
                signal.alarm(seconds)
                stream.write(_answer(job))
                stream.flush()
    finally:
        os._exit(0)


def _answer(job: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps(job())
    except Exception:  # noqa: BLE001  # whatever a job raises is what its caller looks for
        return pickle.dumps(Failed(traceback.format_exc()))


def _received(stream: BinaryIO) -> Iterator[Any]:
    """What was sent whole."""
    while True:
        try:
            yield pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return


def _ended_by(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
