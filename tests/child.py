"""A function of a module in a process of its own, for what may end the process or is not to find what others imported.

Where a child is not to import what the tests import, or there are many children, the function is in a module beside
its tests that imports little.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from stat import S_IXOTH

ROOT = Path(__file__).resolve().parents[1]
OPEN_TO_OTHERS = all(
    folder.stat().st_mode & S_IXOTH
    for start in (ROOT, Path(sys.prefix).resolve())
    for folder in (start, *start.parents)
)
"""Whether a child that becomes another user can import what it needs."""
CALL = "import sys; sys.stdout.write(getattr(__import__(sys.argv[1], fromlist=' '), sys.argv[2])(*sys.argv[3:]) or '')"
"""Imports nothing else, for children that tell what they have imported."""


def command_of(function: Callable[..., str | None], *arguments: object, flags: Sequence[str] = ()) -> list[str]:
    """The command line of a fresh Python that calls a function of a module with texts, and prints its answer."""
    return [sys.executable, *flags, "-c", CALL, function.__module__, function.__name__, *map(str, arguments)]


def in_child(
    function: Callable[..., str | None], *arguments: object, flags: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """How a fresh Python with these further variables ends that calls a function, and what it printed."""
    command = command_of(function, *arguments, flags=flags)
    environment = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)


def answer_of(
    function: Callable[..., str | None], *arguments: object, flags: Sequence[str] = (), **variables: str
) -> str:
    """What a function prints and answers in a fresh Python, which ends well."""
    done = in_child(function, *arguments, flags=flags, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout
