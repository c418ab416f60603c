"""In place of compute-sanitizer: runs a command as its tools do, and finds nothing, or the race that was planted."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.gpu.stub.processes import FAULT

RACE = "Error: Race reported between Write access at 0x10 in softmax and Read access at 0x20 in softmax"


def main(option: str, tool: str = "", *command: str) -> int:
    """The exit status of the command."""
    if option == "--version":
        sys.stdout.write("Version 0\n")
        return 0
    assert option == "--tool"
    status = subprocess.run(command, check=False).returncode
    raced = int(tool == "racecheck" and os.environ.get(FAULT) == "race")
    summary = f"RACECHECK SUMMARY: {raced} hazards displayed" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"
    words = [*[RACE] * raced, summary]
    sys.stdout.writelines(f"========= {line}\n" for line in words)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
