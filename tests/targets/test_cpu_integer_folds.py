"""Pools and reductions of integers on the CPU, for each instruction set, against the reference target."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr
from jitdelegate.ir.forms import Pool, Reduce, Resize
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize, rescale
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.integer_graphs import feeds_of, graph_of, to_int8, whole_range
from tests.targets.levels import RUNNABLE

WIDE = {"int8": "int32", "uint8": "int32", "int16": "int64"}
"""Type of elements -> type of their sums."""
CHANNELS = (1, 3, 65, 75, 192)
SLIDING = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1, 1, 0)}
"""A window over 5 rows and 6 columns gives 3 rows and 6 columns; it reaches over three borders."""


def check(graph: Graph, feeds: list[np.ndarray], features: str) -> None:
    for found, expected in zip(execute(graph, feeds, features), run_graph(graph, feeds), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_a_window_of_integers_is_pooled(kind: str, dtype: str, channels: int, features: str) -> None:
    form = Pool(kind=kind, accumulator="int32", **SLIDING)
    graph = graph_of(form, Tensor("x", (2, 5, 6, channels), dtype), (2, 3, 6, channels))
    check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("value", ["lowest", "highest", "random"])
def test_a_mean_of_many_pixels_does_not_overflow(dtype: str, value: str, features: str) -> None:
    form = Pool(kind="mean", accumulator="int32", kernel=(37, 41), stride=(37, 41))
    graph = graph_of(form, Tensor("x", (1, 37, 41, 5), dtype), (1, 1, 1, 5))
    limits = np.iinfo(dtype)
    data = whole_range((1, 37, 41, 5), dtype, 0)
    if value != "random":
        data = np.full_like(data, limits.min if value == "lowest" else limits.max)
    check(graph, [data], features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_means_are_rounded_away_from_zero(features: str) -> None:
    """Over all counts, also 41, of which the reciprocal times 41 is less than 1 in float32."""
    for kernel in ((1, 2), (2, 3), (1, 41)):
        form = Pool(kind="mean", accumulator="int32", kernel=kernel, padding=(kernel[0] - 1, 0, kernel[1] - 1, 0))
        graph = graph_of(form, Tensor("x", (1, 9, 60, 20), "int8"), (1, 9, 60, 20))
        check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("channels", [3, 40, 75])
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_an_epilogue_follows_a_pool(kind: str, channels: int, features: str) -> None:
    epilogue, factors = to_int8(channels)
    sums = Cast(RESULT, "int32") if kind == "max" else RESULT
    epilogue = quantize(Cast(sums, "float32") * Arg(1) + Cast(Arg(2), "float32"), "uint8", 128)
    form = Pool(kind=kind, accumulator="int32", epilogue=epilogue, **SLIDING)
    shape = (2, 3, 6, channels)
    for stream in (shape, (2, 3, 6, 1), (1, 3, 1, channels)):
        data, other = Tensor("x", (2, 5, 6, channels), "int8"), Tensor("o", stream, "int8")
        graph = graph_of(form, data, shape, constants=[factors * 900], streams=[other], dtype="uint8")
        check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_pool_writes_blocks_of_floats(features: str) -> None:
    """The pool's result is float32, and the pool of floats after it wants blocks of channels."""
    scaled = Cast(Cast(RESULT, "int32") - 3, "float32") * 0.25
    tensors = (
        Tensor("x", (1, 6, 6, 40), "int8"),
        Tensor("y", (1, 5, 5, 40), "float32"),
        Tensor("z", (1, 4, 4, 40), "float32"),
    )
    nodes = (
        Node("A", (0,), (1,), form=Pool(kernel=(2, 2), epilogue=scaled)),
        Node("B", (1,), (2,), form=Pool(kernel=(2, 2))),
    )
    graph = Graph(tensors, nodes, (0,), (2,))
    check(graph, feeds_of(graph), features)


AXES = [(0,), (3,), (1, 2), (2, 3), (0, 2), (0, 1, 2, 3)]


def reduced(form: Reduce, shape: tuple[int, ...], dtype: str, result: str) -> Graph:
    """One Reduce that keeps the reduced axes with size 1."""
    kept = tuple(1 if axis in form.axes else size for axis, size in enumerate(shape))
    tensors = (Tensor("x", shape, dtype), Tensor("y", kept, result))
    return Graph(tensors, (Node("TEST", (0,), (1,), form=form),), (0,), (1,))


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("dtype", WIDE)
def test_integers_are_reduced(dtype: str, axes: tuple[int, ...], features: str) -> None:
    for shape in ((2, 3, 5, 7), (2, 7, 9, 200)):
        for form in (
            Reduce(kind="sum", axes=axes, accumulator=WIDE[dtype]),
            Reduce(kind="max", axes=axes),
            Reduce(kind="min", axes=axes),
        ):
            graph = reduced(form, shape, dtype, form.own_type(dtype))
            check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("axes", [(1, 2), (3,)], ids=str)
