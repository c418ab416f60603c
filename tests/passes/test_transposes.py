"""Transposes and reshapes are merged, cancelled and moved; results stay the same, and no graph moves more bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.forms import IndexMap, MatMul, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ir.verify import verify
from jitdelegate.passes import arrangement, fold_transposes, lower, push_reshapes, push_transposes, remove_dead, run
from jitdelegate.passes.arrangement import Arrangement, arrangement_of, moved_bytes, reshaped
from jitdelegate.passes.merge_transposes import merge_transposes
from tests.passes.graphs import Builder, assert_same, ops
from tests.targets.move_graphs import move_graph_of

HEADS = (0, 2, 1, 3)


class Chain(Builder):
    """Builds values one on another."""

    def transpose(self, x: int, order: Sequence[int]) -> int:
        shape = tuple(self.shape(x)[axis] for axis in order)
        return self.op("TRANSPOSE", [x, self.constant(order, "int32")], shape)

    def reshape(self, x: int, *shape: int) -> int:
        return self.op("RESHAPE", [x, self.constant(shape, "int32")], shape)

    def unary(self, op: str, x: int) -> int:
        return self.op(op, [x], self.shape(x))

    def depthwise(self, x: int) -> int:
        """A 3x3 convolution of the image of PyTorch's order of axes, in TFLite's own."""
        image = self.transpose(x, (0, 2, 3, 1))
        channels = self.shape(image)[3]
        weights = [self.weights(1, 3, 3, channels), self.weights(channels)]
        options = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
        result = self.op("DEPTHWISE_CONV_2D", [image, *weights], self.shape(image), depth_multiplier=1, **options)
        return self.transpose(result, (0, 3, 1, 2))


def finished(graph: Graph) -> Graph:
    """The graph after all passes, checked against the graph before."""
    final = run(graph)
    assert_same(graph, final)
    return final


def kernels(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if not isinstance(node.form, View)]


@pytest.mark.parametrize("seed", range(40))
def test_arrangements_compose_as_arrays_do(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shapes = [(2, 3, 4), (4, 6), (24,), (1, 12, 2), (2, 1, 2, 6), (3, 8), (2, 2, 2, 3)]
    array, whole = np.arange(24), Arrangement((), ())
    for _ in range(4):
        shape = shapes[draw.integers(len(shapes))]
        order = tuple(map(int, draw.permutation(len(shape))))
        further = whole.then(Arrangement.permutation(shape, order))
        if further is None:
            continue
        whole, array = further, array.reshape(shape).transpose(order).ravel()
    sizes = whole.sizes or (24,)
    found = np.arange(24).reshape(sizes).transpose(whole.order or (0,))
    assert found.ravel().tolist() == array.tolist()
    assert whole.is_identity == (array.tolist() == list(range(24)))
    assert whole.then(whole.inverse) == Arrangement((), ())


def test_a_chain_around_a_depthwise_convolution_becomes_views() -> None:
    build = Chain()
    tokens = build.unary("RELU", build.input(1, 36, 8))
    image = build.reshape(build.transpose(tokens, (0, 2, 1)), 1, 8, 6, 6)
    back = build.transpose(build.reshape(build.depthwise(image), 1, 8, 36), (0, 2, 1))
    final = finished(build.finish(build.unary("TANH", back)))
    assert moved_bytes(final) == 0
    assert kernels(final) == ["RELU", "DEPTHWISE_CONV_2D"]


def test_a_channel_shuffle_is_one_transpose() -> None:
    build = Chain()
    x = build.transpose(build.unary("RELU", build.input(1, 3, 5, 8)), (0, 3, 1, 2))
    parts = build.transpose(build.reshape(x, 1, 2, 4, 3, 5), (0, 2, 1, 3, 4))
    final = finished(build.finish(build.transpose(build.reshape(parts, 1, 8, 3, 5), (0, 2, 3, 1))))
    assert kernels(final) == ["RELU", "TRANSPOSE"]
    assert moved_bytes(final) == 4 * 3 * 5 * 8


def test_a_chain_that_no_axes_express_stays() -> None:
    build = Chain()
    x = build.transpose(build.input(4, 9), (1, 0))
    graph = build.finish(build.transpose(build.reshape(x, 6, 6), (1, 0)))
    assert kernels(finished(graph)) == ["TRANSPOSE", "TRANSPOSE"]


def test_a_transpose_of_axes_of_size_1_is_a_view() -> None:
    build = Chain()
    x = build.transpose(build.unary("RELU", build.input(3, 1, 4, 1)), (1, 0, 3, 2))
    assert kernels(finished(build.finish(build.unary("ABS", x)))) == ["RELU"]  # as one kernel


def test_the_same_transpose_is_computed_once() -> None:
    build = Chain()
    x = build.input(4, 5)
    one, other = build.transpose(x, (1, 0)), build.reshape(build.transpose(x, (1, 0)), 20)
    final = finished(build.finish(build.unary("SOFTMAX", one), build.unary("SOFTMAX", other)))
    assert moved_bytes(final) == 80


def test_transposes_cancel_out_through_elementwise_work() -> None:
    build = Chain()
    x, y = build.input(1, 5, 6, 8), build.input(1, 5, 6, 8)
    one, other = build.transpose(x, (0, 3, 1, 2)), build.transpose(y, (0, 3, 1, 2))
    total = build.op("ADD", [one, build.op("MUL", [other, build.weights(1, 8, 1, 1)], (1, 8, 5, 6))], (1, 8, 5, 6))
    final = finished(build.finish(build.transpose(build.unary("TANH", total), (0, 2, 3, 1))))
    assert moved_bytes(final) == 0
    assert len(kernels(final)) == 1


def test_an_operand_that_is_not_transposed_is_transposed_instead_of_two() -> None:
    build = Chain()
    x, y = build.input(1, 5, 6, 8), build.input(1, 8, 5, 6)
    total = build.op("ADD", [build.transpose(x, (0, 3, 1, 2)), y], (1, 8, 5, 6))
    graph = build.finish(build.transpose(total, (0, 2, 3, 1)))
    assert moved_bytes(push_transposes(lower(graph))) == 4 * 5 * 6 * 8
    assert kernels(finished(graph)) == ["TRANSPOSE"]


@pytest.mark.parametrize("count", [4, 40])
def test_regions_that_share_an_operand_are_reordered_together(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the layers of a decoder, which all turn their queries by the same angles."""
    nodes, build, results = list[Node](), Chain(), list[int]()
    angles = build.input(1, 1, 5, 8)
    for _ in range(count):
        heads = build.transpose(build.input(1, 5, 6, 8), (0, 2, 1, 3))
        results.append(build.transpose(build.op("MUL", [heads, angles], (1, 6, 5, 8)), (0, 2, 1, 3)))
    graph = lower(build.finish(*results))
    monkeypatch.setattr(
        arrangement, "arrangement_of", lambda graph, node: nodes.append(node) or arrangement_of(graph, node)
    )
    pushed = push_transposes(graph)
    assert_same(graph, pushed)
    assert moved_bytes(pushed) == 0
    assert len(nodes) <= 12 * len(graph.nodes)


