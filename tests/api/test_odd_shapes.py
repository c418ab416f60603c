"""Shapes that few models have: reductions that keep a last axis of one, and blocks of scales of every size."""

from __future__ import annotations

import numpy as np
import pytest

import jitdelegate
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder

LEVELS = ["auto", "x86-64-v3", "generic"]
SHAPES = [((7, 10, 1), (1,)), ((4, 3, 5, 1), (1, 2)), ((3, 1, 6, 1), (2,)), ((2, 5, 1, 1), (1,)), ((5, 4, 1), (0,))]
"""(shape, reduced axes)."""
RANDOM = np.random.default_rng(0)


def run(content: bytes, value: np.ndarray, **options: str) -> np.ndarray:
    model = jitdelegate.load(content, serialization_dir=False, target="cpu", **options)  # type: ignore[arg-type]
    assert model.report().target == "cpu" and not model.report().failure
    return np.asarray(model(value))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("op", "function"), [("MEAN", np.mean), ("SUM", np.sum), ("REDUCE_MAX", np.max)])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reductions_keep_a_last_axis_of_one(shape, axes, op, function, level) -> None:
    value = RANDOM.standard_normal(shape).astype(np.float32)
    expected = function(value, axes)
    builder = ModelBuilder()
    operands = [builder.input(shape), builder.constant(np.array(axes, np.int32))]
    builder.output(builder.op(op, operands, expected.shape, options={"keep_dims": False}))
    try:
        found = run(builder.finish(), value, cpu_features=level)
    except jitdelegate.DeviceError:
        pytest.skip(f"this CPU lacks {level}")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("execution", ["auto", "float_view"])
@pytest.mark.parametrize("outputs", [1, 3, 16, 33, 130])
@pytest.mark.parametrize(("depth", "block"), [(96, 4), (96, 12), (96, 32), (32, 32), (96, 96)])
def test_blocks_of_scales_of_every_size(depth: int, block: int, outputs: int, execution: str) -> None:
    numbers = RANDOM.integers(-8, 8, (outputs, depth)).astype(np.int8)
    count = numbers.size // block
    scales = tuple(np.float16(RANDOM.uniform(0.01, 0.02, count)).astype(float).tolist())
    nibbles = numbers.ravel().view(np.uint8) & 15
    builder = ModelBuilder()
    quantization = Quant(scales, (0,) * count, 0, block)
    packed = nibbles[0::2] | nibbles[1::2] << 4
    weights = builder.constant(packed, dtype="int4", shape=(outputs, depth), quant=quantization)
    builder.output(builder.op("FULLY_CONNECTED", [builder.input((3, depth)), weights, None], (3, outputs), version=9))
    value = RANDOM.standard_normal((3, depth)).astype(np.float32)
    expected = value @ (numbers * np.repeat(np.array(scales, np.float32), block).reshape(outputs, depth)).T
    found = run(builder.finish(), value, quantized_execution=execution)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < (1e-5 if execution == "float_view" else 0.03)
