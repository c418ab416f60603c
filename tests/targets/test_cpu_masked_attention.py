"""Attention with a mask on the CPU: keys and values behind the last block that a row sees are not read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products.attention import LARGEST_BLOCK
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.matmul_graphs import HEADS, attention, feeds_of
from tests.targets.test_cpu_graphs import RUNNABLE

LOWEST = float(np.finfo(np.float32).min)
KEYS = 5 * LARGEST_BLOCK
SIZES = [(1, 64, KEYS, 64), (3, 40, KEYS, 37), (5, 32, 320, 48), (60, 24, KEYS, 32)]
"""Rows, depth, keys and columns of the values: of one token, of a group of heads, of prompts."""


def graph_of(sizes: tuple[int, int, int, int], *, adj_y: bool = True) -> Graph:
    graph = attention(sizes, adj_y=adj_y)
    assert [kernel.form for kernel in generate(graph, RUNNABLE[-1]).kernels] == ["MatMul+Softmax+MatMul"]
    return graph


def masked(graph: Graph, seen: np.ndarray, hidden: float) -> list[np.ndarray]:
    """Inputs whose mask lets the row of each number in `seen` see so many keys."""
    a, b, mask, values = feeds_of(graph)
    mask[np.arange(mask.shape[1]) >= seen[:, None]] = hidden
    return [a, b, mask, values]


def check(graph: Graph, feeds: list[np.ndarray], features: str, threads: int = 1) -> None:
    [answer], [expected] = execute(graph, feeds, features, threads=threads), run_graph(graph, feeds)
    assert np.linalg.norm(answer - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("hidden", [-np.inf, LOWEST, -1e9, -3.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("features", RUNNABLE)
def test_hidden_keys_weigh_nothing(features: str, sizes: tuple[int, int, int, int], hidden: float) -> None:
    graph, rows, keys = graph_of(sizes), sizes[0], sizes[2]
    for first in (1, keys // 3, keys - rows):
        check(graph, masked(graph, first + np.arange(rows), hidden), features, threads=2)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("features", RUNNABLE)
def test_keys_and_values_behind_the_last_block_are_not_read(features: str, sizes: tuple[int, int, int, int]) -> None:
    graph, rows = graph_of(sizes), sizes[0]
    feeds = masked(graph, np.full(rows, 70), -np.inf)
    [expected] = run_graph(graph, feeds)
    feeds[1][:, :, LARGEST_BLOCK:] = np.nan
    feeds[3][:, LARGEST_BLOCK:] = np.nan
    [answer] = execute(graph, feeds, features)
    assert np.linalg.norm(answer - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("rows", [1, 4, 60])
@pytest.mark.parametrize("features", RUNNABLE)
def test_values_may_be_stored_transposed(features: str, rows: int) -> None:
    graph = attention((rows, 40, KEYS, 37), adj_y=rows == 4)
    values, product = graph.tensors[3], graph.nodes[2]
    turned = replace(values, shape=(2, 3, 37, KEYS))
    graph = replace(
        graph,
        tensors=(*graph.tensors[:3], turned, *graph.tensors[4:]),
        nodes=(*graph.nodes[:2], replace(product, form=MatMul(adj_y=True, order=HEADS))),
    )
    for first in (1, KEYS // 3, KEYS - rows):
        check(graph, masked(graph, first + np.arange(rows), -np.inf), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_row_that_sees_no_key_weighs_all_of_them(features: str) -> None:
    graph = graph_of((3, 40, KEYS, 37))
    check(graph, masked(graph, np.array([70, 0, 90]), LOWEST), features)
    feeds = masked(graph, np.array([70, 0, 90]), -np.inf)
    [answer], [expected] = execute(graph, feeds, features), run_graph(graph, feeds)
    np.testing.assert_array_equal(np.isnan(answer), np.isnan(expected))


@pytest.mark.parametrize("features", RUNNABLE)
def test_nan_in_a_mask_reaches_the_result(features: str) -> None:
    graph = graph_of((3, 40, KEYS, 37))
    feeds = masked(graph, np.array([70, 80, 90]), -np.inf)
    feeds[2][1, KEYS - 1] = np.nan
    [answer] = execute(graph, feeds, features)
    assert np.isnan(answer[:, 1]).all()
    assert np.isfinite(answer[:, [0, 2]]).all()


def test_products_without_a_mask_stay_as_they_are() -> None:
    """What fewer than two blocks of keys would save is less than what looking for them costs."""
    made = generate(attention((3, 40, LARGEST_BLOCK // 2, 37), adj_y=True), RUNNABLE[-1])
    assert [kernel.form for kernel in made.kernels] == ["MatMul", "Softmax", "MatMul"]
