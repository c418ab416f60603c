"""Weights of int2, four to a byte, in the operators whose kernels in LiteRT unpack them."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import jitdelegate
from jitdelegate.ir.dequantize import integers
from jitdelegate.ir.graph import Quant, Tensor
from jitdelegate.tflite.write import ModelBuilder

SCALE = 2.0**-5


def weights(
    model: ModelBuilder, shape: tuple[int, int], *, by_row: bool, seed: int = 0
) -> tuple[int, tuple[float, ...]]:
    """A constant of random bytes, and its scales."""
    dice, count = np.random.default_rng(seed), shape[0] if by_row else 1
    scales = tuple(float(np.float32(scale)) for scale in dice.uniform(0.01, 0.1, count))
    packed = dice.integers(0, 256, -(-shape[0] * shape[1] // 4)).astype(np.uint8)
    return model.constant(packed, dtype="int2", shape=shape, quant=Quant(scales, (0,) * count, 0)), scales


def both(content: bytes, feed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Our result and LiteRT's, of a model that is compiled as a whole."""
    model = jitdelegate.load(content, target="cpu", serialization_dir=False)
    assert not any(operator.reason for operator in model.report().operators)
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
    interpreter.invoke()
    return np.asarray(model(feed)), interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_the_first_element_is_in_the_lowest_bits() -> None:
    tensor = Tensor("w", (5,), "int2", np.array([0b11100100, 0b00000010], np.uint8), Quant((1.0,), (0,)))
    np.testing.assert_array_equal(integers(tensor), np.array([0, 1, -2, -1, -2], np.int8))


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("depth", [64, 6, 37])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_rows_are_multiplied_as_in_litert(dtype: str, depth: int, by_row: bool) -> None:
    model, dice, units = ModelBuilder(), np.random.default_rng(1), 40
    quant = None if dtype == "float32" else Quant((SCALE,), (0,))
    x = model.input((7, depth), dtype, quant=quant)
    filters, scales = weights(model, (units, depth), by_row=by_row)
    operands = [x, filters]
    if quant:
        bias = dice.integers(-500, 500, units).astype(np.int32 if dtype == "int8" else np.int64)
        own = tuple(float(np.float32(SCALE) * np.float32(scale)) for scale in scales)
        operands.append(model.constant(bias, quant=Quant(own, (0,) * len(own), 0)))
    result = Quant((0.1 if dtype == "int8" else SCALE,), (0,)) if quant else None
    options = {"keep_num_dims": True}
    model.output(
        model.op("FULLY_CONNECTED", operands, (7, units), dtype=dtype, quant=result, options=options, version=13)
    )
    feed = ((20 if dtype != "int16" else 9000) * dice.normal(size=(7, depth))).astype(dtype)
    found, expected = both(model.finish(), feed)
    error = 0.02 * float(np.abs(expected).max()) if dtype == "float32" else 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


@pytest.mark.parametrize("by_row", [True, False])
def test_rows_are_looked_up_as_in_litert(by_row: bool) -> None:
    model = ModelBuilder()
    numbers, (table, _) = model.input((3,), "int32"), weights(model, (8, 64), by_row=by_row)
    model.output(model.op("EMBEDDING_LOOKUP", [numbers, table], (3, 64), version=4))
    np.testing.assert_array_equal(*both(model.finish(), np.array([7, 0, 2], np.int32)))


def test_constants_are_dequantized_while_compiling() -> None:
    model = ModelBuilder()
    x, (table, _) = model.input((8, 64)), weights(model, (8, 64), by_row=False)
    model.output(model.op("ADD", [x, model.op("DEQUANTIZE", [table], (8, 64), version=6)], (8, 64)))
    np.testing.assert_array_equal(*both(model.finish(), np.ones((8, 64), np.float32)))
