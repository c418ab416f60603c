"""The precision bfloat16 on the CPU: weights of bfloat16, and products of pairs where the CPU has an instruction for
them, against numpy's products of the rounded numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitdelegate.base.targets import BFLOAT16, EXACT
from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers
from jitdelegate.ir.forms import Contract, Depthwise, MatMul
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products.matmul import Product
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.levels import BFLOATS, PAIRS
from tests.targets.matmul_graphs import attention
from tests.targets.precision_graphs import (
    CASES,
    EVERY,
    EXACT_MATRICES,
    MATRICES,
    contract_graph,
    feeds_of,
    matrices_graph,
)


def rounded(numbers: np.ndarray) -> np.ndarray:
    return bfloat16_numbers(bfloat16_bits(numbers))


def with_rounded_weights(graph: Graph) -> Graph:
    weights = graph.tensors[1]
    assert weights.data is not None
    return replace(graph, tensors=(graph.tensors[0], weights.holding(rounded(weights.data)), *graph.tensors[2:]))


def check(found: np.ndarray, expected: np.ndarray) -> None:
    """Sums may differ by rounding in float32; a rounding to bfloat16 would be a hundred times as much."""
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("features", BFLOATS)
@pytest.mark.parametrize("name", EVERY)
def test_sums_of_rounded_numbers_are_those_of_float32(name: str, features: str) -> None:
    graph = contract_graph(name)
    feeds = feeds_of(graph)
    is_matrix = len(EVERY[name][2]) == 2 or name == "few pixels"
    rounds_data = features == PAIRS and name in CASES
    expected_graph = with_rounded_weights(graph) if features == PAIRS or is_matrix else graph
    (expected,) = run_graph(expected_graph, list(map(rounded, feeds)) if rounds_data else feeds)
    (found,) = execute(graph, feeds, features, precision=BFLOAT16)
    check(found, expected)


@pytest.mark.parametrize("features", BFLOATS)
@pytest.mark.parametrize("name", MATRICES)
def test_two_matrices_are_multiplied_in_bfloat16(name: str, features: str) -> None:
    graph = matrices_graph(name)
    feeds = feeds_of(graph)
    are_rounded = features == PAIRS and name not in EXACT_MATRICES
    (expected,) = run_graph(graph, list(map(rounded, feeds)) if are_rounded else feeds)
    check(execute(graph, feeds, features, precision=BFLOAT16)[0], expected)


@pytest.mark.parametrize("sizes", [(70, 33, 81, 31), (60, 24, 640, 32)], ids=str)
@pytest.mark.parametrize("features", BFLOATS)
def test_attention_multiplies_in_bfloat16(
    features: str, sizes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitdelegate.targets.cpu.code.tasks.FUSE_BYTES", 0)
    graph = attention(sizes, adj_y=True)
    feeds, generated = feeds_of(graph), generate(graph, features, precision=BFLOAT16)
    assert [kernel.form for kernel in generated.kernels] == ["MatMul+Softmax+MatMul"]
    are_rounded = features == PAIRS
    query, key, mask, value = (rounded(feed) if are_rounded and k != 2 else feed for k, feed in enumerate(feeds))
    (shares,) = run_graph(replace(graph, nodes=graph.nodes[:2], outputs=(5,)), [query, key, mask, value])
    second = replace(graph, nodes=graph.nodes[2:], inputs=(5, 3))
    (expected,) = run_graph(second, [rounded(shares) if are_rounded else shares, value])
    (found,) = execute(graph, feeds, features, precision=BFLOAT16)
    # shares that lie halfway between two may be rounded to either
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


def test_rows_of_an_attention_are_converted_before_the_loop_over_blocks_of_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked, walk = list[str](), Product.walk

    def noted(product: Product, *arguments: Any, **options: Any) -> None:
        walked.append(product.a.memory.layout.dtype)
        walk(product, *arguments, **options)

    monkeypatch.setattr(Product, "walk", noted)
    generate(attention((60, 24, 640, 32), adj_y=True), PAIRS, precision=BFLOAT16)
    assert walked[0] == BFLOAT16


@pytest.mark.parametrize("features", BFLOATS)
def test_a_product_fused_behind_a_depthwise(features: str) -> None:
    random = np.random.default_rng(2)
    taps = random.normal(0, 1, (1, 3, 3, 80)).astype(np.float32)
    weights = random.normal(0, 1, (72, 1, 1, 80)).astype(np.float32)
    tensors = (
        Tensor("data", (1, 64, 64, 80), "float32"),
        Tensor("weights", weights.shape, "float32", weights),
        Tensor("taps", taps.shape, "float32", taps),
        Tensor("between", (1, 64, 64, 80), "float32"),
        Tensor("result", (1, 64, 64, 72), "float32"),
    )
    nodes = (
        Node("DEPTHWISE_CONV_2D", (0, 2, ABSENT), (3,), form=Depthwise(kernel=(3, 3), padding=(1, 1, 1, 1))),
        Node("CONV_2D", (3, 1, ABSENT), (4,), form=Contract()),
    )
    graph = Graph(tensors, nodes, (0,), (4,))
    feeds = feeds_of(graph)
    (between,) = run_graph(replace(graph, nodes=nodes[:1], outputs=(3,)), feeds)
    between = rounded(between) if features == PAIRS else between
    factors = rounded(weights) if features == PAIRS else weights
    expected = between.astype(np.float64) @ factors[:, 0, 0].T.astype(np.float64)
    (found,) = execute(graph, feeds, features, precision=BFLOAT16)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("features", BFLOATS)
def test_gathered_rows_are_those_of_the_matrix(features: str) -> None:
    random = np.random.default_rng(3)
    table, chosen = random.normal(0, 1, (150, 95)).astype(np.float32), np.int32([0, 149, 75, 50, 4])
    tensors = (
        Tensor("data", (90, 95), "float32"),
        Tensor("table", table.shape, "float32", table),
        Tensor("places", (5, 1), "int32"),
        Tensor("product", (90, 150), "float32"),
        Tensor("gathered", (5, 95), "float32"),
    )
    nodes = (
        Node("FULLY_CONNECTED", (0, 1, ABSENT), (3,), form=Contract()),
        Node("GATHER", (1, 2), (4,), form=Gather()),
    )
    graph = Graph(tensors, nodes, (0, 2), (3, 4))
    _, found = execute(graph, [np.zeros((90, 95), np.float32), chosen[:, None]], features, precision=BFLOAT16)
    np.testing.assert_array_equal(found, table[chosen] if features == PAIRS else rounded(table[chosen]))


@pytest.mark.parametrize("features", BFLOATS)
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", ["one row", "odd channels", "three channels", "window", "a channel alone"])
def test_reads_and_writes_stay_within_the_callers_memory(name: str, at_end: bool, features: str) -> None:
    graph = contract_graph(name)
    feeds = feeds_of(graph)
    (found,) = run_fenced(graph, feeds, features, at_end=at_end, precision=BFLOAT16)
    np.testing.assert_array_equal(found, execute(graph, feeds, features, precision=BFLOAT16)[0])


@pytest.mark.parametrize("features", BFLOATS)
def test_what_is_not_read_may_be_infinite_and_what_is_read_stays_so(features: str) -> None:
    weights = np.random.default_rng(6).normal(0, 1, (90, 1, 1, 3)).astype(np.float32)
    tensors = (
        Tensor("data", (1, 1, 40, 3), "float32"),
        Tensor("weights", weights.shape, "float32", weights),
        Tensor("result", (1, 1, 20, 90), "float32"),
    )
    graph = Graph(tensors, (Node("CONV_2D", (0, 1, ABSENT), (2,), form=Contract(stride=(1, 2))),), (0,), (2,))
    (data,) = feeds_of(graph)
    data[0, 0, 1::2] = np.inf
    assert np.isfinite(execute(graph, [data], features, precision=BFLOAT16)[0]).all()
    for channel in range(3):
        data[0, 0, 8, channel] = np.inf
        (found,) = execute(graph, [data], features, precision=BFLOAT16)
        np.testing.assert_array_equal(found[0, 0, 4], np.sign(weights[:, 0, 0, channel]) * np.inf)
        data[0, 0, 8, channel] = 1.0


def test_the_nearest_bfloat16_is_the_even_one_of_two() -> None:
    one = 1 + 2.0**-8
    numbers = np.float32([one, 1 + 3 * 2.0**-8, -one, np.nextafter(np.float32(one), 2), 3.4e38, np.inf, np.nan])
    numbers = np.append(numbers, np.uint32([0x7F800001, 0xFFFFFFFF]).view(np.float32))
    expected = [1, 1 + 2.0**-6, -1, 1 + 2.0**-7, np.inf, np.inf, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(rounded(numbers), np.float32(expected))


@pytest.mark.parametrize(
    ("name", "features"), [*(("rows", features) for features in BFLOATS), ("window", PAIRS), ("many pixels", PAIRS)]
)
def test_weights_take_half_the_bytes(name: str, features: str) -> None:
    graph = contract_graph(name)
    sizes = {precision: len(generate(graph, features, precision=precision).weights) for precision in (EXACT, BFLOAT16)}
    assert sizes[BFLOAT16] < sizes[EXACT] * 0.55 + 300


@pytest.mark.parametrize(
    ("features", "instructions"),
    [("x86-64-v4-bf16", ("vdpbf16ps", "2bf16")), ("aarch64-i8mm", ("\tbfdot", "\tbfcvtn"))],
)
def test_a_level_for_pairs_converts_and_multiplies_them_by_instructions_for_it(
    features: str, instructions: tuple[str, ...]
) -> None:
    texts: dict[str, str] = {}
    generate(contract_graph("rows"), features, lambda stage, make: texts.update({stage: make()}), precision=BFLOAT16)
    assert all(each in texts["assembly"] for each in instructions)


def test_weights_that_are_narrow_without_loss_stay_so() -> None:
    """float16 has as many bytes as bfloat16, and more digits."""
    weights = np.random.default_rng(8).normal(0, 1, (70, 64)).astype(np.float16).astype(np.float32)
    graph = contract_graph("rows", weights)
    usual, other = (generate(graph, "x86-64-v3", precision=precision) for precision in (EXACT, BFLOAT16))
    assert (usual.code, usual.weights) == (other.code, other.weights)


@pytest.mark.parametrize("name", ["rows", "window"])
def test_float32_is_computed_as_on_the_level_before(name: str) -> None:
    usual, other = (generate(contract_graph(name), features) for features in ("x86-64-v4-vbmi", "x86-64-v4-bf16"))
    assert (usual.code, usual.weights) == (other.code, other.weights)


def test_filters_that_many_pixels_meet_stay_floats_without_an_instruction_for_pairs() -> None:
    """Widening them would take longer than reading half the bytes saves."""
    usual, other = (generate(contract_graph("window"), "x86-64-v4", precision=one) for one in (EXACT, BFLOAT16))
    assert (usual.code, usual.weights) == (other.code, other.weights)
    few = contract_graph("few pixels")
    usual, other = (generate(few, "x86-64-v4", precision=one) for one in (EXACT, BFLOAT16))
    assert len(other.weights) < 0.6 * len(usual.weights)


@pytest.mark.parametrize("features", BFLOATS)
def test_rows_of_odd_length_end_with_zeros_whatever_lay_there(features: str) -> None:
    """The infinite rows of the product before lie in the same scratch memory."""
    shapes = [(1, 30, 36), (1, 36, 20), (1, 30, 35), (1, 35, 20), (1, 30, 20), (1, 30, 20)]
    tensors = tuple(Tensor(f"tensor{number}", shape, "float32") for number, shape in enumerate(shapes))
    nodes = (Node("BATCH_MATMUL", (0, 1), (4,), form=MatMul()), Node("BATCH_MATMUL", (2, 3), (5,), form=MatMul()))
    graph = Graph(tensors, nodes, (0, 1, 2, 3), (4, 5))
    feeds = feeds_of(graph)
    feeds[0][:] = np.inf
    assert np.isfinite(execute(graph, feeds, features, precision=BFLOAT16)[1]).all()
