"""Long sums: rounding errors stay small where thousands of products are added."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.targets.cpu.multiply.products import SEGMENT, segments_of
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE
from tests.targets.test_cpu_graphs import Network

DEPTH = 16 * 4 * SEGMENT


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_sum_of_thousands_is_as_good_as_one_of_hundreds(features: str) -> None:
    net = Network(np.random.default_rng(0))
    x, filters = net.input(12, DEPTH), net.weights(64, DEPTH)
    dense = net.op("FULLY_CONNECTED", x, filters, net.weights(64), shape=(12, 64))
    graph = passes.run(net.graph(dense))
    feed = np.random.default_rng(1).uniform(0, 1, (12, DEPTH)).astype(np.float32)
    (found,) = execute(graph, [feed], features)
    weights, bias = (np.asarray(net.tensors[i].data, np.float64) for i in (filters, filters + 1))
    exact = feed.astype(np.float64) @ weights.T + bias
    error = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
    assert error < 4e-7  # one chain of sums over all of K is at 9e-7


@pytest.mark.parametrize(("quads", "segments"), [(0, 1), (100, 1), (128, 2), (256, 2), (1024, 8), (576, 4), (1009, 1)])
def test_segments_divide_the_sum_evenly(quads: int, segments: int) -> None:
    assert segments_of(quads) == segments
    assert quads % segments == 0
