"""Elementwise functions of quantized values that are more than a table of bytes give what LiteRT gives, bit for bit."""

from __future__ import annotations

from platform import machine

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.targets.host import facts_of
from tests.ops.quantized_models import LiteRT, numbers, one_op
from tests.targets.levels import RUNNABLE

SIGMOID = (2.0**-15, 0)
CASES = {
    "EXP": [(0.0004, (0.0003, 0))],
    "LOG": [(0.0004, (0.0003, 0))],
    "SQRT": [(0.0004, (0.0003, 0)), (2.0**-12, (2.0**-12, 0))],
    "RSQRT": [(0.0004, (0.0003, 0))],
    "GELU": [(0.0004, (0.0003, 0))],
    "LOGISTIC": [(2.0**-12, SIGMOID), (2.0**-11, SIGMOID), (0.0003, SIGMOID)],
    "TANH": [(2.0**-12, SIGMOID), (2.0**-11, SIGMOID), (2.0**-13, SIGMOID), (0.0003, SIGMOID)],
}
"""Operator -> scales of int16 data, scale and zero point of the output."""
WORDS = [(op, *case) for op, cases in CASES.items() for case in cases]


def data_of(op: str, dtype: str) -> np.ndarray:
    """Numbers that the operator takes, the limits of the type among them."""
    if dtype != "int16":
        return np.arange(256).astype(np.uint8).view(dtype)
    found = numbers(np.random.default_rng(0), (1500,), dtype)
    found[:4] = -32768, 32767, 0, -1
    return abs(found // 2) if "SQRT" in op else found


@pytest.mark.parametrize("rounding", ["litert", "reference"])
@pytest.mark.parametrize("op, scale, output", WORDS)
def test_int16_numbers_are_computed_as_litert_does(
    op: str, scale: float, output: tuple[float, int], rounding: str
) -> None:
    data = data_of(op, "int16")
    content = one_op(op, [(data.shape, "int16", scale, 0)], (data.shape, "int16", *output), 2)
    expected = LiteRT(content, rounding).run(data)
    for target in ("reference", "cpu"):
        model = load(content, target=target, quantized_rounding=rounding)
        np.testing.assert_array_equal(model(data), expected, err_msg=target)
        assert model.report().target == target


@pytest.mark.parametrize("zero", [-128, -37])
@pytest.mark.parametrize("scale", [2.0**-4, 0.03])
@pytest.mark.parametrize("op", ["SQRT", "RSQRT", "LOG", "RELU_0_TO_1"])
def test_bytes_are_computed_as_litert_does(op: str, scale: float, zero: int) -> None:
    data = data_of(op, "int8")
    least = -128 if "SQRT" in op else -20
    version = 1 if op == "RELU_0_TO_1" else 2
    content = one_op(op, [(data.shape, "int8", scale, least)], (data.shape, "int8", 0.05, zero), version)
    model = load(content, target="reference")
    np.testing.assert_array_equal(model(data), LiteRT(content).run(data))
    assert model.report().target == "reference"


def test_a_hard_swish_of_floats_is_rounded_as_xnnpack_does_it() -> None:
    """So that integers after it are LiteRT's too. On CPUs without FMA, XNNPACK rounds twice."""
    if not facts_of(RUNNABLE[-1]).has_fma:
        pytest.skip("XNNPACK uses FMA where the CPU has it")
    data = np.random.default_rng(0).uniform(-4, 4, (1, 1 << 14)).astype(np.float32)
    content = one_op("HARD_SWISH", [(data.shape, "float32", 0.0, 0)], (data.shape, "float32", 0.0, 0))
    expected = LiteRT(content).run(data)
    for features in RUNNABLE:
        np.testing.assert_array_equal(load(content, target="cpu", cpu_features=features)(data), expected, features)


@pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="it is how x86 converts numbers")
@pytest.mark.parametrize("dtype, zero", [("int16", 0), ("int8", 3), ("int8", -3)])
@pytest.mark.parametrize("rounding", ["litert", "reference"])
def test_floats_beyond_an_int32_of_steps_are_quantized_as_litert_does(dtype: str, zero: int, rounding: str) -> None:
    steps = np.array([2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**32, 1e20, -1e20, np.inf, -np.inf, 99])
    data = (np.resize(steps, 39) * 2.0**-10).astype(np.float32)
    content = one_op("QUANTIZE", [(data.shape, "float32", 0.0, 0)], (data.shape, dtype, 2.0**-10, zero))
    model = load(content, target="cpu", quantized_rounding=rounding)
    np.testing.assert_array_equal(model(data), LiteRT(content, rounding).run(data))
