"""Weights with a zero point, for targets whose kernels have none."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import Tensor
from jitdelegate.passes.sum_rows import sum_rows
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.integer_graphs import feeds_of, graph_of, to_int8, whole_range

WINDOW = {"kernel": (3, 2), "padding": (1, 1, 0, 1), "halo_value": 9, "input_zero": 131, "accumulator": "int32"}


@pytest.mark.parametrize("groups", [1, 2])
def test_sums_of_the_data_are_a_product_of_their_own(groups: int) -> None:
    epilogue, factors = to_int8(4)
    graph = graph_of(
        Contract(epilogue, **WINDOW, groups=groups, filter_zero=-128),
        Tensor("x", (2, 5, 6, 6), "uint8"),
        (2, 5, 6, 4),
        weights=whole_range((4, 3, 2, 6 // groups), "int8", 1),
        bias=whole_range((4,), "int32", 2) // 50_000,
        constants=[factors],
        dtype="int8",
    )
    summed = sum_rows(graph)
    assert [node.form.filter_zero for node in summed.nodes] == [0, 0]
    ones = summed.tensors[summed.nodes[0].inputs[1]]
    assert ones.shape == (1 if groups == 1 else 4, 3, 2, 6 // groups)
    feeds = feeds_of(graph)
    (found,), (expected,) = run_graph(summed, feeds), run_graph(graph, feeds)
    np.testing.assert_array_equal(found, expected)


def test_other_graphs_stay_as_they_are() -> None:
    graph = graph_of(Contract(**WINDOW), Tensor("x", (1, 5, 6, 3), "uint8"), (1, 5, 6, 4),
                     weights=whole_range((4, 3, 2, 3), "int8", 1))  # fmt: skip
    assert sum_rows(graph).nodes == graph.nodes
