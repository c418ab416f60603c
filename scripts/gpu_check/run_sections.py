"""Runs each section in a process of its own, so that one that crashes or hangs loses only its own results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from scripts.gpu_check.child import end_with
from scripts.gpu_check.row import SECONDS, Row, newest
from scripts.gpu_check.sections import Section

SHOWN = 4000
"""Characters from the end of a failed section's output."""
MOST_LINES = 40
"""Of a section's findings that are printed; all are in the results."""
TIME = "seconds"
HELD = {signal.SIGTERM, signal.SIGINT}
"""Signals that wait while a process is started."""
LEAVE = 10.0
"""Seconds in which a process that was ended has to be gone. One that the driver does not let go never is."""


def run_sections(
    sections: Sequence[Section], budget: float, command: Callable[[Section, Path], Sequence[str]], bundle: str
) -> Iterator[list[Row]]:
    """What each section found, as soon as it has ended; the last row is how long it took, or why it did not end well.

    Args:
        budget: seconds for all together.
        command: what runs a section so that its rows go to a file as lines of JSON.
        bundle: its name: the same section may run on several.
    """
    end = time.monotonic() + budget
    for section in sections:
        left = end - time.monotonic()
        if left <= 0:
            yield [_ended(section, bundle, None, "not begun: the time was spent before")]
        else:
            yield _run(section, min(section.seconds, left), command, bundle)


def _ended(section: Section, bundle: str, seconds: float | None, note: str = "") -> Row:
    return Row(section.name, bundle, TIME, seconds, SECONDS, limit=section.seconds, note=note)


def _run(section: Section, seconds: float, command: Callable[[Section, Path], Sequence[str]], bundle: str) -> list[Row]:
    print(f"== {section.name} (at most {seconds:.0f} s)", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        path, log = Path(name) / "rows", Path(name) / "log"
        start = time.monotonic()
        trouble = _trouble(command(section, path), seconds, log)
        took = time.monotonic() - start
        rows = newest(_read_rows(path))
        if trouble:
            print(log.read_text(errors="replace")[-SHOWN:], file=sys.stderr)
    ended = _ended(section, bundle, None if trouble else took, trouble)
    for row in [*([ended] if trouble else []), *sorted(rows, key=_importance)[:MOST_LINES]]:
        print("  ", _line(row), flush=True)
    if len(rows) > MOST_LINES:
        print(f"   and {len(rows) - MOST_LINES} more", flush=True)
    print(f"   {took:.1f} s", flush=True)
    return [*rows, ended]


def _importance(row: Row) -> int:
    """What exceeds its mark or has no value first, then what has no mark, single launches last."""
    if row.holds is False or row.value is None:
        return 0
    return 2 if row.predicted is not None or row.holds else 1


def _trouble(command: Sequence[str], seconds: float, log: Path) -> str:
    """Runs the command with its output in `log`; "" where it ended well, else how it ended."""
    with log.open("wb") as output:
        # a signal's exception is lost in what Python runs around a fork, and would leave the child before `try`
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        # a session of its own: compilers start processes that must end with it
        child = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_begin, os.getpid(), mask),  # safe, since this process has one thread
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s"
        finally:
            _end(child)
    words = log.read_text(errors="replace").strip().splitlines()
    return f"failed with {status}: {words[-1] if words else 'no output'}" if status else ""


def _begin(parent: int, mask: set[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    end_with(parent)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child's processes, also those that outlived it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(LEAVE)


def _read_rows(path: Path) -> list[Row]:
    """The whole lines; a section that was ended may have left half of one."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [Row.from_dict(json.loads(line)) for line in lines]


def _line(row: Row) -> str:
    value = "" if row.value is None else f" {row.value:.6g} {row.unit}"
    verdict = "" if row.holds is None else " holds" if row.holds else " MISSING"
    if row.holds is False and row.value is not None:
        verdict = f" EXCEEDS {row.limit:g}"
    predicted = "" if row.ratio is None else f" ({row.ratio:.2f} of what was predicted)"
    return f"{row.subject}: {row.quantity}{value}{verdict}{predicted}{' ' + row.note if row.note else ''}"
