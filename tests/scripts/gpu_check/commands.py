"""What a made-up GPU machine runs: the check, with its results elsewhere, and NVIDIA's tools, which find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def check_gpu(docs: str, *arguments: str) -> None:
    from scripts.gpu_check import __main__

    __main__.DOCS = Path(docs)  # the repository's own results stay as they are
    sys.exit(__main__.main(list(arguments)))


def sanitizer(option: str, tool: str, *command: str) -> None:
    assert option == "--tool"
    status = subprocess.run(command).returncode
    hazards = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    sys.stdout.write(f"========= {hazards if tool == 'racecheck' else 'ERROR SUMMARY: 0 errors'}\n")
    sys.exit(status)


def profiler(*arguments: str) -> str:
    """The rows of two metrics of each kernel, for every two arguments of the command that it profiles."""
    control = arguments.index("--clock-control")
    assert arguments[control + 1] == "none"
    command = arguments[arguments.index(sys.executable) :]
    subprocess.run(command, check=True)
    lines = ["==PROF== Connected", '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"']
    for number in range(len(command[4:]) // 2):
        lines.append(f'"{number}","kernel","GPU Speed Of Light Throughput","Duration","ns","1,{number:03}"')
        lines.append(f'"{number}","kernel","Occupancy","Achieved Occupancy","%","25.5"')
    return "\n".join(lines) + "\n"
