"""python -m jitdelegate.commands.suite.job FILE: one model by one number of threads on all sides, for `jobs.py`.

FILE has a `Job` as a JSON object. Prints one JSON object, `Measured`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.commands.measurement.difference import Difference, Tolerance
from jitdelegate.commands.measurement.entry import Entry, find_entry
from jitdelegate.commands.measurement.inputs import Values, seeded
from jitdelegate.commands.measurement.profile import profiled
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.measurement.sides import LITERT, OURS, OwnSide, open_side
from jitdelegate.commands.measurement.statistics import Statistics
from jitdelegate.commands.measurement.timing import Length, interleaved, timed
from jitdelegate.commands.run_arguments import quiet
from jitdelegate.commands.suite.kernel_work import kernel_work
from jitdelegate.commands.suite.machine_state import Calibration, Others
from jitdelegate.errors import JitDelegateError
from jitdelegate.runtime.profile import ROWS

CALIBRATION, PROFILE = "calibration", "profile"
"""A side that runs the calibrating loop, and the stage in which our kernels are timed."""
SEED = 0
PROFILED_SECONDS = 1.0
OpenSide = Callable[[str, Entry, DelegateOptions, int], Side]


@dataclass(frozen=True)
class Job:
    """What a process measures.

    Attributes:
        model: its path.
        sides: their names, and PROFILE.
        options: of ours, by name.
        runs, seconds, most_seconds: as those of `Length`.
        stage: a file that always has the name of the side that is at work, for the case that it ends the process.
    """

    model: str
    threads: int
    sides: tuple[str, ...]
    options: Mapping[str, Any]
    runs: int
    seconds: float
    most_seconds: float
    stage: str = os.devnull

    def begin(self, name: str) -> None:
        """Write the file of the stage."""
        Path(self.stage).write_text(name)


@dataclass
class Measured:
    """What was measured of a model.

    Attributes:
        seconds: of each round, by side, and of CALIBRATION.
        failed: why sides, or the profile, were not measured.
        differences: of a side's outputs from LiteRT's, as `Difference.to_dict` has them, each with its "mismatch".
        calibration: seconds of the calibrating loop before and after.
        others: share of all CPUs that other processes took during the rounds; None where the system does not tell.
        target: of ours; "" where it was not profiled.
        kernels: of ours, as plain data of `KernelWork`; none where no CPU code runs.
    """

    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    differences: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    calibration: tuple[float, ...] = ()
    others: float | None = None
    target: str = ""
    kernels: Sequence[dict[str, Any]] = ()


def main(open_side: OpenSide = open_side) -> NoReturn:
    """Ends the process before any runtime's own end, which may crash: with 0, or 1 where the file is no model.

    Args:
        open_side: as `sides.open_side`.
    """
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    try:
        with quiet():
            print(json.dumps(asdict(measure(job, open_side))), flush=True)
    except JitDelegateError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def measure(job: Job, open_side: OpenSide = open_side) -> Measured:
    """Time all sides by turns, compare their first outputs, and time our kernels; a side that fails is left out.

    Raises:
        JitDelegateError: the file is no model.
    """
    found = Measured()
    options = DelegateOptions.from_keywords({}, job.options)
    entry = find_entry(job.model, options)
    values = seeded(entry, SEED)
    calibration = Calibration(job.threads)
    before = calibration.seconds()
    opened = _open(job, entry, values, found, lambda name: open_side(name, entry, options, job.threads))
    if opened:
        runs = {**{name: side.run for name, side in opened.items()}, CALIBRATION: calibration.run}
        others = Others()
        rounds = interleaved(runs, Length(job.runs, job.seconds, job.most_seconds), begins=job.begin)
        found.others = others.share()
        found.seconds = {name: tuple(seconds for _, seconds in each) for name, each in rounds.items()}
    found.calibration = before, calibration.seconds()
    if OURS in opened and PROFILE in job.sides:
        _profile(job, entry, values, options, found)
    return found


def _open(job: Job, entry: Entry, values: Values, found: Measured, open_side: Callable[[str], Side]) -> dict[str, Side]:
    """All sides that run, each after one run, with the differences of the results."""
    opened, outputs = dict[str, Side](), dict[str, list[np.ndarray]]()
    for name in job.sides:
        if name == PROFILE:
            continue
        job.begin(name)
        try:
            side = open_side(name)
            side.set_inputs(values)
            side.run()
            outputs[name] = side.outputs()
            opened[name] = side
        except Exception as error:  # noqa: BLE001  another runtime may raise anything
            found.failed[name] = " ".join(str(error).split()) or type(error).__name__
    for name in outputs.keys() - {LITERT} if LITERT in outputs else ():
        found.differences[name] = _differences(entry, outputs[name], outputs[LITERT])
    return opened


def _differences(entry: Entry, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    differences = [Difference(port) for port in entry.outputs]
    for each, one, other in zip_longest(differences, found[: len(expected)], expected):
        if one is None:
            each.mismatch = "it is missing"
        else:
            each.add(one, other)
    return [each.to_dict(Tolerance()) | {"mismatch": each.mismatch} for each in differences]


def _profile(job: Job, entry: Entry, values: Values, options: DelegateOptions, found: Measured) -> None:
    """The work of our kernels, with times of a program of its own, which takes time stamps."""
    job.begin(PROFILE)
    try:
        side = OwnSide(OURS, entry, options.altered(profile=True), job.threads)
        side.set_inputs(values)
        side.run()
        runs = timed(side.run, Length(min(job.runs, ROWS), 0.0, PROFILED_SECONDS))
    except JitDelegateError as error:
        found.failed[PROFILE] = str(error)
        return
    report = side.report()
    found.target = report.target
    if report.features in LEVELS:
        whole = Statistics(tuple(seconds for _, seconds in runs)).median
        nodes = profiled(side.kernel_times(), report.operators, entry.graph, whole)
        found.kernels = [asdict(each) for each in kernel_work(nodes, entry.graph, options.precision)]


if __name__ == "__main__":
    main()
