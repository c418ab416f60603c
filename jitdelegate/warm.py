"""`python -m jitdelegate.warm`: see `jitdelegate.commands.warm`."""

import sys

from jitdelegate.commands.warm import main

if __name__ == "__main__":
    sys.exit(main())
