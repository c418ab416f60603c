"""Values of bfloat16: what LiteRT runs of them is compiled, within networks whose inputs and outputs are floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitdelegate import load
from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.quantized_models import LiteRT
from tests.targets import cuda_execute
from tests.targets.test_cuda_quantized_models import lowered

SHAPE = (2, 6)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def model_of(op: str, *operands: Any, shape: tuple[int, ...] = SHAPE, dtype: str = "bfloat16", **options: Any) -> bytes:
    """An operator of bfloat16; each () is a fed operand, an array of float32 is a constant of bfloat16."""
    model, inputs = ModelBuilder(), list[int]()
    for operand in operands:
        if isinstance(operand, tuple):
            inputs.append(model.op("CAST", [model.input(SHAPE)], SHAPE, dtype="bfloat16"))
        elif operand.dtype == np.float32:
            inputs.append(model.constant(bfloat16_bits(operand), dtype="bfloat16", shape=operand.shape))
        else:
            inputs.append(model.constant(operand))
    result = model.op(op, inputs, shape, dtype=dtype, options=options)
    model.output(result if dtype == "bool" else model.op("CAST", [result], shape))
    return model.finish()


WEIGHTS = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
MODELS = {
    **{op: model_of(op, ()) for op in ("NEG", "TANH", "FLOOR", "ROUND", "LOGISTIC")},
    **{op: model_of(op, (), ()) for op in ("MAXIMUM", "MINIMUM", "ATAN2")},
    "MAXIMUM of a constant": model_of("MAXIMUM", (), WEIGHTS),
    **{op: model_of(op, (), (), dtype="bool") for op in ("LESS", "GREATER")},
    "CAST": model_of("CAST", (), dtype="int32"),
    "RESHAPE": model_of("RESHAPE", (), ints(3, 4), shape=(3, 4), new_shape=[3, 4]),
    "TRANSPOSE": model_of("TRANSPOSE", (), ints(1, 0), shape=(6, 2)),
    "CONCATENATION": model_of("CONCATENATION", (), WEIGHTS, shape=(4, 6), axis=0),
    "STRIDED_SLICE": model_of("STRIDED_SLICE", (), ints(0, 1), ints(2, 6), ints(1, 2), shape=(2, 3)),
    "PAD": model_of("PAD", (), ints(1, 0, 0, 2).reshape(2, 2), shape=(3, 8)),
    "GATHER": model_of("GATHER", WEIGHTS, ints(1, 0, 1), shape=(3, 6), axis=0),
    "EMBEDDING_LOOKUP": model_of("EMBEDDING_LOOKUP", ints(1, 1), WEIGHTS),
    "TILE": model_of("TILE", (), ints(1, 2), shape=(2, 12)),
}


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_litert(name: str) -> None:
    content, graph = MODELS[name], lowered(MODELS[name])
    dice = np.random.default_rng(0)
    feeds = [(9 * dice.normal(size=SHAPE)).astype(np.float32) for _ in graph.inputs]
    (expected,) = LiteRT(content).outputs(*feeds)
    for target in ("cpu", "reference"):
        ours = load(content, target=target, partitioning="all")
        assert ours.report().fully_delegated, str(ours.report())
        assert_near(np.array(ours(*feeds)), expected, name)
    assert_near(cuda_execute.run(graph, feeds)[0], expected, name)


def assert_near(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Equal, but for LiteRT's LOGISTIC, which also rounds what lies between to bfloat16."""
    error = 2.0**-7 if name == "LOGISTIC" else 0
    np.testing.assert_allclose(found, expected, rtol=error)


def test_weights_become_float32_while_compiling() -> None:
    model = ModelBuilder()
    stored = model.constant(bfloat16_bits(WEIGHTS), dtype="bfloat16", shape=SHAPE)
    weights = model.op("CAST", [stored], SHAPE)
    model.output(model.op("FULLY_CONNECTED", [model.input((3, 6)), weights, None], (3, 2)))
    content, data = model.finish(), np.random.default_rng(2).normal(size=(3, 6)).astype(np.float32)
    assert [node.op for node in lowered(content).nodes] == ["FULLY_CONNECTED"]
    ours = load(content, target="cpu", partitioning="all")
    np.testing.assert_allclose(np.array(ours(data)), LiteRT(content).run(data), rtol=1e-5, atol=1e-6)


def test_every_rounding_is_litert_s() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32)
    near = [bits << 16 | low for low in (0, 0x7FFF, 0x8000, 0x8001)]
    numbers = np.concatenate(near).view(np.float32)
    numbers = numbers[(np.abs(numbers) >= np.finfo(np.float32).tiny) | (numbers == 0)]  # others are zeros in our code
    model = ModelBuilder()
    narrow = model.op("CAST", [model.input(numbers.shape)], numbers.shape, dtype="bfloat16")
    model.output(model.op("CAST", [narrow], numbers.shape))
    content = model.finish()
    (expected,) = LiteRT(content).outputs(numbers)
    np.testing.assert_array_equal(bfloat16_numbers(bfloat16_bits(numbers)), expected)
    np.testing.assert_array_equal(np.array(load(content, target="cpu", partitioning="all")(numbers)), expected)
