"""Layouts: blocks for images that only image kernels touch, halos for windows, row-major for all else."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.planning.choose_layout import choose_layout
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.test_cpu_graphs import Network


def layouts_of(graph: Graph, lanes: int = 16) -> dict[str, Layout]:
    """Layouts by the operator that writes the tensor; inputs as "input"."""
    lowered = passes.run(graph)
    return {lowered.tensors[i].name: layout for i, layout in choose_layout(lowered, lanes).items()}


@pytest.fixture
def net() -> Network:
    return Network(np.random.default_rng(0))


def test_a_window_that_reaches_over_the_border_gets_a_halo(net: Network) -> None:
    x = net.input(1, 9, 8, 32)
    graph = net.graph(net.conv(net.depthwise(x, 5, stride=2), 8))
    found = layouts_of(graph)
    assert found["input"].halo == (2, 2, 1, 2)  # SAME: 9 rows by 2 need 4 more, 8 columns by 2 need 3 more
    assert found["DEPTHWISE_CONV_2D"].halo == (0, 0, 0, 0)


def test_a_transposed_convolution_reads_beyond_both_ends(net: Network) -> None:
    x = net.input(1, 5, 5, 16)
    sizes = net.integers(1, 10, 10, 8)
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    y = net.op("TRANSPOSE_CONV", sizes, net.weights(8, 3, 3, 16), x, shape=(1, 10, 10, 8), **options)
    assert layouts_of(net.graph(y))["input"].halo == (1, 0, 1, 0)


def test_images_between_convolutions_are_blocked_and_outputs_are_not(net: Network) -> None:
    x = net.input(1, 8, 8, 3)
    found = layouts_of(net.graph(net.conv(net.depthwise(net.conv(x, 24)), 40)))
    assert [found[name].blocked for name in ("input", "DEPTHWISE_CONV_2D", "CONV_2D")] == [False, True, False]


def test_a_tensor_that_softmax_reads_is_row_major(net: Network) -> None:
    x = net.input(1, 8, 8, 32)
    y = net.same("SOFTMAX", net.conv(x, 32, activation="NONE"), beta=1.0)
    found = layouts_of(net.graph(net.conv(y, 8)))
    assert not found["SOFTMAX"].blocked


def test_joining_in_the_middle_of_a_block_is_row_major(net: Network) -> None:
    x = net.input(1, 8, 8, 32)
    a, b = net.conv(x, 24), net.conv(x, 32)
    joined = net.op("CONCATENATION", a, b, shape=(1, 8, 8, 56), axis=3)
    graph = net.graph(net.conv(joined, 8))
    assert not layouts_of(graph, lanes=16)["CONCATENATION"].blocked
    assert layouts_of(graph, lanes=8)["CONCATENATION"].blocked


@pytest.mark.parametrize("blocked", [False, True])
def test_elements_of_a_layout_do_not_collide(blocked: bool) -> None:
    layout = Layout((2, 3, 4, 21), 8, blocked, (1, 2, 1, 0))
    n, y, x, c = np.indices(layout.shape)
    place = layout.base + n * layout.image + y * layout.row + x * layout.pixel
    place = place + c // 8 * layout.block + c % 8 * 4
    assert len(np.unique(place)) == place.size
    assert place.min() >= 0
    assert place.max() < layout.size


def test_an_image_that_is_cut_out_of_five_axes_is_row_major(net: Network) -> None:
    x = net.input(2, 1, 8, 8, 32)
    places = (net.integers(*place) for place in ((1,), (2,), (1,)))
    image = net.op("STRIDED_SLICE", x, *places, shape=(1, 8, 8, 32), shrink_axis_mask=1)
    graph = net.graph(net.conv(image, 8))
    assert not layouts_of(graph)["STRIDED_SLICE"].blocked
    feed = np.random.default_rng(1).uniform(-1, 1, (2, 1, 8, 8, 32)).astype(np.float32)
    lowered = passes.run(graph)
    np.testing.assert_allclose(execute(lowered, [feed], "generic")[0], run_graph(lowered, [feed])[0], atol=1e-5)
