"""Time stamps in the code of a profiled program: when each run began, and when each of its steps ended.

They lie at the end of the sync memory, one row per run, where `runtime.cpu.profile` reads them. Every chunk writes the
stamp of its step before it is counted as done. So the last chunk's stamp remains, and a finished run has all stamps.
"""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.runtime.cpu.profile import STAMP_BYTES
from jitdelegate.runtime.memory import CLOCK_ENTRY
from jitdelegate.runtime.profile import ROWS
from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Module, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Stamps:
    """Writes the stamps of one program.

    Attributes:
        architecture: has the clock.
        steps: number of steps.
        offset: of the first stamp in the sync memory.
    """

    architecture: Architecture
    steps: int
    offset: int

    def begin(self, f: Function, sync: Value, run: Value) -> None:
        """Stamps the beginning of a run; `run` is an i64."""
        f.store(self.architecture.now(f), self._row(f, sync, run), STAMP_BYTES)

    def end(self, f: Function, sync: Value, run: Value, step: Value) -> None:
        """Stamps the end of a step."""
        f.store(self.architecture.now(f), self._row(f, sync, run) + (step * STAMP_BYTES + STAMP_BYTES), STAMP_BYTES)

    def _row(self, f: Function, sync: Value, run: Value) -> Value:
        number = f.emit(INDEX, f"and {run}, {ROWS - 1}")
        return sync + (number * ((self.steps + 1) * STAMP_BYTES) + self.offset)

    def write_clock(self, module: Module) -> None:
        """`uint64 clock()`: the time now."""
        f = Function(module, CLOCK_ENTRY, [], exported=True, result=INDEX)
        f.do(f"ret {self.architecture.now(f)}")
        f.close()
