"""`python -m jitdelegate.demo`: see `jitdelegate.commands.demo`."""

import sys

from jitdelegate.commands.entrance import run


def main() -> int:
    """Exit status: that of the command, or 130 where it was interrupted."""
    return run("demo")


if __name__ == "__main__":
    sys.exit(main())
