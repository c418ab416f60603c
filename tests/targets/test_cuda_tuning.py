"""Tuning: what is measured, in which order, and what wins; by a stopwatch that makes its times up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.errors import CompileError, DeviceError
from jitdelegate.ir.graph import Graph
from jitdelegate.runtime.cache.place import open_place
from jitdelegate.runtime.cache.tuned import Winner, read_table
from jitdelegate.targets.cuda import tuning
from jitdelegate.targets.cuda.code.choices import Choices, candidate
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.tables import candidates_of
from jitdelegate.targets.cuda.plan.plan import Plan, plan
from jitdelegate.targets.cuda.tuning import FEW, ROUNDS, Findings, Tuning
from tests.targets.tuned_graphs import convolution

GPU = GPUS["sm_90"]


def name_of(planned: Plan) -> str:
    """The candidate of a plan of one convolution."""
    first: Any = planned.launches[0]
    return candidate(first.template.tile, first.grid[2])


@dataclass
class FakeTimed:
    watch: FakeStopwatch
    name: str

    def seconds(self) -> float:
        self.watch.log.append(self.name)
        found = self.watch.times(self.name)
        self.watch.now += found
        return found

    def close(self) -> None:
        self.watch.open_ones -= 1


@dataclass
class FakeStopwatch:
    """Plans stand for programs; `times` says how long each candidate takes."""

    times: Callable[[str], float]
    refused: Sequence[str] = ()
    log: list[str] = field(default_factory=list)
    open_ones: int = 0
    now: float = 0.0

    def open(self, program: Any) -> FakeTimed:
        name = name_of(program)
        if name in self.refused:
            raise DeviceError(f"{name} does not run")
        self.open_ones += 1
        return FakeTimed(self, name)


def measured(
    watch: FakeStopwatch, effort: str = "full", known: Mapping[str, Winner] | None = None, graph: Graph | None = None
) -> Findings:
    found = Tuning(effort, watch, lambda: watch.now).measure(
        graph or convolution(),
        GPU,
        "float16",
        known or {},
        lambda plans: list(plans),  # type: ignore[arg-type]
    )
    assert watch.open_ones == 0
    return found


def ranked() -> tuple[str, tuple[str, ...]]:
    """The convolution's problem and its candidates."""
    asked = Choices()
    plan(convolution(), GPU, "float16", asked)
    ((problem, question),) = asked.asked.items()
    return problem, question.ranked


PROBLEM, NAMES = ranked()


def test_the_fastest_candidate_wins_and_all_run_in_turns() -> None:
    watch = FakeStopwatch({**dict.fromkeys(NAMES, 3e-6), NAMES[-1]: 2e-6}.__getitem__)
    found = measured(watch)
    assert watch.log == [*NAMES] * ROUNDS
    winner = found.winners[PROBLEM]
    assert (winner.candidate, winner.effort) == (NAMES[-1], "full")
    assert (winner.microseconds, winner.before) == pytest.approx((2.0, 3.0))
    assert found.text().startswith(f"{PROBLEM}: {NAMES[-1]} 2.00 us, ")


def test_what_gains_three_percent_or_less_leaves_the_choice_of_the_cost_model() -> None:
    for gain, expected in ((0.02, NAMES[0]), (0.04, NAMES[1])):
        times = {**dict.fromkeys(NAMES, 1e-6), NAMES[1]: (1 - gain) * 1e-6}
        assert measured(FakeStopwatch(times.__getitem__)).winners[PROBLEM].candidate == expected


def test_one_slow_round_decides_nothing() -> None:
    turn = count()
    watch = FakeStopwatch(lambda name: 1.0 if next(turn) == 0 else 1e-3 if name == NAMES[0] else 2e-3)
    assert measured(watch).winners[PROBLEM].candidate == NAMES[0]


def test_fast_measures_what_the_cost_model_expects_most_of() -> None:
    watch = FakeStopwatch(lambda name: 1e-6)
    measured(watch, "fast")
    assert len(NAMES) > FEW
    assert watch.log == [*NAMES[:FEW]] * ROUNDS


def test_fast_ends_when_its_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FAST_SECONDS", 0.0)
    watch = FakeStopwatch(lambda name: 1e-6)
    found = measured(watch, "fast")
    assert (watch.log, found.winners, found.left) == ([], {}, 1)
    assert "1 problems are left to the cost model" in found.text()


@pytest.mark.parametrize(
    ("known", "effort", "launches"), [("fast", "fast", 0), ("full", "fast", 0), ("fast", "full", len(NAMES) * ROUNDS)]
)
def test_what_is_known_is_not_measured_again(known: str, effort: str, launches: int) -> None:
    watch = FakeStopwatch(lambda name: 1e-6)
    measured(watch, effort, {PROBLEM: Winner(NAMES[1], known, 1, 1)})
    assert len(watch.log) == launches


def test_a_candidate_that_does_not_run_is_left_out_and_the_cost_models_ends_measuring() -> None:
    watch = FakeStopwatch(lambda name: 1e-6, refused=NAMES[1:2])
    assert NAMES[1] not in measured(watch).seconds[PROBLEM]
    found = measured(FakeStopwatch(lambda name: 1e-6, refused=NAMES[:1]))
    assert (found.winners, found.left) == ({}, 1)
    assert found.trouble == f"measuring ended: {NAMES[0]} does not run"


def test_a_device_that_fails_meanwhile_ends_measuring() -> None:
    def fail(name: str) -> float:
        raise DeviceError("an illegal memory access was encountered")

    found = measured(FakeStopwatch(fail))
    assert (found.winners, found.left) == ({}, 1)


def test_a_candidate_that_is_not_compiled_leaves_the_problem_to_the_cost_model() -> None:
    def refuse(plans: Sequence[Plan]) -> Any:
        raise CompileError("NVVM refuses a kernel")

    found = Tuning("full", FakeStopwatch(lambda name: 1e-6)).measure(convolution(), GPU, "float16", {}, refuse)
    assert (found.winners, found.left) == ({}, 0)


def test_the_users_table_is_over_the_packages_and_receives_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = {PROBLEM: Winner(NAMES[1], "full", 1, 2), "other": Winner("x", "full", 1, 2)}
    monkeypatch.setattr("jitdelegate.targets.cuda.code.tables.shipped_table", lambda kind: shipped)
    place = open_place(str(tmp_path))
    watch = FakeStopwatch({**dict.fromkeys(NAMES, 3e-6), NAMES[2]: 2e-6}.__getitem__)
    how, texts = Tuning("full", watch), list[str]()

    def choices() -> Choices:
        return how.choices(
            convolution(),
            GPU,
            "float16",
            place,
            lambda plans: list(plans),
            lambda _, make: texts.append(make()),  # type: ignore[arg-type]
        )

    assert choices().tuned == {PROBLEM: NAMES[1], "other": "x"}
    assert watch.log == []
    shipped[PROBLEM] = Winner(NAMES[1], "fast", 1, 2)
    assert choices().tuned == {PROBLEM: NAMES[2], "other": "x"}
    assert candidates_of(read_table(place, "sm_90:132")) == {PROBLEM: NAMES[2]}
    measurements = len(watch.log)
    assert choices().tuned == {PROBLEM: NAMES[2], "other": "x"}
    assert len(watch.log) == measurements
    assert len(texts) == 3