def test_a_single_transpose_stays_where_the_file_has_it() -> None:
    build = Chain()
    x = build.transpose(build.input(1, 5, 6, 8), (0, 3, 1, 2))
    graph = build.finish(build.unary("TANH", build.unary("ABS", x)))
    assert ops(push_transposes(lower(graph))) == ["TRANSPOSE", "ABS", "TANH"]


def test_transposes_pass_paddings_slices_concatenations_and_splits() -> None:
    build = Chain()
    x = build.transpose(build.input(1, 5, 6, 8), (0, 3, 1, 2))
    pad = build.op("PAD", [x, build.constant([[0, 0], [0, 0], [1, 2], [0, 1]], "int32")], (1, 8, 8, 7))
    begin, size = build.constant([0, 2, 1, 0], "int32"), build.constant([1, 4, 7, 7], "int32")
    part = build.op("SLICE", [pad, begin, size], (1, 4, 7, 7))
    both = build.op("CONCATENATION", [part, build.unary("ABS", part)], (1, 8, 7, 7), axis=1)
    final = finished(build.finish(build.transpose(both, (0, 2, 3, 1))))
    assert moved_bytes(final) == 0


def test_a_transpose_that_two_slices_share_goes_away() -> None:
    build = Chain()
    x = build.transpose(build.reshape(build.input(1, 7, 8), 1, 7, 2, 1, 4), (2, 0, 3, 1, 4))
    size = build.constant([1, 1, 1, 7, 4], "int32")
    begins = (build.constant([first, 0, 0, 0, 0], "int32") for first in (0, 1))
    parts = [build.op("SLICE", [x, begin, size], (1, 1, 1, 7, 4)) for begin in begins]
    final = finished(build.finish(*(build.unary("SOFTMAX", part) for part in parts)))
    assert kernels(final) == ["SLICE", "SLICE", "SOFTMAX", "SOFTMAX"]
    assert moved_bytes(final) == 0


