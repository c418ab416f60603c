"""Measures a sweep on the GPU at hand: a table of tuned kernels, and all times for the cost model.

Each problem is measured in a child process, so that a kernel that fails or hangs costs only its own problem.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.tuned import SUFFIX, table_content, table_name
from jitdelegate.targets.cuda.stopwatch import DeviceStopwatch
from jitdelegate.targets.cuda.tuning import Timed, median_seconds, winner_of
from scripts.gpu_check import ceilings
from scripts.gpu_check.ceilings import STEP
from scripts.gpu_check.gpu import gpu, open_program
from scripts.gpu_check.one_by_one import Child
from scripts.tune_kernels.sweep import Sweep, kinds_in, read_sweep

TIMES = "-times.json"
SAVED_EVERY = 5.0
"""Seconds between two writes of the results: the machine may be gone before the last one."""


@dataclass(slots=True)
class Times:
    """What was measured on one GPU.

    Attributes:
        device: its name.
        clock: cycles a second while it computes.
        launch: seconds from a launch that does nothing to the next one.
        seconds: by problem and candidate, the cost model's first.
        moved: by problem and candidate, as `Candidate` has it, where no launch has an estimate of its own.
        troubles: problems that could not be measured, with the reason.
    """

    kind: str
    device: str
    clock: float
    launch: float
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    moved: dict[str, dict[str, Sequence[Sequence[int]]]] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the table and the times."""
        folder.mkdir(parents=True, exist_ok=True)
        winners = {name: winner_of(next(iter(found)), found, "full") for name, found in self.seconds.items()}
        (folder / table_name(self.kind)).write_bytes(table_content(winners))
        (folder / times_name(self.kind)).write_text(json.dumps(asdict(self), indent=1) + "\n")


def times_name(kind: str) -> str:
    """The file of the times for a kind of GPU."""
    return f"{table_name(kind).removesuffix(SUFFIX)}{TIMES}"


def read_times(path: Path) -> Times:
    """
    Raises:
        ProgramError: it holds no times.
    """
    try:
        return Times(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ProgramError(f"{path} has no times of kernels: {error}") from error


def measure(folder: Path, output: Path, seconds: float, earlier: Sequence[Times], clock: Callable[[], float]) -> Times:
    """Measure what a folder was prepared for, until the time is spent, and write it to `output` as it comes.

    Args:
        earlier: what was measured before; that of GPUs of this kind is kept.
        clock: seconds of the host.
    Raises:
        ProgramError: nothing was prepared for this GPU.
        DeviceError: there is no GPU, or it does not run what measures its clock.
    """
    end, child = clock() + seconds, Child()
    try:
        kind, found = child.run(_begin, folder)
        for one in earlier:
            if one.kind == kind:
                found.seconds |= one.seconds
                found.moved |= one.moved
        saved = clock()
        for number, problem in enumerate(read_sweep(folder, kind).problems):
            if clock() >= end:
                break
            if problem.text in found.seconds:
                continue
            try:
                found.seconds[problem.text] = child.run(_measure, folder, kind, number)
                moved = {name: each.moved for name, each in problem.candidates.items()}
                if all(all(each) for each in moved.values()):
                    found.moved[problem.text] = moved
            except (DeviceError, ProgramError) as error:
                found.troubles[problem.text] = str(error)
                child.close()
                child = Child()
            if clock() - saved >= SAVED_EVERY:
                found.save(output)
                saved = clock()
    finally:
        child.close()
    found.save(output)
    return found


@cache
def _sweep(folder: Path, kind: str) -> Sweep:
    return read_sweep(folder, kind)


def _begin(folder: Path) -> tuple[str, Times]:
    """The kind that was prepared for this GPU, and its clock."""
    device = gpu()
    kind, there = device.kind, kinds_in(folder)
    if kind not in there:
        raise ProgramError(f"{folder} is for {', '.join(there) or 'no GPU'}: prepare it with --kinds {kind}")
    session = open_program(read(_sweep(folder, kind).ceilings))
    try:
        launch = ceilings.launch_times(session)
        rates = ceilings.products(session, 1, next(iter(STEP)))
    finally:
        session.close()
    return kind, Times(kind, device.name, ceilings.clock_of(rates), statistics.median(launch))


def _measure(folder: Path, kind: str, number: int) -> dict[str, float]:
    """Seconds of each candidate of a problem."""
    sweep, watch = _sweep(folder, kind), DeviceStopwatch(gpu())
    opened: dict[str, Timed] = {}
    try:
        for name, candidate in sweep.problems[number].candidates.items():
            opened[name] = watch.open(sweep.program(candidate))
        return median_seconds(opened)
    finally:
        for timed in opened.values():
            timed.close()


def now() -> float:
    """Seconds of the host."""
    return time.monotonic()
