"""The stopwatch of tuning: programs on this machine's GPU, timed by its clock."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.program.program import Program
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.session import CudaSession

TIMES = 20
"""Runs of a launch in one graph."""


class TimedSession:
    """See `tuning.Timed`. Each launch is timed by itself, many times in a row in a graph, as launches follow each other
    in an inference."""

    def __init__(self, program: Program, device: Device) -> None:
        self._session, self._launches = CudaSession(program, device), range(len(program.launches))
        try:
            self.seconds()  # the first runs load code and weights
        except DeviceError:
            self.close()
            raise

    def seconds(self) -> float:
        return sum(self._session.launch_seconds(number, TIMES, afresh=False) for number in self._launches) / TIMES

    def close(self) -> None:
        self._session.close()


class DeviceStopwatch:
    """See `tuning.Stopwatch`."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def open(self, program: Program) -> TimedSession:
        return TimedSession(program, self._device)
