"""Quantized operators of int16: the type of a product's bias chooses LiteRT's kernel; tables with infinite values."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.ir.graph import Quant
from jitdelegate.ops import find
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.quantized_models import LiteRT, numbers, one_op

SCALES = 2.0**-12, 2.0**-7, 2.0**-13
"""Of data, weights and results: many of the products lie halfway between two numbers."""


def product(op: str, bias: str, channels: int = 11, groups: int = 1, said: str = "") -> bytes:
    """CONV_2D, TRANSPOSE_CONV or FULLY_CONNECTED of int16.

    said: the option quantized_bias_type; by default the bias's type.
    """
    model, random = ModelBuilder(), np.random.default_rng(0)
    data = model.input((7, 6) if op == "FULLY_CONNECTED" else (1, 7, 5, 6), "int16", quant=Quant(SCALES[:1], (0,)))
    shape = (channels, 6) if op == "FULLY_CONNECTED" else (channels, 2, 2, 6 // groups)
    weights = model.constant(random.integers(-127, 128, shape).astype(np.int8), quant=Quant(SCALES[1:2], (0,)))
    operands = [data, weights]
    out: tuple[int, ...] = (7, channels)
    options: dict[str, object] = {"quantized_bias_type": said or bias.upper() or "FLOAT32"}
    if op != "FULLY_CONNECTED":
        options |= {"padding": "SAME", "stride_h": 2, "stride_w": 2}
        out = (1, 4, 3, channels) if op == "CONV_2D" else (1, 14, 10, channels)
    if op == "TRANSPOSE_CONV":
        operands = [model.constant(np.array(out, np.int32)), weights, data]
    if bias:
        spread = random.integers(-5000, 5000, channels).astype(bias)
        operands.append(model.constant(spread, quant=Quant((SCALES[0] * SCALES[1],), (0,))))
    model.output(model.op(op, operands, out, options=options, dtype="int16", quant=Quant(SCALES[2:], (0,))))
    return model.finish()


CASES = {
    "CONV_2D int32": product("CONV_2D", "int32"),
    "CONV_2D int64": product("CONV_2D", "int64"),
    "CONV_2D int32 in groups": product("CONV_2D", "int32", 12, groups=2),
    "FULLY_CONNECTED int32": product("FULLY_CONNECTED", "int32"),
    "FULLY_CONNECTED int32, not said": product("FULLY_CONNECTED", "int32", said="FLOAT32"),
    "FULLY_CONNECTED int64": product("FULLY_CONNECTED", "int64"),
    "FULLY_CONNECTED without": product("FULLY_CONNECTED", ""),
    "FULLY_CONNECTED without, int64 said": product("FULLY_CONNECTED", "", said="INT64"),
    **{f"TRANSPOSE_CONV int32, {count} channels": product("TRANSPOSE_CONV", "int32", count) for count in (3, 8, 11)},
    "TRANSPOSE_CONV int64": product("TRANSPOSE_CONV", "int64"),
    "TRANSPOSE_CONV without": product("TRANSPOSE_CONV", ""),
    "TRANSPOSE_CONV without, int32 said": product("TRANSPOSE_CONV", "", said="INT32"),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_are_rounded_by_the_type_of_the_bias(name: str) -> None:
    content = CASES[name]
    data = numbers(np.random.default_rng(1), read(content).graphs[0].tensors[0].shape, "int16") // 4
    expected = LiteRT(content).run(data)
    for target in ("reference", "cpu"):
        model = load(content, target=target, serialization_dir=False)
        np.testing.assert_array_equal(model(data), expected, err_msg=target)
        assert model.report().fully_delegated


def reason(content: bytes) -> str:
    graph = read(content).graphs[0]
    op = find(graph.nodes[0])
    assert op is not None
    return str(op.check(graph, graph.nodes[0]))


@pytest.mark.parametrize("op", ["CONV_2D", "TRANSPOSE_CONV"])
def test_an_int32_bias_that_litert_reads_as_int64_is_refused(op: str) -> None:
    assert "is int32, but quantized_bias_type does not say so" in reason(product(op, "int32", said="FLOAT32"))


@pytest.mark.parametrize("scale", [0.009917241379310346, 0.01703448275862069])
def test_exponentials_beyond_all_numbers_are_litert_s(scale: float) -> None:
    data = np.arange(-32768, 32768, 7).astype(np.int16)
    content = one_op("EXP", [(data.shape, "int16", scale, 0)], (data.shape, "int16", 0.514, 0), 2)
    model = load(content, target="reference")
    np.testing.assert_array_equal(model(data), LiteRT(content).run(data))
    assert model.report().target == "reference"


def test_a_table_in_which_litert_s_interpolation_overflows_is_refused() -> None:
    content = one_op("EXP", [((4,), "int16", 0.81, 0)], ((4,), "int16", 0.514, 0), 2)
    assert "interpolation overflows" in reason(content)


def test_factors_have_all_digits_of_a_double() -> None:
    """The factor of these scales times a sum of 14,026,089 is 20392.50065; a float32 of the factor gives 20392.4999."""
    scales = 0.04372505471110344, 0.008225514553487301, 0.24737712740898132
    model = ModelBuilder()
    data = model.input((1, 2), "int16", quant=Quant(scales[:1], (0,)))
    weights = model.constant(np.array([[127, 1]], np.int8), quant=Quant(scales[1:2], (0,)))
    bias = model.constant(np.array([14026089 - 127 * 32767], np.int64), quant=Quant((scales[0] * scales[1],), (0,)))
    quant = Quant(scales[2:], (0,))
    model.output(model.op("FULLY_CONNECTED", [data, weights, bias], (1, 1), dtype="int16", quant=quant))
    content, x = model.finish(), np.array([[32767, 0]], np.int16)
    assert LiteRT(content).run(x).item() == 20393
    for target in ("reference", "cpu"):
        assert np.asarray(load(content, target=target, serialization_dir=False)(x)).item() == 20393


@pytest.mark.parametrize("axes", [(), (1, 1)], ids=str)
def test_sums_of_one_shape_are_rounded_once_before_they_are_added(axes: tuple[int, ...]) -> None:
    """Double rounding differs in a few of a million elements, whose sums lie next to a tie. Further `axes` of the first
    operand do not count."""
    random, count = np.random.default_rng(5), 800_000
    scales = [float(np.float32(2.0 ** random.uniform(-7, -2))) for _ in range(3)]
    data = [numbers(random, shape, "int16") for shape in ((*axes, count), (count,))]
    shapes = *(array.shape for array in data), (*axes, count)
    values = [(shape, "int16", each, 0) for shape, each in zip(shapes, (*scales[:2], scales[2] * 4), strict=True)]
    content = one_op("ADD", values[:2], values[2], pot_scale_int16=False)
    model = load(content, target="reference")
    np.testing.assert_array_equal(model(*data), LiteRT(content).run(*data))
