"""Kernels on layouts that only combinations of operators bring about, against the form interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.planning.choose_layout import choose_layout
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.test_cpu_graphs import RUNNABLE, Network

Shape = tuple[int, ...]


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


@pytest.mark.parametrize(("inputs", "outputs"), [(32, 16), (16, 48), (16, 24), (8, 16)])
def test_groups_of_whole_blocks_read_and_write_blocked_images(net: Network, inputs: int, outputs: int) -> None:
    x, other = net.conv(net.input(2, 6, 7, 3), 3 * inputs, 3), net.input(2, 6, 7, 3 * outputs)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    filters, shape = net.weights(3 * outputs, 3, 3, inputs), (2, 6, 7, 3 * outputs)
    scale = net.conv(other, 3 * outputs)
    y = net.op("CONV_2D", x, filters, net.weights(3 * outputs), shape=shape, **options)
    y = net.same("ADD", net.same("ADD", net.same("MUL", y, scale), other), net.weights(3 * outputs))
    graph = net.graph(net.conv(y, 5))
    assert choose_layout(passes.run(graph), 16)[y].blocked == (inputs % 16 == outputs % 16 == 0)
    assert_computes_what_its_forms_say(graph)


@pytest.mark.parametrize("axes", [(1, 2), (3,), (1,), (0, 3)])
@pytest.mark.parametrize("factor", [(1, 1, 1, 7), (1, 4, 1, 1), (1, 1, 5, 7), (2, 4, 5, 1), (1, 1, 1, 1)])
def test_a_sum_is_scaled_by_a_factor_that_is_repeated(net: Network, axes: Shape, factor: Shape) -> None:
    """The sum keeps its axes, so that it is an image; the factor is repeated along those that it lacks."""
    x = net.input(2, 4, 5, 7)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate((2, 4, 5, 7)))
    total = net.op("SUM", x, net.integers(*axes), shape=kept, keep_dims=True)
    part = tuple(min(pair) for pair in zip(kept, factor, strict=True))
    for other in (net.weights(*part), net.input(*part)):
        assert_computes_what_its_forms_say(net.graph(net.op("MUL", total, other, shape=kept)))
        net.nodes.pop()


@pytest.mark.parametrize("axes", [(1, 2), (3,), (2,)])
def test_a_sum_is_written_between_the_zeros_that_a_window_needs(net: Network, axes: Shape) -> None:
    x = net.input(2, 4, 5, 7)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate((2, 4, 5, 7)))
    total = net.op("SUM", x, net.integers(*axes), shape=kept, keep_dims=True)
    assert_computes_what_its_forms_say(net.graph(net.conv(total, 9, 3)))


def test_a_depthwise_window_that_is_too_wide_to_unroll(net: Network) -> None:
    x = net.input(1, 3, 5, 18)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_w_factor": 2}
    y = net.op("DEPTHWISE_CONV_2D", x, net.weights(1, 2, 67, 18), net.weights(18), shape=(1, 3, 5, 18), **options)
    assert_computes_what_its_forms_say(net.graph(y))


@pytest.mark.parametrize(("stride", "kernel"), [(1, 3), (2, 3), (1, 7)])
@pytest.mark.parametrize("channels", [8, 17, 40, 64])
def test_a_depthwise_window_over_a_row_major_image(net: Network, channels: int, stride: int, kernel: int) -> None:
    """Transposes keep the image row-major, and the operand of the sum along it."""
    x, size = net.input(2, channels, 7, 21), (-(-7 // stride), -(-21 // stride))
    other = net.input(2, channels, *size)
    y = net.op("TRANSPOSE", x, net.integers(0, 2, 3, 1), shape=(2, 7, 21, channels))
    along = net.op("TRANSPOSE", other, net.integers(0, 2, 3, 1), shape=(2, *size, channels))
    y = net.same("ADD", net.depthwise(y, kernel, stride), along)
    y = net.op("TRANSPOSE", y, net.integers(0, 3, 1, 2), shape=(2, channels, *size))
    assert_computes_what_its_forms_say(net.graph(y))
