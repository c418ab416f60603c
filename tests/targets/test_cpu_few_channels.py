"""Windows over floats whose channels do not fill vectors, on every level, against the form interpreter: half vectors
are multiplied, sums are along the data, and neighbouring pixels share vectors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.expr import RESULT, Arg, maximum
from jitdelegate.ir.forms import Contract, Depthwise, Shape
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.fenced import run_fenced
from tests.targets.integer_graphs import graph_of
from tests.targets.levels import RUNNABLE
from tests.targets.test_cpu_graphs import Network

LEVELS = pytest.mark.parametrize("features", RUNNABLE)
BOUND = 1e-5


def contract(depth: int, outputs: int, *, columns: int = 6, streams: bool = False, dtype: str = "float32") -> Graph:
    """Windows of 3 by 3 with a stride, over two images, with weights that are numbers of `dtype`."""
    random, shape = np.random.default_rng(depth + outputs), (2, 4, columns, outputs)
    weights = random.normal(0, 1, (outputs, 3, 3, depth)).astype(dtype).astype(np.float32)
    form = Contract(kernel=(3, 3), stride=(2, 2))
    return window(form, (2, 9, 2 * columns + 1, depth), shape, weights, streams=streams)


def transposed(depth: int, outputs: int, kernel: int, stride: int, *, streams: bool) -> Graph:
    """Transposed windows over two images of 4 by 9 pixels."""
    shape, rest = (2, 4 * stride, 9 * stride, outputs), max(0, kernel - stride)
    weights = np.random.default_rng(depth).normal(0, 1, (outputs, kernel, kernel, depth)).astype(np.float32)
    padding = (rest // 2, rest - rest // 2) * 2
    form = Contract(kernel=(kernel, kernel), stride=(stride, stride), padding=padding, transposed=True)
    return window(form, (2, 4, 9, depth), shape, weights, streams=streams)


def depthwise(channels: int, columns: int, *, streams: bool = False, **options: object) -> Graph:
    """Windows of 3 by 3 over two images of so many columns."""
    random, shape = np.random.default_rng(channels + columns), (2, 5, columns, channels)
    weights = random.normal(0, 1, (1, 3, 3, channels)).astype(np.float32)
    form = Depthwise(**{"kernel": (3, 3), "padding": (1, 1, 1, 1), **options})
    return window(form, shape, shape, weights, streams=streams)


def window(form: Contract | Depthwise, data: Shape, shape: Shape, weights: np.ndarray, *, streams: bool) -> Graph:
    """The form over the caller's data; its epilogue may add a tensor and multiply by a number of each channel."""
    bias = np.random.default_rng(5).normal(0, 1, shape[-1]).astype(np.float32)
    further = [Tensor("residual", shape, "float32")] * streams
    form = replace(form, epilogue=maximum(RESULT + Arg(1), 0.0) if streams else RESULT)
    return graph_of(form, Tensor("x", data, "float32"), shape, weights=weights, bias=bias, streams=further)


def check(graph: Graph, features: str) -> None:
    random = np.random.default_rng(4)
    feeds = [random.normal(0, 1, graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]
    (expected,) = run_graph(graph, feeds)
    for at_end in (False, True):
        (found,) = run_fenced(graph, feeds, features, at_end=at_end)
        np.testing.assert_allclose(found, expected, rtol=0, atol=BOUND * float(np.abs(expected).max()))


def assembly(graph: Graph, features: str) -> str:
    texts = dict[str, str]()
    generate(graph, features, lambda stage, make: texts.update({stage: make()}))
    return texts["assembly"]


@LEVELS
@pytest.mark.parametrize("outputs", [1, 3, 4, 8, 9, 17, 20, 24, 25, 40, 68, 72])
def test_output_channels_of_parts_of_vectors(outputs: int, features: str) -> None:
    check(contract(3, outputs), features)
    check(contract(20, outputs, streams=True), features)


@LEVELS
def test_long_sums_of_half_vectors_are_cut_into_segments(features: str) -> None:
    check(contract(130, 24), features)
    check(contract(130, 8, dtype="float16"), features)


@pytest.mark.skipif("x86-64-v4" not in RUNNABLE, reason="no AVX-512 here")
@pytest.mark.parametrize(("outputs", "halved"), [(8, True), (24, True), (25, False), (16, False), (72, True)])
def test_half_vectors_are_multiplied_where_no_more_is_left(outputs: int, *, halved: bool) -> None:
    found = re.search(r"vfmadd\w+\s.*%ymm", assembly(contract(12, outputs), "x86-64-v4"))
    assert (found is not None) == halved


@LEVELS
@pytest.mark.parametrize("columns", [1, 7, 17])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
def test_sums_along_the_data_of_few_output_channels(outputs: int, columns: int, features: str) -> None:
    """Of images in blocks, and of rows that do not fill vectors."""
    net = Network(np.random.default_rng(0))
    x = net.conv(net.input(2, 3, columns, 3), 48, 3)
    check(passes.run(net.graph(net.same("LOGISTIC", net.conv(x, outputs, 3)))), features)
    check(contract(11, outputs, columns=columns), features)


@LEVELS
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (4, 2), (3, 3)])
@pytest.mark.parametrize(("depth", "outputs"), [(16, 1), (24, 1), (40, 3)])
def test_phases_of_transposed_windows_share_rows(
    depth: int, outputs: int, kernel: int, stride: int, features: str
) -> None:
    check(transposed(depth, outputs, kernel, stride, streams=True), features)


@pytest.mark.skipif("x86-64-v4" not in RUNNABLE, reason="no AVX-512 here")
def test_phases_of_transposed_windows_share_rows_where_each_has_a_window() -> None:
    assert "dot_row" in assembly(transposed(16, 1, 2, 2, streams=False), "x86-64-v4")
    assert "dot_row" not in assembly(transposed(16, 1, 2, 3, streams=False), "x86-64-v4")


@pytest.mark.skipif("x86-64-v4" not in RUNNABLE, reason="no AVX-512 here")
@pytest.mark.parametrize(("depth", "outputs", "is_dot"), [(12, 1, True), (3, 4, False), (40, 4, True), (40, 8, False)])
def test_sums_are_along_the_data_where_that_takes_fewer_products(depth: int, outputs: int, *, is_dot: bool) -> None:
    assert ("dot_row" in assembly(contract(depth, outputs), "x86-64-v4")) == is_dot


@LEVELS
@pytest.mark.parametrize("columns", [3, 16, 37])
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 8, 24])
def test_depthwise_windows_of_few_channels(channels: int, columns: int, features: str) -> None:
    check(depthwise(channels, columns), features)
    check(depthwise(channels, columns, streams=True, dilation=(1, 2), padding=(1, 1, 2, 2)), features)


@pytest.mark.skipif("x86-64-v4" not in RUNNABLE, reason="no AVX-512 here")
@pytest.mark.parametrize(("channels", "stride", "masked"), [(3, 1, False), (8, 1, False), (3, 2, True), (16, 1, False)])
def test_neighbouring_pixels_share_vectors_without_a_stride(channels: int, stride: int, *, masked: bool) -> None:
    graph = depthwise(channels, 32)
    if stride == 2:
        graph = window(
            Depthwise(kernel=(3, 3), stride=(2, 2)),
            (1, 9, 65, channels),
            (1, 4, 32, channels),
            np.ones((1, 3, 3, channels), np.float32),
            streams=False,
        )
    rows = assembly(graph, "x86-64-v4").partition("depthwise_row")[2]
    assert (re.search(r"vmovups\s.*%[xyz]mm.*\{%k", rows) is not None) == masked
