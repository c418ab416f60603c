"""Time per kernel of a profiled program: its code leaves time stamps of its last runs in the sync memory."""

from __future__ import annotations

import ctypes
import time

from jitdelegate.runtime.profile import ROWS, medians

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jitdelegate.program.program import Program

STAMP_BYTES = 8

_CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64)


def stamp_bytes(steps: int) -> int:
    """Size of the stamps at the end of the sync memory: per run, when it began and when each step ended."""
    return ROWS * (steps + 1) * STAMP_BYTES


class KernelClock:
    """Reads the stamps of one session. The clock's rate is measured from the object's creation on."""

    __slots__ = ("_clock", "_kernels", "_stamps", "_start", "_ticks")

    def __init__(self, program: Program, clock: int, sync: int) -> None:
        """
        Args:
            clock: the address of the code's entry `clock`.
            sync: the address of the sync memory.
        """
        self._kernels = len(program.kernels)
        end = sync + program.sync_bytes
        self._stamps: Any = (ctypes.c_uint64 * (ROWS * (self._kernels + 1))).from_address(
            end - stamp_bytes(self._kernels)
        )
        self._clock = _CLOCK(clock)
        self._start, self._ticks = time.perf_counter(), self._clock()

    def kernel_seconds(self) -> list[float | None]:
        """As `IOBinding.kernel_seconds`."""
        ticks = self._clock() - self._ticks
        tick = (time.perf_counter() - self._start) / ticks if ticks > 0 else 0.0
        width = self._kernels + 1
        rows = (self._stamps[start : start + width] for start in range(0, ROWS * width, width))
        return medians([_differences(row, tick) for row in rows if row[0]], self._kernels)


def _differences(stamps: list[int], tick: float) -> list[float]:
    """Time between neighbours; stamps of two threads may come in the wrong order, a few ticks apart."""
    return [max(stamps[k + 1] - stamps[k], 0) * tick for k in range(len(stamps) - 1)]
