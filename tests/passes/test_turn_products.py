"""1x1 convolutions over heads, between transposes."""

from __future__ import annotations

from jitdelegate.ir.forms import Contract, MatMul, Softmax
from jitdelegate.ir.graph import Graph
from jitdelegate.passes import fuse_normalization, lower, push_transposes, turn_products
from jitdelegate.passes.arrangement import moved_bytes
from tests.passes.graphs import Builder, assert_same


def talking_heads(heads: int, images: int = 1) -> Graph:
    """A convolution over heads before and after a softmax along the last axis but one."""
    build = Builder()
    options = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    shape = images, 5, 6, heads

    def convolution(x: int) -> int:
        return build.op("CONV_2D", [x, build.weights(heads, 1, 1, heads), build.weights(heads)], shape, **options)

    def reduced(op: str, x: int) -> int:
        return build.op(op, [x, build.constant([2], "int32")], (images, 5, 1, heads), keep_dims=True)

    scores = build.input(images, heads, 5, 6)
    found = convolution(build.op("TRANSPOSE", [scores, build.constant([0, 2, 3, 1], "int32")], shape))
    powers = build.op("EXP", [build.op("SUB", [found, reduced("REDUCE_MAX", found)], shape)], shape)
    found = convolution(build.op("DIV", [powers, reduced("SUM", powers)], shape))
    back = build.op("TRANSPOSE", [found, build.constant([0, 3, 1, 2], "int32")], (images, heads, 5, 6))
    return build.finish(build.op("RELU", [back], (images, heads, 5, 6)))


def test_convolutions_over_heads_become_products_without_transposes() -> None:
    for images in (1, 2):
        graph = talking_heads(8, images)
        found = turn_products(push_transposes(lower(graph)))
        assert moved_bytes(found) == 0
        forms = [type(node.form) for node in fuse_normalization(found).nodes]
        assert forms.count(MatMul) == 2
        assert Softmax in forms
        assert_same(graph, found)


def test_a_convolution_of_an_image_stays() -> None:
    build = Builder()
    image = build.op("TRANSPOSE", [build.input(1, 4, 5, 6), build.constant([0, 2, 3, 1], "int32")], (1, 5, 6, 4))
    graph = push_transposes(lower(build.finish(build.convolution(build.convolution(image, 5), 5))))
    assert turn_products(graph) is graph


def test_many_channels_stay() -> None:
    found = turn_products(push_transposes(lower(talking_heads(65))))
    assert sum(isinstance(node.form, Contract) for node in found.nodes) == 2
