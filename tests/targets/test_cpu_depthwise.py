"""Depthwise windows over integers on the CPU, on every instruction set of the machine, against exact sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, maximum, minimum
from jitdelegate.ir.forms import Depthwise, IndexMap, Map
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize, rescale
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.multiply.depthwise_terms import quads_of
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.integer_graphs import feeds_of, graph_of, whole_range
from tests.targets.levels import INTEGERS

FEATURES = tuple(each for each in INTEGERS if each != "x86-64-v4-vbmi")
"""VBMI changes no code of these windows."""
SAME = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
STRIDED = {"kernel": (3, 3), "stride": (2, 2), "padding": (0, 1, 1, 0)}
DILATED = {"kernel": (3, 3), "dilation": (2, 3), "padding": (2, 2, 3, 3)}
LARGE = {"kernel": (5, 5), "padding": (2, 2, 2, 2)}

ROUNDED: dict[str, tuple[str, int, int, int]] = {
    "int8": ("int8", 3, -120, 127),
    "uint8": ("uint8", 130, 8, 240),
    "whole uint8": ("uint8", 0, 0, 255),
    "beyond int32": ("int8", -3, -128, 120),
    "added": ("int8", 3, -120, 127),
}
"""How results are rounded -> their type, zero point and limits; to "added" ones an int8 is added, which saturates."""


ENDS = ((0, 255), (255, 0), (255, 255))
"""Pairs of bytes, whose products with two taps are the largest ones."""


@dataclass(frozen=True)
class Case:
    """A Depthwise over images of `size` pixels (images, rows, columns).

    Attributes:
        weights_zero: the zero point of uint8 weights, which is subtracted from them; None for `weights` as they are.
        wide_row: the only row of such weights whose differences may be larger than an int8.
        most: the largest magnitude of such weights; 0 for any.
        bias: its largest magnitude.
        result: a key of ROUNDED; "twice" where a multiplier per channel rounds sums; "" for the sums themselves.
    """

    channels: int
    size: tuple[int, int, int] = (1, 7, 9)
    data: str = "int8"
    weights: str = "int8"
    weights_zero: int | None = None
    wide_row: int | None = None
    most: int = 0
    bias: int = 1000
    result: str = "int8"
    options: dict[str, Any] = field(default_factory=lambda: SAME)

    def graph(self) -> Graph:
        accumulator, zero = ("int64", 0) if self.data == "int16" else ("int32", 5)
        form = Depthwise(**self.options, input_zero=zero, halo_value=9, accumulator=accumulator)
        outputs = self.channels * form.multiplier
        sizes = zip(self.size[1:], (form.padding[:2], form.padding[2:]), (0, 1), strict=True)
        spans = [size + sum(padding) - (form.kernel[k] - 1) * form.dilation[k] - 1 for size, padding, k in sizes]
        shape = (self.size[0], *(span // step + 1 for span, step in zip(spans, form.stride, strict=True)), outputs)
        epilogue, constants, streams = RESULT, list[np.ndarray](), list[Tensor]()
        if self.result in ROUNDED:
            dtype, *limits = ROUNDED[self.result]
            epilogue = quantize(Cast(RESULT, "float32") * Arg(1), dtype, *limits)
            largest = np.iinfo(self.weights).max * 70 * prod(form.kernel) ** 0.5 + self.bias
            constants = [np.random.default_rng(3).uniform(60, 120, outputs).astype(np.float32) / np.float32(largest)]
            constants[0][::2] *= 1e9 if self.result == "beyond int32" else 1
        if self.result == "added":
            total = Cast(epilogue, "int32") + Cast(Arg(2), "int32")
            epilogue, streams = Cast(maximum(minimum(total, 127), -128), "int8"), [Tensor("z", shape, "int8")]
        if self.result == "twice":
            most = (1 << 15 if accumulator == "int64" else 1 << 31) - 1
            shifts = (25, 30) if accumulator == "int64" else (33, 36)
            numbers = np.random.default_rng(3)
            constants = [numbers.integers(low, high, outputs, np.int32) for low, high in ((most // 2, most), shifts)]
            epilogue = rescale(RESULT, Arg(1), Arg(2), "int16", output_zero=3)
        return graph_of(
            replace(form, epilogue=epilogue),
            Tensor("x", (*self.size, self.channels), self.data),
            shape,
            weights=self.filters((1, *form.kernel, outputs)),
            bias=np.random.default_rng(2).integers(-self.bias, self.bias, outputs).astype(accumulator),
            constants=constants,
            streams=streams,
            dtype=ROUNDED[self.result][0] if self.result in ROUNDED else {"twice": "int16"}.get(self.result, ""),
        )

    def filters(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.weights_zero is None:
            weights = whole_range(shape, self.weights, 1)
            return weights.clip(-self.most, self.most) if self.most else weights
        weights = whole_range(shape, "uint8", 1).astype(np.int16) - np.int16(self.weights_zero)
        is_wide = np.arange(shape[1])[:, None, None] == self.wide_row
        return weights if self.wide_row is None else np.where(is_wide, weights, weights.clip(-128, 127))


def times(multiplier: int, **options: Any) -> dict[str, Any]:
    return {**(options or SAME), "multiplier": multiplier}


CASES = {
    "whole vectors": Case(64, (2, 5, 17)),
    "parts of vectors": Case(19, (2, 5, 17)),
    "a part of a vector": Case(3, (1, 7, 9)),
    "vectors and a part": Case(72, (1, 7, 9), options=LARGE),
    "many vectors": Case(208, (1, 4, 5)),
    "two pixels a vector": Case(32, (1, 6, 13)),
    "eight pixels a vector": Case(8, (2, 6, 21), options=LARGE),
    "added to four pixels": Case(16, (2, 6, 11), result="added"),
    "stride": Case(32, (2, 8, 11), options=STRIDED),
    "stride of many": Case(96, (1, 8, 11), options=STRIDED),
    "dilation": Case(32, options=DILATED),
    "large": Case(48, (1, 6, 11), options=LARGE),
    "uint8": Case(40, data="uint8", result="uint8"),
    "a whole uint8": Case(72, (1, 9, 19), result="whole uint8"),
    "beyond int32": Case(72, result="beyond int32"),
    "uint8 by int16": Case(40, data="uint8", weights="int16"),
    "uint8 by the sum of two int8": Case(72, data="uint8", weights_zero=150, options=LARGE),
    "uint8 by int8 and a repeated row": Case(72, data="uint8", weights_zero=150, wide_row=1),
    "uint8 by uint8": Case(72, data="uint8", weights_zero=0),
    "small taps": Case(72, (1, 9, 19), most=85),
    "small taps of uint8": Case(40, (2, 8, 11), data="uint8", most=85, options=STRIDED, result="uint8"),
    "small taps of two pixels": Case(16, (1, 6, 13), most=85, result="added"),
    "small taps apart": Case(32, most=85, options=DILATED),
    "added": Case(80, result="added"),
    "added to a part": Case(24, result="added"),
    "sums": Case(40, result="", bias=1 << 30),
    "a large bias": Case(200, (1, 4, 5), bias=1 << 25),
    "rounded twice": Case(24, result="twice"),
    "int16": Case(40, data="int16", result="twice"),
    "int16 in 64 bits": Case(24, data="int16", result="", options={"kernel": (31, 31)}, size=(1, 33, 32)),
    "int32 for many taps": Case(24, result="", options={"kernel": (40, 40)}, size=(1, 41, 42)),
    "two filters a channel": Case(40, options=times(2)),
    "three filters a channel": Case(40, options=times(3, **STRIDED)),
    "filters of one channel": Case(1, (1, 9, 9), options=times(72)),
}


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name: str, features: str) -> None:
    graph = CASES[name].graph()
    feeds = feeds_of(graph)
    (found,), (expected,) = execute(graph, feeds, features), run_graph(graph, feeds)
    assert found.dtype == expected.dtype
    assert np.unique(expected).size > 60, "the case does not tell results apart"
    np.testing.assert_array_equal(found, expected)


def test_products_of_three_rows_are_divided_so_that_no_pair_saturates() -> None:
    ends = (-127, -90, -64, -1, 0, 1, 63, 64, 65, 127)
    taps = np.array(list(product(ends, repeat=3)), np.int8).T.reshape(3, 1, -1)
    found = [quads_of(taps[..., channel : channel + 1]) for channel in range(taps.shape[2])]
    for (upper, middle, lower), quads in zip(taps.reshape(3, -1).T.astype(int).tolist(), found, strict=True):
        sums = [sum(max(sign * tap, 0) for tap in (upper, middle, lower)) for sign in (1, -1)]
        assert (quads is None) == (max(sums) > 256)
        if quads is not None:
            rows, (term,) = quads
            divided = np.zeros(3, int)
            np.add.at(divided, list(rows), term.ravel())
            assert divided.tolist() == [upper, middle, lower]
            pairs = term.reshape(2, 2).astype(int).tolist()
            assert all(abs(a * pair[0] + b * pair[1]) < 1 << 15 for pair in pairs for a, b in ENDS)


def test_taps_of_nine_bits_are_divided_where_they_are_in_one_row() -> None:
    for row in range(3):
        taps = np.full((3, 1, 1), 20, np.int16)
        taps[row] = 200
        assert quads_of(taps) is not None
    assert quads_of(np.full((3, 1, 1), 129, np.int16)) is None


@pytest.mark.parametrize("features", ["x86-64-v3", "x86-64-v4"])
def test_levels_without_vnni_multiply_bytes_where_no_sum_can_saturate(features: str) -> None:
    for most in (85, 0):
        texts = dict[str, str]()
        generate(Case(64, most=most).graph(), features, lambda stage, make, to=texts: to.update({stage: make()}))
        assert ("vpmaddubsw" in texts["assembly"]) == (most == 85)


@pytest.mark.parametrize("features", FEATURES)
def test_data_that_the_caller_gets_too_stays_int8(features: str) -> None:
    graph = CASES["parts of vectors"].graph()
    (node,), (data, *tensors) = graph.nodes, graph.tensors
    index_map = IndexMap.broadcast(data.shape, data.shape)
    copied = len(graph.tensors)
    copy = Node("COPY", (0,), (copied,), form=Map(Arg(0), (index_map,)))
    nodes = (copy, replace(node, inputs=(copied, *node.inputs[1:])))
    graph = replace(graph, tensors=(data, *tensors, data), nodes=nodes, outputs=(*graph.outputs, copied))
    feeds = feeds_of(graph)
    for found, expected in zip(execute(graph, feeds, features), run_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("channels", [3, 21, 72])
def test_no_byte_outside_the_callers_memory_is_touched(channels: int, at_end: bool, features: str) -> None:
    graph = Case(channels, size=(2, 5, 9), result="added", options={"kernel": (3, 3)}).graph()
    feeds = feeds_of(graph)
    (found,), (expected,) = run_fenced(graph, feeds, features, at_end=at_end), run_graph(graph, feeds)
    np.testing.assert_array_equal(found, expected)
