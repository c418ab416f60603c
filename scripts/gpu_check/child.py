"""Processes that a section starts and waits for."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path

from jitdelegate.errors import DeviceError

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with(parent: int) -> None:
    """Have the kernel end this process when `parent`, which started it, is gone, however it went: nobody else would,
    and the GPU would stay busy."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before
        os._exit(1)


def output_of(arguments: Sequence[str]) -> str:
    """What this Python prints with these arguments.

    Raises:
        DeviceError: the process failed; carries its last words.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise DeviceError(words[-1])
    return done.stdout


TOOLKITS = ("/usr/local/cuda*", "/opt/cuda*", "/opt/nvidia/*", f"{sys.prefix}/lib/python3*/site-packages/nvidia/*")


def tool(name: str) -> str | None:
    """Where one of NVIDIA's tools is: on PATH, or in any CUDA toolkit; None where it is not installed."""
    named = [os.environ[variable] for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    toolkits = [*named, *(path for pattern in TOOLKITS for path in sorted(glob(pattern), reverse=True))]
    folders = [os.path.join(path, inner) for path in toolkits for inner in ("bin", name)]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


def run_tool(command: Sequence[str], log: str, seconds: float) -> tuple[int | None, str]:
    """(exit status, output) of a tool, the status None where it had to be ended.

    Args:
        log: the name under which the output is kept among the results that are carried away.
        seconds: after which it is ended.
    """
    path = Path(os.environ.get("OUT") or tempfile.gettempdir()) / log
    with path.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            # such a tool starts what it watches as another process, which would go on using the GPU
            for each in (*_descendants(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            process.wait()
    return status, path.read_text(errors="replace")


def _descendants(process: int) -> list[int]:
    """The processes that it started, and those that they did."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))
    found = list(children.get(process, ()))
    for each in found:
        found.extend(children.get(each, ()))
    return found
