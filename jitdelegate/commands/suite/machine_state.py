"""The state of the machine while models are measured: whether it multiplies as fast as before, and who else uses it."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitdelegate.commands.measurement.machine_loops import LOOP_BYTES, Loops, write_multiply
from jitdelegate.commands.measurement.machine_speed import products_of
from jitdelegate.commands.measurement.timing import seconds, settle
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.vector_ir import Module

TURNS = 1 << 19
"""Of the loop: always as many, a millisecond or two."""
SAMPLES = 9
STAT = Path("/proc/stat")
_COUNTS = 8
"""Numbers of its line "cpu" that are not parts of others before them."""


class Calibration:
    """A loop that multiplies floats in registers, on some threads at once."""

    def __init__(self, threads: int) -> None:
        products = products_of("float32")
        module = Module(products.machine)
        write_multiply(module, "multiply", products)
        self._compiled = Loops(module)
        self._data = [Memory(LOOP_BYTES) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)

    def run(self) -> None:
        """Once on each thread."""
        first, *others = [memory.address for memory in self._data]
        loop = self._compiled.loops["multiply"]
        running = [self._pool.submit(loop, address, TURNS) for address in others]
        loop(first, TURNS)
        for each in running:
            each.result()

    def seconds(self) -> float:
        """Of a run now, the median of SAMPLES."""
        settle(self.run)
        return statistics.median(seconds(self.run) for _ in range(SAMPLES))


class Others:
    """CPU time of all other processes, and of other virtual machines on this one's CPUs, from now on."""

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float | None:
        """Of the time of all CPUs; None where the system does not tell (off Linux)."""
        wall, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, busy - own) / (wall * (os.cpu_count() or 1)) if busy else None

    def _now(self) -> tuple[float, float, float]:
        """Seconds by the clock, of all processes, of this one."""
        return time.perf_counter(), _busy_seconds(), time.process_time()


def _busy_seconds() -> float:
    """CPU time of all processes; 0 where the system does not tell."""
    try:
        first = STAT.read_text().partition("\n")[0].split()[1:][:_COUNTS]
        user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, first)
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")
