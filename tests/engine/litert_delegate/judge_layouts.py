"""Judges the changed layouts, one per child: `python -m tests.engine.litert_delegate.judge_layouts FIRST STEP`; one JSON line.

The children are forks of a process that has loaded everything, since a fresh one takes longer to start than to judge.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from itertools import islice

import ai_edge_litert.interpreter  # noqa: F401 - before the forks
import numpy as np  # noqa: F401 - before the forks

from jitdelegate.engine.litert_delegate import probe
from jitdelegate.runtime.litert_layout import LAYOUT, Layout
from jitdelegate.tflite import write  # noqa: F401 - before the forks
from tests.engine.litert_delegate.c_structures import changes

LONGEST, LONGEST_ANSWER = 5.0, 4096


def judged(layout: Layout) -> str:
    """What a child says of the layout, or how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _judge(layout, writer)
    os.close(writer)
    if not select.select([reader], [], [], LONGEST)[0]:
        os.kill(child, signal.SIGKILL)
    answer = os.read(reader, LONGEST_ANSWER).decode()
    os.close(reader)  # a child that goes on writing ends here
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return answer if code == 0 and answer else f"ended with {code}"


def _judge(layout: Layout, writer: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.write(writer, (probe.judge(layout) or probe.ACCEPTED).encode())
    os._exit(0)


def main() -> int:
    """Exit status: 0 all are judged."""
    first, step = map(int, sys.argv[1:])
    found = {"unchanged": judged(LAYOUT)} if first == 0 else {}
    found |= {change: judged(layout) for change, layout in islice(changes(), first, None, step)}
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
