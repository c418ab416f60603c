"""Pools, resampled images and reductions, row-major in the caller's memory and in blocks, against the form
interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.fenced import run_fenced
from tests.targets.test_cpu_graphs import RUNNABLE, Network
from tests.targets.test_cpu_layouts import assert_computes_what_its_forms_say
from tests.targets.test_cpu_parts import planned

Shape = tuple[int, ...]
FLAT = [features for features in RUNNABLE if features != "generic"]


@pytest.fixture
def net() -> Network:
    return Network(np.random.default_rng(0))


def resampled(net: Network, name: str, x: int, height: int, width: int) -> int:
    channels = net.tensors[x].shape[3]
    if name.endswith("POOL_2D"):
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 3}
        return net.op(name, x, shape=(2, 4, 5, channels), **options)
    if name.startswith("RESIZE"):
        return net.op(name, x, net.integers(height, width), shape=(2, height, width, channels))
    return net.op(name, x, net.integers(1, 2), shape=(2, 1, 1, channels), keep_dims=True)


@pytest.mark.parametrize("channels", [3, 12, 16, 37, 64])
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    "name", ["MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "MEAN", "REDUCE_MAX"]
)
def test_the_caller_s_images_are_read_in_place_and_not_beyond_their_end(
    net: Network, name: str, at_end: bool, channels: int
) -> None:
    graph = net.graph(resampled(net, name, net.input(2, 7, 9, channels), 13, 4))
    assert len(planned(graph).tasks) == 1
    graph = passes.run(graph)
    feeds = [np.random.default_rng(1).normal(0, 1, (2, 7, 9, channels)).astype(np.float32)]
    for features in FLAT:
        (found,), (wanted,) = run_fenced(graph, feeds, features, at_end=at_end), run_graph(graph, feeds)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [3, 17, 40, 100])
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM", "REDUCE_PROD"])
def test_rows_are_reduced_to_their_last_element_and_no_further(
    net: Network, name: str, at_end: bool, size: int
) -> None:
    """Negative and positive numbers only, so that zeros in place of elements that do not exist would show."""
    y = net.op(name, net.input(5, 3, size), net.integers(2), shape=(5, 3), keep_dims=False)
    graph = passes.run(net.graph(y))
    for sign in (1, -1):
        feeds = [sign * np.random.default_rng(1).uniform(0.9, 1.1, (5, 3, size)).astype(np.float32)]
        for features in FLAT:
            (found,), (wanted,) = run_fenced(graph, feeds, features, at_end=at_end), run_graph(graph, feeds)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("axes", [(1,), (0, 2)])
@pytest.mark.parametrize("channels", [5, 16, 200])
def test_columns_are_reduced_in_groups_of_vectors(net: Network, channels: int, axes: Shape) -> None:
    kept = tuple(size for axis, size in enumerate((3, 21, 2, channels)) if axis not in axes)
    y = net.op("MEAN", net.input(3, 21, 2, channels), net.integers(*axes), shape=kept, keep_dims=False)
    assert_computes_what_its_forms_say(net.graph(y))


@pytest.mark.parametrize("name", ["MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "MEAN"])
def test_images_of_convolutions_are_read_in_blocks(net: Network, name: str) -> None:
    y = resampled(net, name, net.conv(net.input(2, 7, 9, 3), 37, 3), 13, 4)
    assert_computes_what_its_forms_say(net.graph(net.conv(y, 20)))
