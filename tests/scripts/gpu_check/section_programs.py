"""What sections do that are no sections of the check: `path` is the file for their rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from scripts.gpu_check.row import Row


def write(path: str, *names: str) -> None:
    """A row for each."""
    rows(path, *(Row("s", name, "q", 1.0) for name in names))


def rows(path: str, *some: Row) -> None:
    with open(path, "a") as file:
        for row in some:
            file.write(json.dumps(row.to_dict()) + "\n")


def write_many(path: str) -> None:
    """Of which the last exceeds its mark."""
    rows(
        path,
        *(Row("s", f"{number}", "q", 1.0, limit=2.0) for number in range(100)),
        Row("s", "late", "q", 3.0, limit=2.0),
    )


def write_and_count(path: str, runs: str) -> None:
    write(path, "x")
    with open(runs, "a") as file:
        file.write(".")


def write_and_fail(path: str) -> None:
    write(path, "x")
    raise ValueError("gone")


def write_half_a_line(path: str) -> None:
    write(path, "x")
    with open(path, "a") as file:
        file.write('{"sect')


def write_and_hang(path: str, told: str) -> None:
    """Tells who is to be ended."""
    with open(told, "w") as file:
        file.write(str(os.getpid()))
    write(path, "x")
    time.sleep(600)


def write_and_hang_with_a_child(path: str, told: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    with open(told, "w") as file:
        file.write(str(child.pid))
    write(path, "x")
    time.sleep(600)


def end_while_a_section_is_started() -> None:
    import signal

    from scripts.gpu_check.run_sections import run_sections
    from scripts.gpu_check.sections import DEVICE

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # where Python ignores exceptions
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
    list(run_sections([DEVICE], 5, lambda section, path: ["sleep", "30"], "first"))
