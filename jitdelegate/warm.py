"""`python -m jitdelegate.warm`: see `jitdelegate.commands.warm`."""

import sys

from jitdelegate.commands.entrance import run


def main() -> int:
    """Exit status: that of the command, or 130 where it was interrupted."""
    return run("warm")


if __name__ == "__main__":
    sys.exit(main())
