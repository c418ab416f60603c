"""`python -m cache_tools`: look into the directory of compiled programs, and tidy it up."""

from __future__ import annotations

import sys

INTERRUPTED = 128 + 2
"""Exit status of a command that SIGINT ended, as shells give it."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 1 an entry is bad or unread, or something was not done, 2 wrong arguments, 130
    interrupted."""
    try:
        from cache_tools.commands import run  # here, so that an interruption meanwhile is a line too

        return run(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
