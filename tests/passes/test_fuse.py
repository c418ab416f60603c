"""The passes that join nodes keep what the graph computes, and join what they say."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from jitdelegate.ir.graph import Graph, Quant
from jitdelegate.ir.print import node_text
from jitdelegate.passes import fuse_activation, fuse_elementwise, fuse_pad, fuse_scale, lower, remove_identity, run
from tests.passes.graphs import Builder, assert_same, ops


def padded(value: float = 0, channels: int = 0) -> Graph:
    build = Builder()
    x = build.input(1, 5, 5, 4)
    borders = build.constant([[0, 0], [0, 1], [1, 2], [0, channels]], "int32")
    pad = build.op("PADV2", [x, borders, build.constant([value])], (1, 6, 8, 4 + channels))
    weights = build.weights(4, 3, 3, 4 + channels)
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    return build.finish(build.op("CONV_2D", [pad, weights, build.weights(4)], (1, 4, 6, 4), **options))


def test_zeros_around_an_image_become_padding() -> None:
    graph = padded()
    fused = fuse_pad(graph)
    assert ops(fused) == ["CONV_2D"]
    assert fused.nodes[0].attrs["explicit_padding"] == (0, 1, 1, 2)
    assert fused.nodes[0].origin == (0, 1)
    assert_same(graph, fused)


@pytest.mark.parametrize("graph", [padded(value=1.5), padded(channels=3)])
def test_other_paddings_stay(graph: Graph) -> None:
    assert ops(fuse_pad(graph)) == ["PADV2", "CONV_2D"]


def pooled(value: float, border: int = 1, op: str = "MAX_POOL_2D", padding: str = "VALID") -> Graph:
    build = Builder()
    borders = build.constant([[0, 0], [border, 1], [1, 0], [0, 0]], "int32")
    pad = build.op("PADV2", [build.input(1, 6, 6, 4), borders, build.constant([value])], (1, 7 + border, 7, 4))
    options = {"stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 3, "padding": padding}
    height = (6 + border) // 2 if padding == "VALID" else (8 + border) // 2
    return build.finish(build.op(op, [pad], (1, height, 3 if padding == "VALID" else 4, 4), **options))


def test_the_lowest_value_around_an_image_becomes_padding_of_a_maximum() -> None:
    graph = pooled(-inf)
    fused = fuse_pad(graph)
    assert ops(fused) == ["MAX_POOL_2D"]
    assert fused.nodes[0].attrs["explicit_padding"] == (1, 1, 1, 0)
    assert_same(graph, fused)


@pytest.mark.parametrize(
    "graph",
    [pooled(0), pooled(-3e38), pooled(-inf, border=3), pooled(-inf, padding="SAME"), pooled(0, op="AVERAGE_POOL_2D")],
)
def test_paddings_that_a_pool_counts_otherwise_stay(graph: Graph) -> None:
    assert_same(graph, fuse_pad(graph))
    assert len(fuse_pad(graph).nodes) == 2


def test_a_padding_with_another_reader_stays_for_that_reader() -> None:
    graph = padded()
    graph = Graph(graph.tensors, graph.nodes, graph.inputs, (*graph.outputs, graph.nodes[0].outputs[0]))
    fused = fuse_pad(graph)
    assert ops(fused) == ["PADV2", "CONV_2D"]
    assert fused.nodes[1].inputs[0] == graph.inputs[0]
    assert_same(graph, fused)


@pytest.mark.parametrize("axis, left", [(0, ["CONV_2D"]), (1, ["PADV2", "CONV_2D"])])
def test_a_padding_that_changes_the_quantized_dimension_stays(axis: int, left: list[str]) -> None:
    graph = padded()
    tensors, pad = list(graph.tensors), graph.nodes[0]
    for index, of in ((pad.inputs[0], 0), (pad.outputs[0], axis)):
        tensors[index] = replace(tensors[index], quant=Quant((0.5,), (0,), axis=of))
    assert ops(fuse_pad(replace(graph, tensors=tuple(tensors)))) == left


def test_same_padding_counts_from_the_padded_image() -> None:
    build = Builder()
    x = build.input(1, 6, 6, 4)
    borders = build.constant([[0, 0], [1, 0], [1, 0], [0, 0]], "int32")
    pad = build.op("PAD", [x, borders], (1, 7, 7, 4))
    graph = build.finish(build.convolution(pad, 4, stride_h=2, stride_w=2))
    assert_same(graph, fuse_pad(graph))


def test_a_bias_that_is_no_vector_stays() -> None:
    build = Builder()
    bias = build.constant([[[[0.5, -1, 2, 3]]]])
    operands = [build.input(1, 6, 6, 4), build.weights(4, 3, 3, 4), bias]
    conv = build.op("CONV_2D", operands, (1, 6, 6, 4), stride_h=1, stride_w=1, padding="SAME")
    graph = build.finish(build.op("MUL", [conv, build.constant([2, 3, 4, 5])], (1, 6, 6, 4)))
    fused = fuse_scale(graph)
    assert ops(fused) == ["CONV_2D", "MUL"]
    assert_same(graph, fused)


def scaled(op: str, constant: list[float], *, swap: bool = False, activation: str = "NONE") -> Graph:
    build = Builder()
    conv = build.convolution(build.input(1, 6, 6, 4), fused_activation_function=activation)
    operands = [conv, build.constant(constant)]
    return build.finish(build.op(op, operands[::-1] if swap else operands, (1, 6, 6, 4)))


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV"])
@pytest.mark.parametrize("constant", [[2.5], [0.5, -1.5, 2.5, 3.5]])
def test_arithmetic_with_constants_goes_into_the_weights(op: str, constant: list[float]) -> None:
    graph = scaled(op, constant)
    fused = fuse_scale(graph)
    assert ops(fused) == ["CONV_2D"]
    assert_same(graph, fused)


@pytest.mark.parametrize("op", ["SUB", "DIV"])
def test_a_constant_minus_or_over_a_convolution_stays(op: str) -> None:
    assert ops(fuse_scale(scaled(op, [2.5], swap=True))) == ["CONV_2D", op]


def test_a_division_by_zero_stays_at_the_end() -> None:
    assert ops(fuse_scale(scaled("DIV", [1, 0, 1, 1]))) == ["CONV_2D", "DIV"]


def test_an_activation_keeps_the_scale_out() -> None:
    assert ops(fuse_scale(scaled("MUL", [2.5], activation="RELU"))) == ["CONV_2D", "MUL"]


def test_a_chain_of_arithmetic_goes_into_a_depthwise_convolution() -> None:
    build = Builder()
    x = build.input(1, 6, 6, 3)
    options = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    conv = build.op("DEPTHWISE_CONV_2D", [x, build.weights(1, 3, 3, 6)], (1, 6, 6, 6), depth_multiplier=2, **options)
    mul = build.op("MUL", [build.weights(6), conv], (1, 6, 6, 6))
    graph = build.finish(build.op("ADD", [mul, build.weights(1, 1, 6)], (1, 6, 6, 6), fused_activation_function="RELU"))
    fused = fuse_scale(graph)
    assert ops(fused) == ["DEPTHWISE_CONV_2D"]
    assert_same(graph, fused)


@pytest.mark.parametrize("op", ["MUL", "DIV"])
def test_two_factors_go_into_the_weights_one_after_the_other(op: str) -> None:
    build = Builder()
    product = build.op("FULLY_CONNECTED", [build.input(3, 8), build.weights(5, 8), build.weights(5)], (3, 5))
    once = build.op("MUL", [product, build.weights(5)], (3, 5))
    graph = build.finish(build.op(op, [once, build.constant(0.7)], (3, 5)))
    fused = fuse_scale(graph)
    assert ops(fused) == ["FULLY_CONNECTED"]
    assert_same(graph, fused)


def test_weights_that_are_computed_are_not_scaled_but_their_product_is() -> None:
    build = Builder()
    product = build.op("FULLY_CONNECTED", [build.input(3, 8), build.input(5, 8), build.weights(5)], (3, 5))
    graph = build.finish(build.op("MUL", [product, build.weights(5)], (3, 5)))
    assert ops(fuse_scale(graph)) == ["FULLY_CONNECTED", "MUL"]
    fused = fuse_elementwise(lower(graph))
    assert ops(fused) == ["FULLY_CONNECTED"]
    assert_same(graph, fused)


def test_an_activation_becomes_an_option_of_its_producer() -> None:
    build = Builder()
    graph = build.finish(build.op("RELU6", [build.convolution(build.input(1, 6, 6, 4))], (1, 6, 6, 4)))
    fused = fuse_activation(graph)
    assert [(node.op, node.attrs["fused_activation_function"]) for node in fused.nodes] == [("CONV_2D", "RELU6")]
    assert_same(graph, fused)


def test_an_activation_stays_where_another_reads_the_value_before_it() -> None:
    build = Builder()
    conv = build.convolution(build.input(1, 6, 6, 4))
    graph = build.finish(build.op("RELU", [conv], (1, 6, 6, 4)), conv)
    assert ops(fuse_activation(graph)) == ["CONV_2D", "RELU"]


def test_a_residual_addition_joins_the_later_convolution() -> None:
    build = Builder()
    x = build.input(1, 6, 6, 4)
    first = build.convolution(x)
    second = build.convolution(first)
    graph = build.finish(build.op("ADD", [first, second], (1, 6, 6, 4)))
    fused = fuse_elementwise(lower(graph))
    assert ops(fused) == ["CONV_2D", "CONV_2D"]
    assert fused.nodes[1].origin == (1, 2)
    assert "epilogue=add(a1, a0)" in node_text(fused, fused.nodes[1])
    assert_same(graph, fused)


def test_a_hard_swish_in_five_nodes_becomes_one_epilogue() -> None:
    build = Builder()
    conv = build.convolution(build.input(1, 6, 6, 4))
    shape = (1, 6, 6, 4)
    add = build.op("ADD", [conv, build.constant(3)], shape)
    relu = build.op("RELU6", [add], shape)
    mul = build.op("MUL", [conv, relu], shape)
    graph = build.finish(build.op("MUL", [mul, build.constant(1 / 6)], shape))
    fused = fuse_elementwise(lower(graph))
    assert ops(fused) == ["CONV_2D"]
    assert_same(graph, fused)


def test_a_broadcast_value_is_not_joined() -> None:
    build = Builder()
    x = build.input(1, 6, 6, 4)
    mean = build.op("MEAN", [x, build.constant([1, 2], "int32")], (1, 1, 1, 4), keep_dims=True)
    sigmoid = build.op("LOGISTIC", [mean], (1, 1, 1, 4))
    graph = build.finish(build.op("MUL", [x, sigmoid], (1, 6, 6, 4)))
    fused = fuse_elementwise(lower(graph))
    assert ops(fused) == ["MEAN", "MUL"]
    assert_same(graph, fused)


def test_a_slice_that_starts_at_the_origin_is_not_joined() -> None:
    build = Builder()
    conv = build.convolution(build.input(1, 6, 6, 4))
    begin, size = build.constant([0, 0, 0, 0], "int32"), build.constant([1, 4, 5, 3], "int32")
    graph = build.finish(build.op("SLICE", [conv, begin, size], (1, 4, 5, 3)))
    fused = fuse_elementwise(lower(graph))
    assert ops(fused) == ["CONV_2D", "SLICE"]
    assert_same(graph, fused)


def test_an_epilogue_does_not_grow_without_end() -> None:
    build = Builder()
    x = build.input(2, 3)
    value = x
    for _ in range(40):
        value = build.op("SQUARE", [build.op("TANH", [value], (2, 3))], (2, 3))
    graph = build.finish(value)
    fused = fuse_elementwise(lower(graph))
    assert 1 < len(fused.nodes) < 80
    assert_same(graph, fused)


def test_what_changes_nothing_goes_away() -> None:
    build = Builder()
    x = build.input(2, 3)
    same = build.op("RESHAPE", [x, build.constant([2, 3], "int32")], (2, 3))
    turned = build.op("TRANSPOSE", [same, build.constant([0, 1], "int32")], (2, 3))
    alone = build.op("CONCATENATION", [turned], (2, 3), axis=1)
    flat = build.op("RESHAPE", [alone, build.constant([6], "int32")], (6,))
    graph = build.finish(build.op("RESHAPE", [flat, build.constant([3, 2], "int32")], (3, 2)))
    removed = run(graph)
    assert ops(removed) == ["RESHAPE"]
    assert removed.nodes[0].inputs == (x,)
    assert_same(graph, removed)


def test_an_output_that_is_its_input_unchanged_is_still_written() -> None:
    build = Builder()
    x = build.input(2, 3)
    graph = build.finish(build.op("RESHAPE", [x, build.constant([2, 3], "int32")], (2, 3)))
    assert ops(remove_identity(lower(graph))) == ["RESHAPE"]
