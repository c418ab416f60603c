"""run_once.py DIR NAME ...: prepared programs, each opened, run and compared; for tools that watch a process."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.gpu_check.bundle import read_bundle
from scripts.gpu_check.correctness import check
from scripts.gpu_check.gpu import prepared_here

DONE = "done:"


def main(argv: list[str]) -> int:
    """Exit status: 0 all outputs are right, 1 some are not."""
    folder, *names = argv
    programs = {prepared.name: prepared for prepared in prepared_here(read_bundle(Path(folder)))}
    status = 0
    for name in names:
        row = check(programs[name])
        status |= not row.holds
        print(DONE, row.subject, row.value, row.note, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
