"""Workers help while that is faster: made-up times, and counts of the runs that call them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.base.targets import LEVELS
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import Memory
from jitdelegate.targets.cpu.code.machine import compile_object, triple
from jitdelegate.targets.cpu.code.vector_ir import INDEX, Function, Module, Value
from jitdelegate.targets.cpu.entry import schedule, team
from jitdelegate.targets.cpu.entry.architecture import Architecture, architecture_of
from jitdelegate.targets.cpu.entry.link import link
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import chunks, depthwise
from tests.targets.execute import program_of
from tests.targets.test_cpu_graphs import RUNNABLE, Network, pyramid

pytestmark = pytest.mark.skipif(RUNNABLE[-1] == "generic", reason="no threads on this machine")
ALONE = 1000
"""Ticks of a run by the calling thread alone."""


class Team:
    """The compiled decision, without a machine.

    Attributes:
        runs: (whether it was alone, its ticks) of every run so far.
    """

    def __init__(self) -> None:
        module = Module(LEVELS[RUNNABLE[-1]])
        team.write_learn(module, exported=True)
        code, entries = link(compile_object(module.text(triple(RUNNABLE[-1])), RUNNABLE[-1]))
        self._code = Memory(len(code))
        self._code.write(code)
        self._code.make_executable()
        self._learn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._code.address + entries["learn"])
        self._memory = (ctypes.c_int64 * 8)()
        self.runs: list[tuple[bool, int]] = []

    @property
    def is_alone(self) -> bool:
        return bool(self._memory[team.ALONE // team.WORD])

    def run(self, count: int, ticks: Callable[[bool], int]) -> list[tuple[bool, int]]:
        """Runs that take `ticks(whether alone)`; returns them."""
        for _ in range(count):
            self.runs.append((self.is_alone, ticks(self.is_alone)))
            self._learn(ctypes.addressof(self._memory), self.runs[-1][1])
        return self.runs[-count:]


@pytest.fixture
def decision() -> Iterator[Team]:
    yield Team()


def constant(with_workers: int) -> Callable[[bool], int]:
    return lambda is_alone: ALONE if is_alone else with_workers


@pytest.mark.parametrize("with_workers", [250, 550, 900, 1100, 1300, 3000, 10_000])
def test_all_but_a_hundredth_of_the_time_goes_the_faster_way(decision: Team, with_workers: int) -> None:
    decision.run(100, constant(with_workers))
    runs = decision.run(20_000, constant(with_workers))
    assert sum(ticks for _, ticks in runs) <= 1.01 * len(runs) * min(ALONE, with_workers)
    assert len({is_alone for is_alone, _ in runs}) == 2  # it keeps trying


@pytest.mark.parametrize("share", [0.5, 0.7, 1.5, 4])
def test_trials_of_a_network_of_seconds_cost_a_hundredth_of_the_time_from_the_first_on(
    decision: Team, share: float
) -> None:
    alone, together = round(400 * team.LONG), round(400 * team.LONG * share)
    runs = decision.run(1000, lambda is_alone: alone if is_alone else together)
    firsts = [is_alone for is_alone, _ in runs].index(True)
    assert firsts == team.COST + 1  # the first run does not count
    paid = [max(ticks - min(alone, together), 0) for _, ticks in runs]
    if share < 1:
        assert all(sum(paid[:end]) <= sum(ticks for _, ticks in runs[:end]) / 50 for end in range(1, 1001))
    else:
        assert all(is_alone for is_alone, _ in runs[firsts : firsts + team.TRIAL])
        assert sum(paid[firsts + 1 :]) <= 0.07 * sum(ticks for _, ticks in runs[firsts + 1 :])


def test_a_long_run_that_something_else_disturbs_is_corrected_soon(decision: Team) -> None:
    alone, together = 20 * team.LONG, 11 * team.LONG
    decision.run(team.COST + 1, lambda is_alone: alone if is_alone else 3 * alone)  # another process has the CPU
    decision.run(1, lambda is_alone: alone)
    assert decision.is_alone
    decision.run(team.TRIAL + 2, lambda is_alone: alone if is_alone else together)
    assert not decision.is_alone
    assert not any(is_alone for is_alone, _ in decision.run(team.SOONEST, lambda _: together)[team.TRIAL :])


def test_the_time_of_runs_counts_not_their_number(decision: Team) -> None:
    """Runs that something else makes longer bring the next trial nearer."""
    decision.run(100, constant(1500))
    assert decision.is_alone
    usual = (1500 - ALONE) * team.TRIAL * team.COST // ALONE
    assert [_runs_between_trials(decision, alone) for alone in (ALONE, 5 * ALONE // 4)] == [usual, -(-usual * 4 // 5)]


def _runs_between_trials(decision: Team, alone: int) -> int:
    """After the next trial, how many runs follow until another one, each of so many ticks."""
    while decision.is_alone:
        decision.run(1, constant(1500))
    decision.run(team.TRIAL, constant(1500))
    before = len(decision.runs)
    while decision.is_alone:
        decision.run(1, lambda _: alone)
    return len(decision.runs) - before


@pytest.mark.parametrize("with_workers", [985, 1000, 1025])
def test_no_change_for_less_than_a_few_hundredths(decision: Team, with_workers: int) -> None:
    runs = decision.run(5000, constant(with_workers))
    assert sum(is_alone for is_alone, _ in runs) <= 5000 * team.TRIAL / team.SOONEST + team.TRIAL


def test_help_that_turns_slow_ends_within_a_few_runs(decision: Team) -> None:
    decision.run(1000, constant(550))
    assert not decision.is_alone
    decision.run(team.MANY_SLOW + team.TRIAL, constant(1300))
    assert decision.is_alone
    assert all(is_alone for is_alone, _ in decision.run(team.SOONEST - 1, constant(1300)))


def test_help_that_pays_again_is_found_again(decision: Team) -> None:
    decision.run(1000, constant(1300))
    assert decision.is_alone
    loss = (1300 - ALONE) / ALONE
    decision.run(round(loss * team.TRIAL * team.COST) + 2 * team.TRIAL, constant(550))
    assert not decision.is_alone


def test_runs_that_something_else_disturbs_do_not_decide(decision: Team) -> None:
    noise = random.Random(0)

    def ticks(is_alone: bool) -> int:
        usual = noise.gauss(1, 0.04) * (ALONE if is_alone else 600)
        return round(usual * (8 if noise.random() < 0.1 else 1))

    runs = decision.run(20_000, ticks)
    assert sum(is_alone for is_alone, _ in runs) < 0.06 * len(runs)


@pytest.mark.parametrize(("clock", "calls_workers"), [((1000, 100), False), ((100, 1000), True)])
def test_a_session_calls_its_workers_where_the_clock_says_that_it_pays(
    clock: tuple[int, int], calls_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that moves by (ticks of a run with workers, ticks of a run alone)."""
    monkeypatch.setattr(chunks, "SMALL_WORK", 1)
    monkeypatch.setattr(chunks, "CHUNK_WORK", 5000)
    monkeypatch.setattr(depthwise, "CHUNK_WORK", 5000)

    def now(_: Architecture, f: Function) -> Value:
        sync = f.parameters[3]
        readings = f.load(INDEX, sync + schedule.RUNS) + 1
        f.store(readings, sync + schedule.RUNS)
        called = f.cast("zext", f.load("i32", sync + schedule.RUN), INDEX)
        return readings * clock[1] + called * (clock[0] - clock[1])

    monkeypatch.setattr(type(architecture_of(triple(RUNNABLE[-1]))), "now", now)
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    program = program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1])
    feed = [np.ones(graph.tensors[i].shape, np.float32) for i in graph.inputs]
    session = Session(program, 2)
    assert session._memory is not None
    expected, runs = None, 400
    for _ in range(runs):
        found = [bytes(output) for output in session.run(feed)]
        assert found == (expected := expected or found)
    calls = ctypes.c_uint32.from_address(session._memory._sync + schedule.RUN).value
    session.close()
    assert calls > 0.9 * runs if calls_workers else calls < 0.1 * runs


@pytest.mark.parametrize(("least_worth", "workers"), [(1 << 62, 0), (0, 2)])
def test_workers_are_started_only_where_a_step_is_large_enough(
    least_worth: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.targets.cpu.code.kernel.LEAST_WORTH", least_worth)
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    session = Session(program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1]), 3)
    session.run([np.ones(graph.tensors[i].shape, np.float32) for i in graph.inputs])
    assert session._memory is not None
    assert len(session._memory.workers) == workers
    session.close()


def test_one_thread_never_calls_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "SMALL_WORK", 1)
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    session = Session(program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1]), 1)
    assert session._memory is not None
    for _ in range(50):
        session.run([np.ones(graph.tensors[i].shape, np.float32) for i in graph.inputs])
    assert ctypes.c_uint32.from_address(session._memory._sync + schedule.RUN).value == 0
    session.close()
