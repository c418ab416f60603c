"""first_output.py MODEL CACHE PRECISION INPUT OUTPUT: a warm start on the GPU, as a process of its own.

Prints the outcome of the cache and the seconds of import, opening and the first run. Imports only what a user's program
would import.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise


def main(argv: list[str]) -> int:
    """Exit status 0; errors end the process as they do a user's."""
    path, cache, precision, source, target = argv
    times = [time.perf_counter()]
    from jitdelegate.api.model import load
    from jitdelegate.runtime.cache.store import counts

    times.append(time.perf_counter())
    model = load(path, target="cuda", serialization_dir=cache, options={"precision": precision})
    times.append(time.perf_counter())
    with open(source, "rb") as file:
        output = model(file.read())
    times.append(time.perf_counter())
    with open(target, "wb") as file:
        file.write(output)
    print("hit" if counts.hits else "miss", *(end - start for start, end in pairwise(times)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
