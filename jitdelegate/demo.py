"""`python -m jitdelegate.demo`: see `jitdelegate.commands.demo`."""

import sys

from jitdelegate.commands.demo import main

if __name__ == "__main__":
    sys.exit(main())
