"""Jobs that fail in ways that tests ask for. Workers import this module, so it imports little."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


def fail(words: str) -> None:
    raise ValueError(words)


def die() -> None:
    """As the system ends a process where memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_first(folder: str, name: str) -> str:
    """The name; at the first call with it, the end of the process."""
    mark = Path(folder, name)
    if not mark.exists():
        mark.touch()
        die()
    return name


def hold(folder: str) -> None:
    """Hold a file until the process is told to end."""
    mark = Path(folder, "held")
    try:
        mark.touch()
        time.sleep(60)
    finally:
        mark.unlink()
