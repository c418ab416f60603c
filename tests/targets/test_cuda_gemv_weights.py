"""Weights of GEMV on CUDA that stay as wide as they were in the file: int4, int8, float16, and scales of parts."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.dequantize import dequantized
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.walks.gemv import Gemv
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.integer_graphs import graph_of, whole_range

RANDOM = np.random.default_rng(5)


def product(weights: Tensor, rows: int = 1) -> Graph:
    """Rows of float32 numbers times weights [O, K]."""
    outputs, depth = weights.shape
    tensors = Tensor("x", (rows, depth), "float32"), weights, Tensor("y", (rows, outputs), "float32")
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, ABSENT), (2,), form=Contract()),), (0,), (2,))


def in_parts(outputs: int, depth: int, length: int, bits: int) -> Tensor:
    """Weights of `bits` whose parts of `length` have scales of their own."""
    scales = RANDOM.uniform(0.01, 0.02, outputs * depth // length).astype(np.float16).astype(np.float32)
    numbers = RANDOM.integers(-(1 << bits - 1), 1 << bits - 1, (outputs, depth)).astype(np.int8)
    grid = Quant(tuple(scales.tolist()), (), block_size=length)
    return dequantized(Tensor("w", (outputs, depth), "int8", numbers, grid))


def half(outputs: int, depth: int) -> Tensor:
    numbers = RANDOM.uniform(-1, 1, (outputs, depth)).astype(np.float16).astype(np.float32)
    return Tensor("w", numbers.shape, "float32", numbers)


def integers(outputs: int, depth: int) -> Tensor:
    """int4 with a scale per output channel."""
    numbers = RANDOM.integers(-8, 8, (outputs, depth)).astype(np.int8)
    scales = tuple(RANDOM.uniform(0.01, 0.02, outputs).astype(np.float32).tolist())
    return dequantized(Tensor("w", numbers.shape, "int8", numbers, Quant(scales, (0,) * outputs)))


CASES = {
    "int4 in parts": (in_parts(70, 128, 32, 4), Element.INT8, True, Element.FLOAT16),
    "int8 in few parts": (in_parts(9, 128, 64, 8), Element.INT8, False, Element.FLOAT32),
    "int4": (integers(33, 75), Element.INT8, True, None),
    "float16": (half(10, 203), Element.FLOAT16, False, None),
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_weights_stay_as_wide_as_they_are(name: str, rows: int) -> None:
    weights, *expected = CASES[name]
    graph = product(weights, rows)
    (template,) = templates_of(graph)
    assert isinstance(template, Gemv)
    assert [template.weights, template.is_packed, template.scale] == expected
    compare(graph, feeds=[RANDOM.uniform(-1, 1, (rows, weights.shape[1])).astype(np.float32)], tolerance=1e-5)


def test_two_int4_lie_in_a_byte() -> None:
    nbytes = {name: len(plan(product(make(256, 512)), GPUS["sm_90"], "float32").writer.weights.content)
              for name, make in (("int4", integers), ("float16", half))}  # fmt: skip
    assert nbytes["int4"] < 0.55 * 256 * 512 < 2.2 * 256 * 512 > nbytes["float16"]
    parts = plan(product(in_parts(256, 512, 32, 4)), GPUS["sm_90"], "float32").writer.weights.content
    assert len(parts) < (0.5 + 2 / 32) * 256 * 512 + 4096


@pytest.mark.parametrize("zero", [0, -100])
def test_int4_are_multiplied_as_bytes_by_bytes(zero: int) -> None:
    form = Contract(accumulator="int32", input_zero=3, halo_value=3, filter_zero=zero)
    weights = RANDOM.integers(-8, 8, (40, 100)).astype(np.int8)
    data, bias = whole_range((2, 100), "int8", 6), np.arange(40, dtype=np.int32)
    graph = graph_of(form, Tensor("x", (2, 100), "int8"), (2, 40), weights=weights, bias=bias, dtype="int32")
    (template,) = templates_of(graph)
    assert isinstance(template, Gemv) and template.is_packed
    (found,) = run(graph, [data])
    assert np.array_equal(found, (data.astype(np.int32) - 3) @ (weights.T.astype(np.int32) - zero) + bias)


def test_sums_of_many_int4_do_not_overflow() -> None:
    """Of bytes they would not either; products of two weights in a byte are 16 times as large."""
    depth = 140_000
    weights = np.full((1, depth), -8, np.int8)
    form, data = Contract(accumulator="int32"), Tensor("x", (1, depth), "int8")
    graph = graph_of(form, data, (1, 1), weights=weights, dtype="int32")
    (found,) = run(graph, [np.full((1, depth), -128, np.int8)])
    assert found.item() == depth * 8 * 128


def test_they_compile_everywhere_without_spills() -> None:
    graphs = product(in_parts(4300, 64, 32, 4), 4), product(CASES["int8 in few parts"][0])
    assert_compiles_everywhere([template for graph in graphs for template in templates_of(graph)])
