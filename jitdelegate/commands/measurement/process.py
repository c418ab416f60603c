"""A fresh process that prints one JSON object, by the clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jitdelegate.errors import ModelError


def run_module(
    name: str,
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    most_seconds: float | None = None,
) -> tuple[dict[str, Any], float]:
    """What `python -m module arguments` prints last, and its seconds from start to end.

    Args:
        name: of the process, for the error.
        variables: further ones of its environment.
        most_seconds: the process is killed after them.
    Raises:
        ModelError: the process failed; the message has its last line, or the signal that ended it.
    """
    environment = {**_installed_environment(), **(variables or {})}
    command = [sys.executable, "-m", module, *arguments]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, errors="replace", check=False, env=environment, timeout=most_seconds
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{name}: it took more than {most_seconds:g} seconds") from error
    seconds = time.perf_counter() - start
    if done.returncode < 0:
        raise ModelError(f"{name}: ended by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ModelError(f"{name}: {words[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result, seconds


def _installed_environment() -> dict[str, str]:
    """This process's environment, with bytecode caching on, as for installed packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