def test_a_transpose_before_a_whole_reduction_goes_away() -> None:
    build = Chain()
    x = build.transpose(build.unary("RELU", build.input(1, 5, 6, 8)), (0, 3, 1, 2))
    mean = build.op("MEAN", [x, build.constant([2, 3], "int32")], (1, 8), keep_dims=False)
    final = finished(build.finish(mean))
    assert moved_bytes(final) == 0


def test_a_normalization_over_channels_keeps_the_images_own_order() -> None:
    build = Chain()
    x = build.transpose(build.input(1, 5, 6, 8), (0, 3, 1, 2))
    mean = build.op("MEAN", [x, build.constant([1], "int32")], (1, 1, 5, 6), keep_dims=True)
    centred = build.op("SUB", [x, mean], (1, 8, 5, 6))
    final = finished(build.finish(build.transpose(centred, (0, 2, 3, 1))))
    assert moved_bytes(final) == 0


def test_outputs_between_transposes_keep_their_order() -> None:
    build = Chain()
    x = build.transpose(build.input(1, 5, 8), (0, 2, 1))
    middle = build.unary("TANH", x)
    graph = build.finish(build.transpose(middle, (0, 2, 1)), middle)
    assert moved_bytes(finished(graph)) == 4 * 5 * 8


def split(build: Chain, x: int, order: Sequence[int]) -> int:
    """A value [1, rows, 3 * 8] as three heads."""
    return build.transpose(build.reshape(x, 1, build.shape(x)[1], 3, 8), order)


def test_attention_needs_no_transpose() -> None:
    build = Chain()
    query, key, value = (build.unary("RELU", build.input(1, rows, 24)) for rows in (5, 7, 7))
    query, key, value = (split(build, x, order) for x, order in ((query, HEADS), (key, (0, 2, 3, 1)), (value, HEADS)))
    scores = build.unary("SOFTMAX", build.op("BATCH_MATMUL", [query, key], (1, 3, 5, 7)))
    found = build.transpose(build.op("BATCH_MATMUL", [scores, value], (1, 3, 5, 8)), HEADS)
    final = finished(build.finish(build.unary("TANH", build.reshape(found, 1, 5, 24))))
    assert moved_bytes(final) == 0
    products = [node.form for node in final.nodes if isinstance(node.form, MatMul)]
    assert [(form.a_order, form.b_order, form.order) for form in products] == [
        (HEADS, HEADS, ()),
        ((), HEADS, HEADS),
    ]
    assert [form.adj_y for form in products] == [True, False]


def test_a_transposed_matrix_is_read_as_it_lies() -> None:
    build = Chain()
    x, y = build.input(2, 5, 6), build.input(2, 5, 7)
    final = finished(build.finish(build.op("BATCH_MATMUL", [build.transpose(x, (0, 2, 1)), y], (2, 6, 7))))
    assert kernels(final) == ["BATCH_MATMUL"]


def test_a_transpose_that_others_read_too_is_not_folded() -> None:
    build = Chain()
    turned = build.transpose(build.input(2, 5, 6), (0, 2, 1))
    product = build.op("BATCH_MATMUL", [turned, build.input(2, 5, 7)], (2, 6, 7))
    final = finished(build.finish(product, build.unary("SOFTMAX", turned)))
    assert kernels(final) == ["TRANSPOSE", "BATCH_MATMUL", "SOFTMAX"]
    assert MatMul() in [node.form for node in final.nodes]


