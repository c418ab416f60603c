"""A fresh process that prints one JSON object, by the clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jitdelegate.errors import ModelError


def run_module(
    name: str, module: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], float]:
    """What `python -m module arguments` prints last, and its seconds from start to end.

    Args:
        name: of the process, for the error.
        variables: further ones of its environment.
    Raises:
        ModelError: the process failed; the message has its last line.
    """
    environment = {**_installed_environment(), **(variables or {})}
    command = [sys.executable, "-m", module, *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    seconds = time.perf_counter() - start
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ModelError(f"{name}: {words[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result, seconds


def _installed_environment() -> dict[str, str]:
    """This process's environment, with bytecode caching on, as for installed packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
