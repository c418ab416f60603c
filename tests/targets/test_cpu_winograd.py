"""3 by 3 windows of bytes by Winograd's algorithm against numpy, on levels that use it: no element may differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Cast
from jitdelegate.ir.forms import Contract, Shape
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ir.quantized import quantize
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import choose_winograd
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.integer_graphs import feeds_of, graph_of, to_int8, whole_range
from tests.targets.levels import INTEGERS

USING = tuple(level for level in INTEGERS if level in ("x86-64-v3", "x86-64-v4"))
SIZES: dict[str, tuple[Shape, int, int]] = {
    "whole tiles": ((1, 8, 12, 16), 16, 1),
    "odd sizes": ((2, 9, 15, 24), 20, 1),
    "no padding": ((1, 11, 10, 32), 40, 0),
    "many channels": ((1, 8, 8, 72), 68, 1),
    "many rows": ((1, 70, 9, 16), 24, 1),
}
"""Name -> (data, output channels, pixels of padding)."""


def window(name: str, source: str = "uint8", *, zero: int = 77, bias: int = 1 << 20, **further: Any) -> Graph:
    """A case whose weights and data have the ends of their ranges."""
    data, outputs, padding = SIZES[name]
    epilogue, factors = to_int8(outputs)
    shape = data[0], data[1] + 2 * padding - 2, data[2] + 2 * padding - 2, outputs
    form = Contract(
        kernel=(3, 3),
        padding=(padding,) * 4,
        accumulator="int32",
        input_zero=zero,
        halo_value=zero,
        epilogue=further.pop("epilogue", epilogue),
    )
    weights = whole_range((outputs, 3, 3, data[3]), "int8", 1)
    biases = np.random.default_rng(2).integers(-bias, bias, outputs, np.int32)
    given: dict[str, Any] = {"constants": [factors], "dtype": "int8", **further}
    return graph_of(form, Tensor("x", data, source), shape, weights=weights, bias=biases, **given)


def names_of(graph: Graph, features: str) -> str:
    """The assembly for a level."""
    texts = dict[str, str]()
    generate(graph, features, lambda stage, make: texts.update({stage: make()}))
    return texts["assembly"]


def check(graph: Graph, features: str, threads: int = 1) -> None:
    feeds = feeds_of(graph)
    results = execute(graph, feeds, features, threads=threads), run_graph(graph, feeds)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("features", USING)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("source, zero", [("uint8", 255), ("int8", -128)])
def test_results_are_exact(name: str, source: str, zero: int, features: str) -> None:
    graph = window(name, source, zero=zero)
    assert "winograd" in names_of(graph, features)
    check(graph, features)


@pytest.mark.parametrize("features", USING)
@pytest.mark.parametrize("end", [0, 255])
def test_results_are_exact_where_all_data_are_an_end_of_their_range(end: int, features: str) -> None:
    graph = window("odd sizes")
    feeds = [np.full(feed.shape, end, feed.dtype) for feed in feeds_of(graph)]
    np.testing.assert_array_equal(execute(graph, feeds, features)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("features", USING)
@pytest.mark.parametrize("name", ["odd sizes", "no padding"])
def test_an_epilogue_reads_other_tensors(name: str, features: str) -> None:
    data, outputs, padding = SIZES[name]
    shape = data[0], data[1] + 2 * padding - 2, data[2] + 2 * padding - 2, outputs
    rounded, _ = to_int8(outputs)
    total = Cast(rounded, "float32") * 0.5 + Cast(Arg(2), "float32") * Cast(Arg(3), "float32") * 0.001
    streams = [Tensor("residual", shape, "int8"), Tensor("of pixels", (*shape[:3], 1), "uint8")]
    graph = window(name, epilogue=quantize(total, "uint8", 9), streams=streams, dtype="uint8")
    assert "winograd" in names_of(graph, features)
    check(graph, features)


@pytest.mark.parametrize("features", USING)
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", ["odd sizes", "no padding"])
def test_no_byte_outside_the_callers_memory_is_touched(name: str, at_end: bool, features: str) -> None:
    graph = window(name)
    feeds = feeds_of(graph)
    np.testing.assert_array_equal(run_fenced(graph, feeds, features, at_end=at_end)[0], run_graph(graph, feeds)[0])


@pytest.mark.parametrize("features", USING)
def test_threads_share_the_tiles(features: str) -> None:
    check(window("many rows"), features, threads=2)


@pytest.mark.parametrize("features", USING)
def test_a_large_bias_makes_results_wrap(features: str) -> None:
    graph = window("odd sizes", bias=(1 << 31) - 1)
    assert "winograd" in names_of(graph, features)
    check(graph, features)


@pytest.mark.parametrize("features", USING)
def test_sums_that_might_wrap_when_they_are_four_times_as_large_are_computed_directly(
    features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_winograd, "MOST", 1 << 21)
    assert "winograd" not in names_of(window("whole tiles"), features)


@pytest.mark.parametrize("features", [level for level in INTEGERS if level not in USING])
def test_levels_with_vnni_and_those_without_pairs_compute_them_directly(features: str) -> None:
    assert "winograd" not in names_of(window("whole tiles"), features)