def test_a_product_with_an_epilogue_of_further_operands_is_stored_as_it_is() -> None:
    build = Chain()
    product = build.op("BATCH_MATMUL", [build.input(3, 5, 6), build.input(3, 6, 7)], (3, 5, 7))
    total = build.op("ADD", [product, build.input(3, 5, 7)], (3, 5, 7))
    final = finished(build.finish(build.transpose(total, (1, 0, 2))))
    assert kernels(final) == ["BATCH_MATMUL", "TRANSPOSE"]


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (0, 1, 3, 2), (1, 0, 3, 2)])
def test_a_transpose_between_two_products_is_folded_into_the_later_one(order: tuple[int, ...]) -> None:
    build = Chain()
    product = build.op("BATCH_MATMUL", [build.input(2, 5, 6, 7), build.input(2, 5, 7, 8)], (2, 5, 6, 8))
    turned = build.transpose(product, order)
    *leading, rows, depth = build.shape(turned)
    final = finished(
        build.finish(build.op("BATCH_MATMUL", [turned, build.input(*leading, depth, 4)], (*leading, rows, 4)))
    )
    assert kernels(final) == ["BATCH_MATMUL", "BATCH_MATMUL"]
    assert MatMul() in [node.form for node in final.nodes]


def test_work_after_a_reshape_joins_the_convolution_before_it() -> None:
    build = Chain()
    image = build.convolution(build.input(1, 6, 6, 4))
    tokens = build.unary("TANH", build.reshape(image, 1, 36, 4))
    scaled = build.op("MUL", [tokens, build.input(36, 4)], (1, 36, 4))
    final = finished(build.finish(build.unary("SOFTMAX", build.op("ADD", [scaled, build.weights(4)], (1, 36, 4)))))
    assert kernels(final) == ["CONV_2D", "SOFTMAX"]


def test_work_joins_through_several_reshapes_as_far_as_its_operands_go() -> None:
    build = Chain()
    image = build.convolution(build.input(1, 6, 6, 4))
    by_row = build.op("MUL", [build.reshape(image, 1, 36, 4), build.input(1, 36, 1)], (1, 36, 4))
    flat = build.op("ADD", [build.reshape(by_row, 144), build.input(144)], (144,))
    across = build.op("SUB", [build.reshape(flat, 12, 12), build.input(12, 1)], (12, 12))
    final = finished(build.finish(build.unary("TANH", across)))
    assert kernels(final) == ["CONV_2D", "SUB"]


def test_work_on_a_value_that_others_read_stays_as_it_is() -> None:
    build = Chain()
    shared = build.convolution(build.input(1, 6, 6, 4))
    graph = build.finish(build.unary("TANH", build.reshape(shared, 1, 36, 4)), shared)
    lowered = lower(graph)
    assert push_reshapes(lowered).nodes == lowered.nodes


