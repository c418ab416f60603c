"""`python -m jitdelegate.analyze`: see `jitdelegate.commands.analyze`."""

import sys

from jitdelegate.commands.analyze import main

if __name__ == "__main__":
    sys.exit(main())
