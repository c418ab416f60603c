"""run_once.py DIR NAME ... [--seconds N]: prepared programs, each opened, run and compared; for tools that watch a
process."""

from __future__ import annotations

import argparse
import sys
import time
from math import inf
from pathlib import Path

from scripts.gpu_check.bundle import read_bundle
from scripts.gpu_check.correctness import check
from scripts.gpu_check.gpu import prepared_here

DONE = "done:"


def main(argv: list[str]) -> int:
    """Exit status: 0 all outputs are right, 1 some are not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=inf, help="after which no further program begins")
    arguments = parser.parse_args(argv)
    end, status = time.monotonic() + arguments.seconds, 0
    programs = {prepared.name: prepared for prepared in prepared_here(read_bundle(arguments.folder))}
    for name in arguments.names:
        if time.monotonic() > end:
            break
        row = check(programs[name])
        status |= not row.holds
        print(DONE, row.subject, row.value, row.note, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