def test_tokens_between_images_stay_images() -> None:
    """The layers of a transformer that mixes its tokens by a depthwise convolution."""
    build = Chain()
    tokens = build.unary("RELU", build.input(1, 36, 4))
    wide = build.op("FULLY_CONNECTED", [tokens, build.weights(8, 4), build.weights(8)], (1, 36, 8), keep_num_dims=True)
    image = build.reshape(build.transpose(wide, (0, 2, 1)), 1, 8, 6, 6)
    mixed = build.transpose(build.reshape(build.depthwise(image), 1, 8, 36), (0, 2, 1))
    narrow = build.op(
        "FULLY_CONNECTED", [build.unary("TANH", mixed), build.weights(4, 8)], (1, 36, 4), keep_num_dims=True
    )
    final = finished(build.finish(build.op("ADD", [narrow, tokens], (1, 36, 4))))
    assert kernels(final) == ["RELU", "FULLY_CONNECTED", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"]
    shapes = [final.tensors[node.outputs[0]].shape for node in final.nodes if node.op == "FULLY_CONNECTED"]
    assert shapes == [(1, 6, 6, 8), (1, 6, 6, 4)]


@pytest.mark.parametrize(("shape", "operand"), [((4, 9, 4), (4, 9, 1)), ((1, 2, 18, 4), (18, 1))])
def test_tokens_whose_work_cannot_follow_into_an_image_stay_tokens(
    shape: tuple[int, ...], operand: tuple[int, ...]
) -> None:
    build = Chain()
    tokens = build.reshape(build.convolution(build.input(1, 6, 6, 4)), *shape)
    dense = build.op("FULLY_CONNECTED", [tokens, build.weights(4, 4), build.weights(4)], shape, keep_num_dims=True)
    final = finished(build.finish(build.op("ADD", [dense, build.input(*operand)], shape)))
    assert kernels(final) == ["CONV_2D", "FULLY_CONNECTED"]


def test_a_value_that_two_equal_reshapes_show_is_joined_once() -> None:
    build = Chain()
    dense = build.op("FULLY_CONNECTED", [build.input(4, 8), build.weights(6, 8)], (4, 6), keep_num_dims=True)
    gate = build.unary("LOGISTIC", build.reshape(dense, 4, 1, 6))
    final = finished(build.finish(build.op("MUL", [build.reshape(dense, 4, 1, 6), gate], (4, 1, 6))))
    assert kernels(final) == ["FULLY_CONNECTED"]


def windows(build: Chain) -> int:
    """Attention in two windows of four tokens and three heads of size 5, with a mask for each head and each window."""
    tokens = build.reshape(build.unary("RELU", build.input(2, 4, 45)), 2, 4, 3, 3, 5)
    parts = []
    for number in range(3):
        corner = [build.constant([0, 0, number, 0, 0], "int32"), build.constant([2, 4, 1, 3, 5], "int32")]
        part = build.reshape(build.op("SLICE", [tokens, *corner], (2, 4, 1, 3, 5)), 2, 4, 3, 5)
        parts.append(build.transpose(part, HEADS))
    query = build.op("MUL", [parts[0], build.constant(0.5)], (2, 3, 4, 5))
    query, key, value = (build.reshape(each, 6, 4, 5) for each in (query, *parts[1:]))
    scores = build.op("BATCH_MATMUL", [query, key], (6, 4, 4), adj_y=True)
    scores = build.op("ADD", [build.reshape(scores, 2, 3, 4, 4), build.weights(1, 3, 4, 4)], (2, 3, 4, 4))
    scores = build.op("ADD", [build.reshape(scores, 1, 2, 3, 4, 4), build.weights(1, 2, 1, 4, 4)], (1, 2, 3, 4, 4))
    weights = build.reshape(build.unary("SOFTMAX", build.reshape(scores, 2, 3, 4, 4)), 6, 4, 4)
    mixed = build.reshape(build.op("BATCH_MATMUL", [weights, value], (6, 4, 5)), 2, 3, 4, 5)
    return build.reshape(build.transpose(mixed, HEADS), 2, 4, 15)


def test_attention_in_windows_reads_slices_scales_and_masks_in_its_products() -> None:
    build = Chain()
    final = finished(build.finish(windows(build)))
    assert kernels(final) == ["RELU", "SLICE", "SLICE", "SLICE", "BATCH_MATMUL", "SOFTMAX", "BATCH_MATMUL"]
    scores, mixed = (node.form for node in final.nodes if isinstance(node.form, MatMul))
    assert str(scores.epilogue) == "add(add(mul(a0, 0.5), a1), a2)"
    assert (scores.a_order, scores.b_order, mixed.b_order, mixed.order) == (HEADS,) * 4
    assert all(node.form.moves_only for node in final.nodes if node.op == "SLICE")


def repeated(build: Chain, x: int, count: int) -> int:
    """The matrices of a value [batch, heads, ...], each `count` times."""
    batch, heads, *rest = build.shape(x)
    apart, shape = build.reshape(x, batch, heads, 1, *rest), (batch, heads, count, *rest)
    several = build.op("BROADCAST_TO", [apart, build.constant(shape, "int32")], shape)
    return build.reshape(several, batch, heads * count, *rest)


@pytest.mark.parametrize("tokens", [1, 5])
def test_keys_and_values_of_a_group_of_heads_are_not_repeated(tokens: int) -> None:
    build = Chain()
    query = build.transpose(build.reshape(build.unary("RELU", build.input(1, tokens, 48)), 1, tokens, 6, 8), HEADS)
    key, value = (repeated(build, build.unary("RELU", build.input(1, 2, 9, 8)), 3) for _ in range(2))
    key = build.reshape(build.transpose(key, (0, 1, 3, 2)), 6, 8, 9)
    scores = build.op("BATCH_MATMUL", [build.reshape(query, 6, tokens, 8), key], (6, tokens, 9))
    masked = build.op("ADD", [build.reshape(scores, 1, 6, tokens, 9), build.input(1, 1, tokens, 9)], (1, 6, tokens, 9))
    mixed = build.op("BATCH_MATMUL", [build.unary("SOFTMAX", masked), value], (1, 6, tokens, 8))
    final = finished(build.finish(build.reshape(build.transpose(mixed, HEADS), 1, tokens, 48)))
    assert kernels(final) == ["RELU", "RELU", "RELU", "BATCH_MATMUL", "SOFTMAX", "BATCH_MATMUL"]
    assert moved_bytes(final) == 0


@pytest.mark.parametrize("once", [(2, 1, 8), (2, 6, 1), (1, 1, 1), (1, 6, 8)])
@pytest.mark.parametrize("is_left", [False, True])
def test_a_matrix_of_repeated_rows_or_columns_is_no_matrix_of_fewer(once: tuple[int, ...], is_left: bool) -> None:
    build = Chain()
    several = build.op("BROADCAST_TO", [build.input(*once), build.constant((2, 6, 8), "int32")], (2, 6, 8))
    others = build.input(2, 8, 6)
    operands, shape = ([several, others], (2, 6, 6)) if is_left else ([others, several], (2, 8, 8))
    finished(build.finish(build.op("BATCH_MATMUL", operands, shape)))


def test_matrices_that_are_repeated_for_several_readers_stay_repeated_for_the_others() -> None:
    build = Chain()
    value = repeated(build, build.unary("RELU", build.input(2, 2, 9, 8)), 3)
    mixed = build.op("BATCH_MATMUL", [build.input(2, 6, 4, 9), value], (2, 6, 4, 8))
    final = finished(build.finish(mixed, build.unary("SOFTMAX", value)))
    assert kernels(final).count("BROADCAST_TO") == 1


def test_a_mask_with_an_axis_more_joins_the_product_before_it() -> None:
    build = Chain()
    scores = build.op("BATCH_MATMUL", [build.input(3, 4, 5), build.input(3, 5, 4)], (3, 4, 4))
    masked = build.op("ADD", [scores, build.weights(1, 1, 4, 4)], (1, 3, 4, 4))
    final = finished(build.finish(build.unary("SOFTMAX", masked)))
    assert kernels(final) == ["BATCH_MATMUL", "SOFTMAX"]


def test_slices_of_a_transpose_that_products_read_are_cut_before_it() -> None:
    build = Chain()
    pair = build.transpose(build.reshape(build.unary("RELU", build.input(1, 6, 16)), 1, 6, 2, 2, 4), (2, 0, 3, 1, 4))
    parts = []
    for number in range(2):
        corner = [build.constant([number, 0, 0, 0, 0], "int32"), build.constant([1, 1, 2, 6, 4], "int32")]
        parts.append(build.reshape(build.op("SLICE", [pair, *corner], (1, 1, 2, 6, 4)), 2, 6, 4))
    scores = build.op("BATCH_MATMUL", [build.input(2, 5, 4), parts[0]], (2, 5, 6), adj_y=True)
    final = finished(build.finish(build.op("BATCH_MATMUL", [build.unary("SOFTMAX", scores), parts[1]], (2, 5, 4))))
    assert kernels(final) == ["RELU", "SLICE", "SLICE", "BATCH_MATMUL", "SOFTMAX", "BATCH_MATMUL"]


def test_work_after_a_reshape_joins_the_transpose_before_it() -> None:
    build = Chain()
    dense = build.op("FULLY_CONNECTED", [build.input(24, 5), build.weights(4, 5)], (24, 4), keep_num_dims=True)
    rows = build.transpose(build.reshape(dense, 2, 3, 4, 4), (0, 2, 1, 3))
    final = finished(build.finish(build.op("ADD", [build.input(8, 3, 4), build.reshape(rows, 8, 3, 4)], (8, 3, 4))))
    assert kernels(final) == ["FULLY_CONNECTED", "TRANSPOSE"]
    assert str(final.nodes[-2 if isinstance(final.nodes[-1].form, View) else -1].form.epilogue) == "add(a1, a0)"


def test_a_factor_that_others_read_stays_where_it_is() -> None:
    build = Chain()
    half = build.op("MUL", [build.unary("RELU", build.input(3, 4)), build.constant(0.5)], (3, 4))
    half = build.op("TRANSPOSE", [half, build.constant([1, 0], "int32")], (4, 3))
    product = build.op("BATCH_MATMUL", [half, build.input(3, 2)], (4, 2))
    final = finished(build.finish(product, half))
    assert [str(node.form.epilogue) for node in final.nodes if isinstance(node.form, MatMul)] == ["a0"]


def random_graphs(seeds: Iterable[int]) -> Iterable[Graph]:
    return (run(move_graph_of(seed), passes=passes.FOLD) for seed in seeds)


def test_random_graphs_move_fewer_bytes_and_compute_the_same() -> None:
    total = [0, 0]
    for folded in random_graphs(range(150)):
        graph = first = remove_dead(lower(folded))
        for rewrite in (merge_transposes, push_transposes, push_reshapes, fold_transposes):
            before, graph = graph, remove_dead(rewrite(graph))
            verify(graph, rewrite.__name__)
            assert_same(before, graph)
            assert moved_bytes(graph) <= moved_bytes(before)
        total = [total[0] + moved_bytes(first), total[1] + moved_bytes(graph)]
    assert total[1] < 0.7 * total[0]


def test_graphs_without_transposes_stay_as_they_are() -> None:
    build = Chain()
    x = build.input(1, 6, 6, 4)
    graph = lower(build.finish(build.reshape(build.unary("ABS", build.reshape(x, 36, 4)), 144)))
    assert push_transposes(graph).nodes == graph.nodes


def many_orders(build: Chain, count: int) -> int:
    """The sum of values whose axes are all in other orders."""
    shape = (2, 3, 4, 5, 6)
    orders = list(permutations(range(5)))[1 : count + 1]
    total = build.unary("ABS", build.input(*shape))
    for order in orders:
        stored = build.input(*(shape[axis] for axis in order))
        value = build.transpose(stored, [order.index(axis) for axis in range(5)])
        total = build.op("ADD", [total, value], shape)
    return total


def one_gain_at_a_time(build: Chain, count: int) -> int:
    """Sums of transposed values between reshapes: each may be reordered when the one before it is."""
    total = build.transpose(build.input(6, 4), (1, 0))
    for number in range(count):
        shape = (2, 2, 6) if number % 2 else (4, 6)
        value = build.transpose(build.input(6, 4), (1, 0))
        total = build.op("ADD", [build.reshape(total, *shape), build.reshape(value, *shape)], shape)
    return total


@pytest.mark.parametrize("make", [many_orders, one_gain_at_a_time])
def test_the_search_for_orders_grows_with_the_graph(
    make: Callable[[Chain, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    then, calls = Arrangement.then, Counter[int]()

    def counted(arrangement: Arrangement, further: Arrangement) -> Arrangement | None:
        calls[count] += 1
        return then(arrangement, further)

    monkeypatch.setattr(Arrangement, "then", counted)
    for count in (25, 100):
        build = Chain()
        graph = lower(build.finish(make(build, count)))
        assert_same(graph, push_transposes(graph))
    assert calls[100] < 8 * calls[25]


def test_an_operand_of_which_one_slice_is_read_is_not_reshaped() -> None:
    """Its first slice along axis 0 is what broadcasting reads too, but a View would have all slices."""
    for operand, found in (((2, 28), (1, 2, 28)), ((5, 2, 28), None)):
        access = IndexMap.broadcast(operand, (2, 28))
        assert reshaped(operand, access, (2, 28), (1, 2, 28)) == found
