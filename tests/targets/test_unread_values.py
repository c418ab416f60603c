"""What an operator does not read may be anything: infinite, NaN, or beyond float16. Nothing multiplies it by zero."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, maximum
from jitdelegate.ir.forms import Contract, IndexMap, Map, View
from jitdelegate.ir.graph import ABSENT, Graph
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from tests.targets import cuda_execute
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE
from tests.targets.part_graphs import Draft

SUMS = (
    "CONV_2D",
    "CONV_3D",
    "DEPTHWISE_CONV_2D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "BATCH_MATMUL",
    "AVERAGE_POOL_2D",
)
MOST_CASES = 3
CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name in SUMS
    for number, case in enumerate(OPS[name].cases[:MOST_CASES])
    if OPS[name].check(case.graph(OPS[name]), case.graph(OPS[name]).nodes[0]) is None
]
ROADS = (*RUNNABLE, "float32", "float16")
"""Levels of the CPU, precisions of a GPU."""


def results(graph: Graph, feeds: list[np.ndarray], road: str) -> list[np.ndarray]:
    if road in RUNNABLE:
        return execute(graph, feeds, road)
    return cuda_execute.run(graph, feeds, precision=road)


def with_values(feeds: list[np.ndarray], places: np.ndarray, value: float) -> list[np.ndarray]:
    """The feeds with a value at some places of the first."""
    data = feeds[0].copy()
    data.ravel()[places] = value
    return [data, *feeds[1:]]


def operands(graph: Graph, feeds: list[np.ndarray]) -> list[np.ndarray | None]:
    fed = dict(zip(graph.inputs, feeds, strict=True))
    inputs = graph.nodes[0].inputs
    return [None if index == ABSENT else fed.get(index, graph.tensors[index].data) for index in inputs]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(("name", "case"), CASES)
def test_results_that_do_not_depend_on_an_element_do_not_change_with_it(name: str, case: Case, road: str) -> None:
    op = OPS[name]
    graph, feeds = case.graph(op), case.feeds()
    places = np.random.default_rng(feeds[0].size).choice(feeds[0].size, min(2, feeds[0].size), replace=False)
    unread = [~np.isnan(each) for each in op.reference(operands(graph, with_values(feeds, places, np.nan)), case.attrs)]
    lowered = lower(graph)
    before = results(lowered, feeds, road)
    for value in (7e4,) if road == "float16" else (np.inf, np.nan):
        after = results(lowered, with_values(feeds, places, value), road)
        for found, expected, same in zip(after, before, unread, strict=True):
            np.testing.assert_allclose(found[same], expected[same], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("road", ROADS)
def test_half_of_shuffled_channels_is_convolved_whatever_the_other_half_is(road: str) -> None:
    """As in ShuffleNet."""
    draft, (pixels, channels) = Draft((1, 3, 5, 12)), (15, 12)
    turned = IndexMap((0, 2, 1), (0, 0, 0), (1, 1, 1))
    split = draft.node(View(), [draft.map(maximum(Arg(0), 0.0), 0)], (pixels, 2, channels // 2))
    mixed = draft.node(Map(Arg(0), (turned,)), [split], (pixels, channels // 2, 2))
    half = draft.slice(draft.node(View(), [mixed], (1, 3, 5, channels)), (0, 0, 0, 6), (1, 3, 5, 6))
    weights = draft.constant(np.random.default_rng(0).uniform(-1, 1, (4, 1, 1, 6)).astype(np.float32))
    graph = draft.graph(draft.node(Contract(), [half, weights, -1], (1, 3, 5, 4)))
    x = np.random.default_rng(1).uniform(0, 1, (1, 3, 5, 12)).astype(np.float32)
    planted = x.copy()
    planted[..., 0], planted[..., 7] = 7e4, np.inf  # read are channels 3, 4, 5, 9, 10 and 11
    np.testing.assert_array_equal(results(graph, [planted], road)[0], results(graph, [x], road)[0])
