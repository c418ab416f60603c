"""Time stamps in CPU code: off by default, and then not a byte differs; on, every run leaves one per step."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Program
from jitdelegate.runtime.cpu.profile import stamp_bytes
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import CLOCK_ENTRY
from jitdelegate.runtime.profile import ROWS, medians
from jitdelegate.targets.cpu.entry.schedule import sync_bytes
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import chunks, depthwise
from tests.targets.execute import program_of
from tests.targets.test_cpu_graphs import RUNNABLE, Network, pyramid


def lowered() -> Graph:
    return passes.run(pyramid(Network(np.random.default_rng(0))))


def profiled(graph: Graph, features: str) -> Program:
    return program_of(graph, generate(graph, features, profile=True), features)


def values(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.normal(0, 1, graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_profiled_program_computes_the_same_and_times_every_kernel(
    features: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "SMALL_WORK", 1)
    monkeypatch.setattr(chunks, "CHUNK_WORK", 5000)
    monkeypatch.setattr(depthwise, "CHUNK_WORK", 5000)
    graph = lowered()
    program = profiled(graph, features)
    plain = Session(program_of(graph, generate(graph, features), features))
    timed = Session(program, threads)
    assert timed.kernel_seconds() == [None] * len(program.kernels)
    for _ in range(2 * ROWS + 3):
        assert [bytes(each) for each in timed.run(values(graph))] == [bytes(each) for each in plain.run(values(graph))]
    assert plain.kernel_seconds() == [None] * len(program.kernels)
    seconds = timed.kernel_seconds()
    assert len(seconds) == len(program.kernels)
    assert all(each is not None and each >= 0 for each in seconds) and any(seconds)
    timed.close()
    assert timed.kernel_seconds() == [None] * len(program.kernels)
    plain.close()


@pytest.mark.parametrize("features", RUNNABLE)
def test_code_has_a_clock_only_where_it_is_asked_for(features: str) -> None:
    graph = lowered()
    plain, timed = (generate(graph, features, profile=profile) for profile in (False, True))
    assert CLOCK_ENTRY not in dict(plain.entries) and CLOCK_ENTRY in dict(timed.entries)
    assert timed.sync_bytes - sync_bytes(len(plain.kernels)) == stamp_bytes(len(plain.kernels))
    assert plain == generate(graph, features)


def test_sync_memory_without_room_for_stamps_gives_no_times() -> None:
    """As of a file that somebody made up."""
    graph = lowered()
    program = profiled(graph, RUNNABLE[-1])
    program.kernels = program.kernels * 1000
    session = Session(program)
    assert session.kernel_seconds() == [None] * len(program.kernels)
    session.close()


def test_the_median_is_per_kernel() -> None:
    assert medians([[3.0, 1.0], [1.0, 2.0], [2.0, 9.0]], 2) == [2.0, 2.0]
    assert medians([], 2) == [None, None]
