"""`python -m jitdelegate.analyze`: see `jitdelegate.commands.analyze`."""

import sys

from jitdelegate.commands.entrance import run


def main() -> int:
    """Exit status: that of the command, or 130 where it was interrupted."""
    return run("analyze")


if __name__ == "__main__":
    sys.exit(main())
