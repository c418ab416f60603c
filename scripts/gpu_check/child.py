"""Python processes that a section starts and waits for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from jitdelegate.errors import DeviceError


def output_of(arguments: Sequence[str]) -> str:
    """What this Python prints with these arguments.

    Raises:
        DeviceError: the process failed; carries its last words.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise DeviceError(words[-1])
    return done.stdout
