"""Kernels on layouts that only combinations of operators bring about, against the form interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from tests.ops.form_reference import run_graph
from tests.targets.execute import execute
from tests.targets.test_cpu_graphs import RUNNABLE, Network


@pytest.fixture
def net() -> Network:
    return Network(np.random.default_rng(0))


def assert_computes_what_its_forms_say(graph: Graph) -> None:
    lowered = passes.run(graph)
    random = np.random.default_rng(1)
    feeds = [random.normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    expected = run_graph(lowered, feeds)
    for features in RUNNABLE:
        for found, wanted in zip(execute(lowered, feeds, features), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_groups_read_the_operand_of_a_residual_add_at_their_own_channels(net: Network) -> None:
    x, other = net.input(1, 5, 6, 15), net.input(1, 5, 6, 45)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    y = net.op("CONV_2D", x, net.weights(45, 3, 3, 1), net.weights(45), shape=(1, 5, 6, 45), **options)
    assert_computes_what_its_forms_say(net.graph(net.same("ADD", y, other)))
