"""Checks in a child process, which may die, whether LiteRT can open a model."""

from __future__ import annotations

import os
import subprocess
import sys

LONGEST = 20.0
"""Seconds after which the child counts as alive."""
_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from ai_edge_litert.interpreter import Interpreter, OpResolverType
content = sys.stdin.buffer.read()
for resolver in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
    try:
        Interpreter(model_content=content, experimental_op_resolver_type=resolver).allocate_tensors()
    except (ValueError, RuntimeError):
        pass
"""
_KILLED = 9
children = 0
"""Number of child processes that this process started; for tests."""


def deadly_signal(content: bytes) -> int:
    """The signal that ends a process in which LiteRT prepares this model; 0 if none does, or it cannot be tried."""
    global children
    if getattr(sys, "frozen", False) or not sys.executable:
        return 0
    children += 1
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD],
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return -child.returncode if child.returncode < 0 and child.returncode != -_KILLED else 0
