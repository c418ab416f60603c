"""Threads share chunks and nothing else: the answer does not depend on how many there are, or on who comes late."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.targets.cpu import contract, depthwise
from jitdelegate.targets.cpu.generate import generate
from tests.targets.execute import program_of
from tests.targets.test_cpu_graphs import RUNNABLE, Network, pyramid


@pytest.mark.parametrize("threads", (2, 5, 8))
def test_every_run_gives_the_bits_of_a_single_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "SMALL_WORK", 1)
    monkeypatch.setattr(contract, "CHUNK_WORK", 5000)
    monkeypatch.setattr(depthwise, "CHUNK_WORK", 5000)
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    program = program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1])
    random = np.random.default_rng(1)
    feeds = [[random.normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs] for _ in range(2)]
    alone, shared = Session(program, 1), Session(program, threads)
    expected = [[bytes(output) for output in alone.run(feed)] for feed in feeds]
    for turn in range(200):
        assert [bytes(output) for output in shared.run(feeds[turn % 2])] == expected[turn % 2]
    alone.close()
    shared.close()
