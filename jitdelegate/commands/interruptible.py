"""Interruption of a command: one line, also while it imports what it needs."""

from __future__ import annotations

import sys
from importlib import import_module

INTERRUPTED = 128 + 2
"""Exit status of a command that SIGINT ended, as shells give it."""


def run(command: str) -> int:
    """Exit status of `jitdelegate.commands.<command>`; its interruption (Ctrl-C, SIGINT) is a line and status 130."""
    try:
        main = import_module(f"jitdelegate.commands.{command}").main
        return int(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
