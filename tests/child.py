"""A function of a test in a process of its own, for what may end the process or is not to find what others imported."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import pickle, sys
from importlib import import_module
module, name, arguments = pickle.load(sys.stdin.buffer)
getattr(import_module(module), name)(*arguments)
"""


def in_child(function: Callable[..., object], *arguments: object) -> subprocess.CompletedProcess[str]:
    """How a fresh Python ends that calls a function of a module with these arguments, and what it printed."""
    given = pickle.dumps((function.__module__, function.__name__, arguments))
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=given, capture_output=True, check=False, cwd=ROOT)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
