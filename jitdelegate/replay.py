"""`python -m jitdelegate.replay`: see `jitdelegate.commands.replay`."""

import sys

from jitdelegate.commands.replay import main

if __name__ == "__main__":
    sys.exit(main())
