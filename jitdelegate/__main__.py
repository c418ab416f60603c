"""`python -m jitdelegate`: lists the commands."""

import sys

from jitdelegate.commands.entrance import main

if __name__ == "__main__":
    sys.exit(main())
