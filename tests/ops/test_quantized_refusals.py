"""Quantized operators whose scales or zero points no kernel can use are left to LiteRT, with the reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jitdelegate.ir.graph import Quant
from jitdelegate.ops import find
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.quantized_models import Value, one_op

SHAPE = (1, 2, 3, 4)
OUT_OF_RANGE = {
    0.0: "the scale of 't1' is 0.0",
    -0.5: "the scale of 't1' is -0.5",
    math.nan: "the scale of 't1' is nan",
    math.inf: "the scale of 't1' is inf",
    1e-45: "the scale of 't1' is 1.4",
    3e38: "the scale of 't1' is 3.0",
}


def stored(scale: float = 0.5, zero: int = 0, dtype: str = "int8") -> Value:
    return SHAPE, dtype, scale, zero


def reason(op: str, data: list[Value], output: Value, **options: Any) -> str | None:
    """Why the operator is not compiled."""
    graph = read(one_op(op, data, output, **options)).graphs[0]
    (node,) = graph.nodes
    known = find(node)
    assert known is not None
    return known.check(graph, node)


@pytest.mark.parametrize("op, count", [("ADD", 2), ("MUL", 2), ("QUANTIZE", 1), ("LOGISTIC", 1), ("RELU", 1)])
@pytest.mark.parametrize("scale", OUT_OF_RANGE)
def test_scales_out_of_range_are_refused(op: str, count: int, scale: float) -> None:
    output = stored(scale) if count == 1 else stored()
    data = [stored(), stored(scale)][:count]
    assert OUT_OF_RANGE[scale] in str(reason(op, data, output))


@pytest.mark.parametrize(
    "dtype, zero", [("int8", -129), ("int8", 128), ("uint8", -1), ("uint8", 256), ("int16", 1 << 15), ("int8", 1 << 62)]
)
def test_zero_points_that_are_none_of_the_type_are_refused(dtype: str, zero: int) -> None:
    found = reason("ADD", [stored(zero=zero, dtype=dtype), stored(dtype=dtype)], stored(dtype=dtype))
    assert found == f"ADD: the zero point of 't0' is {zero}, which is no {dtype}."


RATIO, FACTOR = "times the output's, expected up to", "its scales give the factor"
LARGE: list[tuple[str, list[Value], Value, dict[str, Any], str]] = [
    ("ADD", [stored(2.0**20), stored()], stored(2.0**-20), {}, RATIO),
    ("MUL", [stored(2.0**7), stored(2.0**7)], stored(), {}, FACTOR),
    ("SQUARED_DIFFERENCE", [stored(2.0**-9), stored(2.0**7)], stored(), {}, FACTOR),
    ("PRELU", [stored(2.0**7), stored(2.0**7)], stored(), {}, FACTOR),
    ("LEAKY_RELU", [stored()], stored(), {"alpha": -5000.0}, FACTOR),
    ("LEAKY_RELU", [stored()], stored(), {"alpha": math.nan}, FACTOR),
    ("RSQRT", [stored(2.0**-60)], stored(2.0**-60), {}, FACTOR),
    ("RSQRT", [stored(512.0)], stored(256.0), {}, FACTOR),
    ("SOFTMAX", [stored(dtype="int16")], stored(2.0**-15, dtype="int16"), {"beta": 1e9}, FACTOR),
]


@pytest.mark.parametrize("op, data, output, options, words", LARGE, ids=lambda value: str(value)[:12])
def test_factors_without_a_fixed_point_multiplier_are_refused(
    op: str, data: list[Value], output: Value, options: dict[str, Any], words: str
) -> None:
    assert words in str(reason(op, data, output, **options))


def test_the_same_operators_with_usual_scales_are_compiled() -> None:
    for op, data, _, options, _ in LARGE:
        dtype, usual = data[0][1], dict.fromkeys(options, 1.0)
        output = stored(2.0**-15 if dtype == "int16" else 0.5, dtype=dtype)
        assert reason(op, [stored(dtype=dtype)] * len(data), output, **usual) is None


BYTE = stored(1.0, 0, "uint8")
UNLIKE_LITERT: list[tuple[str, list[Value], Value, dict[str, Any], str]] = [
    ("ADD", [stored(512.0, 0, "uint8"), BYTE], BYTE, {}, "sums of bytes overflow"),
    ("ADD", [stored(512.0), stored()], stored(), {}, "sums of bytes overflow"),
    ("MUL", [stored(512.0, 0, "uint8"), ((1,), "uint8", 1.0, 0)], BYTE, {}, "products overflow"),
    ("MUL", [stored(4.0, 0, "int16"), stored(1.0, 0, "int16")], stored(1.0, 0, "int16"), {}, "steps of the output"),
    (
        *("BATCH_MATMUL", [((3, 4), "int16", 4.0, 0), ((4, 5), "int16", 1.0, 0)], ((3, 5), "int16", 1.0, 0)),
        *({"adj_x": False, "adj_y": False}, "steps of the output"),
    ),
    ("EQUAL", [stored(), stored(1.0)], (SHAPE, "bool", 0.0, 0), {}, "with the scale 1.0"),
    ("HARD_SWISH", [stored(2.0**-10)], stored(1.0), {}, "beyond LiteRT's 16 bits"),
    ("HARD_SWISH", [stored(128.0)], stored(1.0), {}, "beyond LiteRT's 16 bits"),
    ("QUANTIZE", [stored()], stored(zero=7, dtype="int32"), {}, "with the zero point 7"),
    ("SOFTMAX", [BYTE], stored(2.0**-8, 7, "uint8"), {"beta": 1.0}, "the zero point of the output is 7"),
]


@pytest.mark.parametrize("op, data, output, options, words", UNLIKE_LITERT, ids=lambda value: str(value)[:12])
def test_parameters_for_which_litert_s_kernels_overflow_are_refused(
    op: str, data: list[Value], output: Value, options: dict[str, Any], words: str
) -> None:
    assert words in str(reason(op, data, output, **options))


@pytest.mark.parametrize(
    "dtype, scale, ratio, count, is_compiled",
    [
        ("int16", 0.5, 2.0**14, 1, True),
        ("int16", 0.5, 2.0**14, 2, False),
        ("int16", 0.5, 1.0, 99, True),
        ("int8", 1e-3, 2.0**22, 1, True),
        ("int8", 1e-3, 2.0**22, 2, True),
        ("int8", 1e-3, 2.0**6, 99, True),
    ],
)
def test_sums_that_litert_s_own_kernel_lets_overflow_are_refused(
    dtype: str, scale: float, ratio: float, count: int, is_compiled: bool
) -> None:
    model = ModelBuilder()
    data = model.input((1, count, 3), dtype, quant=Quant((scale,), (0,)))
    quant, axes = Quant((scale / ratio,), (0,)), model.constant(np.array([1], np.int32))
    model.output(model.op("SUM", [data, axes], (1, 3), options={"keep_dims": False}, dtype=dtype, quant=quant))
    graph = read(model.finish()).graphs[0]
    found = find(graph.nodes[0])
    assert found is not None
    told = found.check(graph, graph.nodes[0])
    assert told is None if is_compiled else "steps of the output, expected below" in str(told)