@pytest.mark.parametrize("value", [-128, 127])
def test_long_sums_do_not_overflow(value: int, axes: tuple[int, ...], features: str) -> None:
    graph = reduced(Reduce(kind="sum", axes=axes, accumulator="int32"), (1, 65, 33, 700), "int8", "int32")
    check(graph, [np.full((1, 65, 33, 700), value, np.int8)], features)


TO_INT8 = quantize(Cast(RESULT, "float32") * 0.03 + 5.0, "int8")
"""XNNPACK's MEAN: the zero point is added before the rounding."""
TO_UINT8 = rescale(RESULT, 1 << 30, 35, "uint8", output_zero=128)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("epilogue, result", [(TO_INT8, "int8"), (TO_UINT8, "uint8")], ids=["int8", "uint8"])
def test_an_epilogue_follows_a_sum(epilogue: Expr, result: str, axes: tuple[int, ...], features: str) -> None:
    form = Reduce(kind="sum", axes=axes, accumulator="int32", epilogue=epilogue)
    graph = reduced(form, (2, 3, 5, 75), "int8", result)
    check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_reduction_writes_blocks_of_floats(features: str) -> None:
    scaled = Cast(Cast(RESULT, "int32"), "float32") * 0.5
    tensors = (
        Tensor("x", (2, 6, 6, 40), "int8"),
        Tensor("y", (2, 1, 1, 40), "float32"),
        Tensor("z", (2, 1, 1, 40), "float32"),
    )
    pad = {"kernel": (2, 2), "padding": (1, 0, 1, 0)}
    nodes = (
        Node("A", (0,), (1,), form=Reduce(kind="max", axes=(1, 2), epilogue=scaled)),
        Node("B", (1,), (2,), form=Pool(**pad)),
    )
    graph = Graph(tensors, nodes, (0,), (2,))
    check(graph, feeds_of(graph), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_mean_of_floats_is_quantized(features: str) -> None:
    form = Reduce(kind="mean", axes=(1, 2), epilogue=quantize(RESULT * 20.0, "int8"))
    graph = reduced(form, (1, 4, 4, 40), "float32", "int8")
    data = np.random.default_rng(0).integers(-7, 8, (1, 4, 4, 40)).astype(np.float32)
    check(graph, [data], features)


RESIZED = [("fixed10", "int8"), ("fixed10", "int16"), ("fixed11", "int8"), ("fixed11", "uint8"), ("float32", "uint8")]


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"half_pixel_centers": True}], ids=str)
@pytest.mark.parametrize("kind, weights, dtype", [("nearest", "float32", "int8"), *[("bilinear", *w) for w in RESIZED]])
def test_images_of_integers_are_resampled(
    kind: str, weights: str, dtype: str, options: dict[str, bool], features: str
) -> None:
    form = Resize(kind=kind, weights=weights, **options)
    for channels, size in ((3, (9, 4)), (75, (3, 13)), (1, (4, 5)), (64, (1, 1))):
        shape = (2, *size, channels)
        tensors = (Tensor("x", (2, 5, 7, channels), dtype), Tensor("y", shape, dtype))
        graph = Graph(tensors, (Node("TEST", (0,), (1,), form=form),), (0,), (1,))
        check(graph, feeds_of(graph), features)


def test_samples_of_integers_are_rounded_as_litert_does() -> None:
    """Halfway between two pixels, by hand: XNNPACK's halves go up, LiteRT's away from zero."""
    data = np.array([-2, -1, 0, 1, 2, 3], np.int8).reshape(1, 1, 6, 1)
    for weights, expected in (("fixed11", [-2, -1, -1, 0, 0, 1]), ("fixed10", [-2, -2, -1, -1, 0, 1])):
        form = Resize(weights=weights)
        tensors = (Tensor("x", (1, 1, 6, 1), "int8"), Tensor("y", (1, 1, 12, 1), "int8"))
        (found,) = run_graph(Graph(tensors, (Node("TEST", (0,), (1,), form=form),), (0,), (1,)), [data])
        assert found.ravel().tolist()[:6] == expected
