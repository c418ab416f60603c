"""run_profiled.py DIR LAUNCH NAME ...: single launches of prepared programs, in the part that a profiler records.

LAUNCH is the number of a launch and NAME its program; the pair may be repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jitdelegate.runtime.cuda.context import hold_context
from jitdelegate.targets.cuda.target import open_library
from scripts.gpu_check.bundle import read_bundle
from scripts.gpu_check.gpu import gpu, open_session, prepared_here


def main(argv: list[str]) -> int:
    """Exit status 0; errors end the process."""
    folder, *rest = argv
    programs = {prepared.name: prepared for prepared in prepared_here(read_bundle(Path(folder)))}
    library = open_library()
    for number, name in zip(map(int, rest[::2]), rest[1::2], strict=True):
        session = open_session(programs[name])
        session.invoke()
        session.launch_seconds(number, 1)
        with hold_context(gpu()).current():
            library.cuProfilerStart()
        session.launch_seconds(number, 1, afresh=False)
        with hold_context(gpu()).current():
            library.cuProfilerStop()
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
