"""`python -m jitdelegate.replay`: see `jitdelegate.commands.replay`."""

import sys

from jitdelegate.commands.entrance import run


def main() -> int:
    """Exit status: that of the command, or 130 where it was interrupted."""
    return run("replay")


if __name__ == "__main__":
    sys.exit(main())
