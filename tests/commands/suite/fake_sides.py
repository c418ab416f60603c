"""Sides that count their runs, and give what they are told; as a program, a job whose OpenVINO crashes after words
that are not UTF-8."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

import numpy as np

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.suite import job
from jitdelegate.errors import DeviceError

CRASHES_AT = "CRASHES_AT"
"""A variable of the environment: the number of the run in which OpenVINO ends the process."""


class FakeSide(Side):
    """Gives the sum of each input's elements, and `more`."""

    def __init__(self, name: str, entry: Entry, work: Callable[[], object] = lambda: None, more: float = 0.0) -> None:
        self.name, self.entry, self.run = name, entry, self._run
        self.runs, self.given, self._work, self._more = 0, list[np.ndarray](), work, more

    def _run(self) -> None:
        self.runs += 1
        self._work()

    def set_inputs(self, values: Sequence[np.ndarray]) -> None:
        self.given = [*values]

    def outputs(self) -> list[np.ndarray]:
        total = sum(float(value.sum()) for value in self.given) + self._more
        return [np.full(port.shape, total, port.dtype) for port in self.entry.outputs]


def open_crashing(name: str, entry: Entry, options: DelegateOptions, threads: int) -> Side:
    """Fake sides, of which "openvino" ends the process and "onnxruntime" fails."""
    if name == "onnxruntime":
        raise DeviceError("it knows no such operator")
    side = FakeSide(name, entry)

    def crash() -> None:
        if name == "openvino" and side.runs == int(os.environ[CRASHES_AT]):
            os.write(sys.stderr.fileno(), b"tensor \xff\n")
            os.kill(os.getpid(), signal.SIGSEGV)

    side._work = crash
    return side


if __name__ == "__main__":
    job.main(open_crashing)
