"""Processes that a section starts and waits for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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


def tool(name: str) -> str | None:
    """Where one of NVIDIA's tools is, None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))


def run_tool(command: Sequence[str], log: str, seconds: float) -> tuple[int | None, str]:
    """(exit status, output) of a tool, the status None where it had to be ended.

    Args:
        log: the name under which the output is kept among the results that are carried away.
        seconds: after which it is ended.
    """
    path = Path(os.environ.get("OUT") or tempfile.gettempdir()) / log
    with path.open("w") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, text=True, check=False, timeout=seconds
            )
            status: int | None = done.returncode
        except subprocess.TimeoutExpired:
            status = None
    return status, path.read_text(errors="replace")
