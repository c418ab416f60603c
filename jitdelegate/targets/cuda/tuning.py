"""Tuning: measures the candidates of a graph's problems on the GPU, and keeps the winners in the user's table.

Each candidate is a program of its own: the launches of one node, whose tensors have memory of their own. The candidates
of a problem run in turns, so that a clock that changes meanwhile is the same for all; their medians are compared. The
cost model's candidate stays unless another one is faster by more than GAIN.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Protocol

from jitdelegate.errors import CompileError, DeviceError
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.directory import CacheDirectory
from jitdelegate.runtime.cache.tuned import Winner, add_to_table
from jitdelegate.targets.cuda.code.choices import Choices, Question
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.tables import candidates_of, merged
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.plan.plan import Plan, plan_apart, written
from jitdelegate.targets.planning.buffer_plan import Buffers
from jitdelegate.targets.target import Trace

GAIN = 0.03
"""Share of the cost model's time that another candidate has to save."""
ROUNDS = 7
"""Times that each candidate is measured."""
FEW = 4
"""Candidates that "fast" measures: the cost model's best."""
FAST_SECONDS = 20.0
"""Seconds for all problems of a graph, by "fast", with the compilation of the candidates."""

Build = Callable[[Sequence[Plan]], list[Program]]
"""Programs of plans of a few launches."""


class Timed(Protocol):
    """A program on a GPU."""

    def seconds(self) -> float:
        """Seconds of one run of its launches, by the device's clock."""

    def close(self) -> None:
        """Free what it has on the GPU."""


class Stopwatch(Protocol):
    """Measures programs on one GPU."""

    def open(self, program: Program) -> Timed:
        """
        Raises:
            DeviceError: the GPU does not run it.
        """


@dataclass(slots=True)
class Findings:
    """What tuning a graph has found.

    Attributes:
        winners: by problem.
        seconds: of every candidate that was measured, by problem and candidate.
        left: problems that there was no time for.
        trouble: why measuring was ended; "" if it was not.
    """

    winners: dict[str, Winner] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    left: int = 0
    trouble: str = ""

    def text(self) -> str:
        """One line per problem, the fastest candidate first."""
        lines = [f"{problem}: {_ranked(seconds)}" for problem, seconds in self.seconds.items()]
        lines += [f"{self.left} problems are left to the cost model"] * bool(self.left)
        return "".join(f"{line}\n" for line in (*lines, self.trouble) if line)


def _ranked(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e6 * seconds[name]:.2f} us" for name in sorted(seconds, key=lambda name: seconds[name]))


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to tune.

    Attributes:
        effort: "fast" measures the few candidates that the cost model expects most of, as long as there is time; "full"
            measures all.
        stopwatch: measures.
        clock: seconds of the host, for the time that is spent.
    """

    effort: str
    stopwatch: Stopwatch
    clock: Callable[[], float] = time.perf_counter

    def choices(
        self, graph: Graph, gpu: Gpu, precision: str, directory: CacheDirectory | None, build: Build, trace: Trace
    ) -> Choices:
        """The choices of all tables, after what they lack was measured and stored."""
        known = merged(gpu, directory)
        findings = self.measure(graph, gpu, precision, known, build)
        trace("tuning", findings.text)
        add_to_table(directory, gpu.kind, findings.winners)
        return Choices(candidates_of({**known, **findings.winners}))

    def measure(self, graph: Graph, gpu: Gpu, precision: str, known: Mapping[str, Winner], build: Build) -> Findings:
        """What is measured for the problems of a lowered graph that are not known, those that take longest first."""
        few, seconds = (FEW, FAST_SECONDS) if self.effort == "fast" else (None, inf)
        done = [name for name, winner in known.items() if winner.serves(self.effort)]
        asked = problems_of(graph, gpu, precision, Choices(candidates_of(known)), done)
        findings, end = Findings(), self.clock() + seconds
        for number, one in enumerate(asked):
            if self.clock() >= end:
                findings.left = len(asked) - number
                break
            try:
                measured = self._seconds(one.plans(few), build)
            except CompileError:
                continue  # the cost model's candidate stays, and tells what is wrong where it is at fault
            except DeviceError as error:
                findings.left, findings.trouble = len(asked) - number, f"measuring ended: {error}"
                break
            findings.seconds[one.problem] = measured
            findings.winners[one.problem] = winner_of(one.question.ranked[0], measured, self.effort)
        return findings

    def _seconds(self, plans: Mapping[str, Plan], build: Build) -> dict[str, float]:
        """Median seconds of each candidate that the GPU runs.

        Raises:
            CompileError: one of them is not compiled.
            DeviceError: the first candidate, which is the cost model's, does not run.
        """
        opened: dict[str, Timed] = {}
        try:
            for name, program in zip(plans, build([*plans.values()]), strict=True):
                try:
                    opened[name] = self.stopwatch.open(program)
                except DeviceError:
                    if not opened:
                        raise
            return median_seconds(opened)
        finally:
            for timed in opened.values():
                timed.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem that the plan of a graph has.

    Attributes:
        cycles: of the cost model's candidate, times the number of nodes that have the problem.
    """

    problem: str
    question: Question
    cycles: float
    _writer: Writer
    _buffers: Buffers

    def plans(self, few: int | None = None) -> dict[str, Plan]:
        """The launches of the problem's node with each candidate, or with so many, the cost model's first.

        Raises:
            CompileError: one of them cannot be written.
        """
        return {name: self._plan(name) for name in self.question.ranked[:few]}

    def _plan(self, candidate: str) -> Plan:
        writer = self._writer.apart(Choices({**self._writer.choices.tuned, self.problem: candidate}))
        self.question.step(writer)
        return plan_apart(writer, self._buffers)


def problems_of(graph: Graph, gpu: Gpu, precision: str, choices: Choices, done: Container[str] = ()) -> list[Asked]:
    """The problems of a lowered graph that have several candidates and are not done, those that take longest first;
    raises as `plan`."""
    writer, buffers = written(graph, gpu, precision, choices)
    asked = [
        Asked(problem, one, one.uses * writer.launches[one.launch].cycles, writer, buffers)
        for problem, one in choices.asked.items()
        if len(one.ranked) > 1 and problem not in done
    ]
    return sorted(asked, key=lambda one: -one.cycles)


def winner_of(usual: str, seconds: Mapping[str, float], effort: str) -> Winner:
    """What wins among the candidates that were measured.

    Args:
        usual: the cost model's candidate.
    """
    best = min(seconds, key=lambda name: seconds[name])
    if seconds[best] >= (1 - GAIN) * seconds[usual]:
        best = usual
    return Winner(best, effort, 1e6 * seconds[best], 1e6 * seconds[usual])


def median_seconds(opened: Mapping[str, Timed]) -> dict[str, float]:
    """The median of each program's times; the programs run in turns."""
    taken: dict[str, list[float]] = {name: [] for name in opened}
    for _ in range(ROUNDS):
        for name, timed in opened.items():
            taken[name].append(timed.seconds())
    return {name: median(times) for name, times in taken.items()}
