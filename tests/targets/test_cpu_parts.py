"""Parts of tensors on the CPU: concatenations written and slices read in place, in both layouts, with halos."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cpu.code.tasks import Plan
from jitdelegate.targets.cpu.plan import plan
from jitdelegate.targets.planning.choose_layout import choose_layout
from tests.targets.test_cpu_graphs import Network
from tests.targets.test_cpu_layouts import assert_computes_what_its_forms_say

LANES = 16
POOL = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}


@pytest.fixture
def net() -> Network:
    return Network(np.random.default_rng(0))


def planned(graph: Graph) -> Plan:
    lowered = passes.run(graph)
    return plan(lowered, choose_layout(lowered, LANES))


def moves(graph: Graph) -> Counter[str]:
    """The operators that are computed by moving elements, or by no kernel of their own."""
    nodes = [node for task in planned(graph).tasks for node in task.nodes]
    return Counter(node.op for node in nodes if node.form and node.form.moves_only)


def joined(net: Network, *parts: int) -> int:
    *pixels, _ = net.tensors[parts[0]].shape
    channels = sum(net.tensors[part].shape[3] for part in parts)
    return net.op("CONCATENATION", *parts, shape=(*pixels, channels), axis=3)


def channels(net: Network, x: int, first: int, count: int) -> int:
    *pixels, _ = net.tensors[x].shape
    corner = net.integers(0, 0, 0, first), net.integers(*pixels, count)
    return net.op("SLICE", x, *corner, shape=(*pixels, count))


@pytest.mark.parametrize("widths", [(16, 32, 9), (16, 16, 16), (5, 12, 7)])
def test_convolutions_pools_and_resizes_write_what_windows_read(net: Network, widths: tuple[int, ...]) -> None:
    """The whole has a halo, and so has a part that another window reads. Only whole blocks are blocked."""
    x = net.conv(net.conv(net.input(2, 6, 8, 3), 160), 3)  # leaves other numbers where the halo will be
    a = net.conv(x, widths[0], 3)
    b = net.op("RESIZE_BILINEAR", net.conv(a, widths[1], 3, 2), net.integers(6, 8), shape=(2, 6, 8, widths[1]))
    c = net.conv(net.conv(x, 16), widths[2])
    whole = joined(net, a, b, c)
    inner = net.op("MAX_POOL_2D", net.depthwise(b, 5), shape=(2, 3, 4, widths[1]), **POOL)
    graph = net.graph(net.conv(whole, 9, 3), inner)
    found = planned(graph)
    assert moves(graph) == {}
    assert {found.parts.of[part].whole for part in (a, b, c)} == {whole}
    assert found.memories[whole].layout.blocked == (widths[0] == 16)
    assert found.memories[b].layout.halo == found.memories[whole].layout.halo == (2, 2, 2, 2)
    assert_computes_what_its_forms_say(graph)


def test_a_part_with_a_halo_of_a_whole_without_one_is_copied(net: Network) -> None:
    a, b = net.conv(net.input(1, 5, 6, 4), 16), net.conv(net.input(1, 5, 6, 4), 16)
    whole = joined(net, a, b)
    graph = net.graph(net.conv(whole, 8), net.conv(a, 8, 3))
    found = planned(graph)
    assert (moves(graph), found.parts.copied) == ({"CONCATENATION": 1}, {whole: (0,)})
    assert {index: part.whole for index, part in found.parts.of.items()} == {b: whole}
    assert_computes_what_its_forms_say(graph)


@pytest.mark.parametrize("width", [16, 10])
def test_slices_are_read_in_place_and_joined_again(net: Network, width: int) -> None:
    """A dense block, whose features are parts of a larger whole each time, and a split with a part per branch."""
    x = net.conv(net.input(1, 5, 7, 3), 3 * width, 3)
    first, *others = (channels(net, x, number * width, width) for number in range(3))
    branches = [net.conv(first, width), net.conv(net.same("ADD", *others), width, 1)]
    features = joined(net, *branches)
    features = joined(net, features, net.conv(features, width))
    features = joined(net, features, net.conv(features, width))
    graph = net.graph(net.conv(features, 5))
    assert moves(graph) == ({} if width == LANES else {"SLICE": 1})  # it changes the layout
    assert_computes_what_its_forms_say(graph)


def test_parts_along_other_axes_and_parts_of_the_callers_memory(net: Network) -> None:
    x = net.input(4, 6, 10)
    corner = net.integers(0, 0, 3), net.integers(4, 6, 5)
    part = net.same("RELU", net.op("SLICE", x, *corner, shape=(4, 6, 5)))
    other = net.same("TANH", net.input(4, 6, 5))
    tall = net.op("CONCATENATION", part, other, shape=(4, 12, 5), axis=1)
    wide = net.op("CONCATENATION", net.same("ABS", part), other, shape=(4, 6, 10), axis=2)
    graph = net.graph(tall, net.same("RELU", tall), wide)
    assert moves(graph)["CONCATENATION"] == 1
    assert_computes_what_its_forms_say(graph)


def test_a_convolution_writes_the_inner_rows_and_columns_of_a_mirrored_image(net: Network) -> None:
    """Only the borders are copied, of which each is a slice of what lies between them."""
    x = net.conv(net.input(1, 5, 6, 3), 7, 3)
    borders = net.integers((0, 0), (1, 1), (1, 1), (0, 0))
    padded = net.op("MIRROR_PAD", x, borders, shape=(1, 7, 8, 7), mode="REFLECT")
    filters, shape = net.weights(4, 3, 3, 7), (1, 5, 6, 4)
    graph = net.graph(net.op("CONV_2D", padded, filters, shape=shape, padding="VALID", stride_h=1, stride_w=1))
    found = planned(graph)
    assert found.parts.of[x].whole == padded
    assert [numbers for numbers in found.parts.copied.values() if numbers] == [(0, 2), (0, 2)]
    assert moves(graph) == {"MIRROR_PAD": 2}
    assert_computes_what_its_forms_say(graph)


def test_heads_of_attention_are_parts_of_one_product(net: Network) -> None:
    x = net.input(12, 20)
    heads = net.op("FULLY_CONNECTED", x, net.weights(72, 20), net.weights(72), shape=(12, 72))
    heads = net.op("RESHAPE", heads, net.integers(12, 3, 4, 6), shape=(12, 3, 4, 6))
    parts = []
    for number in range(3):
        corner = net.integers(0, number, 0, 0), net.integers(12, 1, 4, 6)
        part = net.op("SLICE", heads, *corner, shape=(12, 1, 4, 6))
        part = net.op("RESHAPE", part, net.integers(12, 4, 6), shape=(12, 4, 6))
        parts.append(net.op("TRANSPOSE", part, net.integers(1, 0, 2), shape=(4, 12, 6)))
    scores = net.op("BATCH_MATMUL", *parts[:2], shape=(4, 12, 12), adj_x=False, adj_y=True)
    weights = net.same("SOFTMAX", scores, beta=1.0)
    mixed = net.op("BATCH_MATMUL", weights, parts[2], shape=(4, 12, 6), adj_x=False, adj_y=False)
    graph = net.graph(mixed)
    kernels = [node.op for task in planned(graph).tasks for node in task.nodes]
    assert kernels == ["FULLY_CONNECTED", "BATCH_MATMUL", "SOFTMAX", "BATCH_MATMUL"]
    assert_computes_what_its_forms_say(graph)


@pytest.mark.parametrize("reader", ["pool", "product", "concatenation"])
def test_every_other_channel_is_copied_for_kernels_that_load_neighbours(net: Network, reader: str) -> None:
    x = net.same("ABS", net.input(1, 4, 6, 8))
    corners = net.integers(0, 0, 0, 0), net.integers(1, 4, 6, 8), net.integers(1, 1, 1, 2)
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    half = net.op("STRIDED_SLICE", x, *corners, shape=(1, 4, 6, 4), **masks)
    if reader == "pool":
        found = net.op("MAX_POOL_2D", half, shape=(1, 2, 3, 4), **POOL)
    elif reader == "product":
        found = net.op("BATCH_MATMUL", half, net.input(1, 4, 4, 5), shape=(1, 4, 6, 5), adj_x=False, adj_y=False)
    else:
        found = joined(net, half, net.same("NEG", x))
    assert_computes_what_its_forms_say(net.graph(found))


@pytest.mark.parametrize("writer", ["map", "product", "convolution"])
def test_what_is_packed_along_a_new_last_axis_is_copied(net: Network, writer: str) -> None:
    if writer == "map":
        x = net.same("EXP", net.input(9, 5))
    elif writer == "product":
        x = net.op("BATCH_MATMUL", net.input(9, 5), net.input(5, 3), shape=(9, 3), adj_x=False, adj_y=False)
    else:
        x = net.conv(net.input(1, 4, 5, 3), 7, 3)
    shape = net.tensors[x].shape
    graph = net.graph(net.op("PACK", x, x, shape=(*shape, 2), axis=len(shape), values_count=2))
    assert planned(graph).parts.of == {}
    assert_computes_what_its_forms_say(graph)
