"""Graphs of several operators, for families of kernels and for branches that no case of an operator has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from jitdelegate.ir.graph import Quant, Tensor
from jitdelegate.tflite.write import ModelBuilder
from scripts.gpu_check.bundle import FORM
from scripts.prepare_gpu_check.forms import UNIT
from scripts.prepare_gpu_check.quantized import PRECISIONS as OF_QUANTIZED
from scripts.prepare_gpu_check.quantized import litert_feeds
from scripts.prepare_gpu_check.source import LITERT, Feed, Source
from scripts.quantized_models import input_tensors
from tests.ops.quantized_models import LstmModel
from tests.ops.test_stablehlo import model_of as scattered

PRECISIONS = ("float32", "float16")
ARMS = "two arms"


def families() -> Iterator[Source]:
    """The models below and others, with random values: floats that 16 bits hold exactly, any bytes, small indices."""
    random = np.random.default_rng(0)
    floats = {
        "attention to many keys": attention(),
        "spectrum": spectrum(),
        ARMS: arms(),
        "windows": scattered("positions of a cache"),
    }
    of_bytes = {"cells of bytes": LstmModel().content(), "depthwise and 1x1 of bytes": separable()}
    for name, content in (floats | of_bytes).items():
        values = [_drawn(random, tensor) for tensor in input_tensors(content)]
        expected = partial(litert_feeds, content, values)
        precisions = OF_QUANTIZED if name in of_bytes else PRECISIONS
        yield Source(name, FORM, content, list(map(Feed, values)), expected, LITERT, precisions)


def _drawn(random: np.random.Generator, tensor: Tensor) -> np.ndarray:
    if tensor.dtype == "float32":
        return random.integers(-256, 256, tensor.shape).astype(np.float32) / 256
    low, high = (-128, 128) if tensor.dtype == "int8" else (0, 4)
    return random.integers(low, high, tensor.shape, np.dtype(tensor.dtype))


def attention(rows: int = 4, keys: int = 2048, width: int = 64) -> bytes:
    """f32[1,rows,width] attends to f32[1,keys,width] twice, keys and values: blocks share out the keys."""
    model = ModelBuilder()
    queries, key, value = (model.input((1, count, width)) for count in (rows, keys, keys))
    scores = model.op("BATCH_MATMUL", [queries, key], (1, rows, keys), options={"adj_y": True})
    weights = model.op("SOFTMAX", [scores], (1, rows, keys), options={"beta": 0.125})
    model.output(model.op("BATCH_MATMUL", [weights, value], (1, rows, width)))
    return model.finish()


def spectrum(rows: int = 8, length: int = 256) -> bytes:
    """f32[rows,1,length] to the magnitudes of its frequencies."""
    model = ModelBuilder()
    shape, lengths = (rows, 1, length // 2 + 1), model.constant(np.array([1, length], np.int32))
    found = model.op("RFFT2D", [model.input((rows, 1, length)), lengths], shape, dtype="complex64")
    model.output(model.op("COMPLEX_ABS", [found], shape))
    return model.finish()


def arms(length: int = 4, shape: tuple[int, int] = (2, 64)) -> bytes:
    """The sum of two chains of Softmaxes of one input, which run side by side."""
    model = ModelBuilder()
    values = model.input(shape)
    ends = [values, values]
    for number in range(2 * length):
        arm = number % 2
        ends[arm] = model.op("SOFTMAX", [ends[arm]], shape, options={"beta": 1.0 + number})
    model.output(model.op("ADD", ends, shape))
    return model.finish()


def separable(size: int = 12, channels: int = 32, outputs: int = 48) -> bytes:
    """i8[1,size,size,channels] -> a 3x3 convolution of each channel, then one of 1x1: i8[1,size,size,outputs]."""
    random, model, quant = np.random.default_rng(0), ModelBuilder(), Quant((0.02,), (-5,))
    value = model.input((1, size, size, channels), "int8", quant=quant)
    for op, kernel, axis in (
        ("DEPTHWISE_CONV_2D", (1, 3, 3, channels), 3),
        ("CONV_2D", (outputs, 1, 1, channels), 0),
    ):
        count = kernel[axis]
        scales, zeros = random.uniform(0.001, 0.01, count), (0,) * count
        weights = random.integers(-127, 128, kernel, np.int8)
        operands = [
            model.constant(weights, quant=Quant(tuple(scales), zeros, axis)),
            model.constant(random.integers(-2000, 2000, count, np.int32), quant=Quant(tuple(0.02 * scales), zeros)),
        ]
        shape, options = (1, size, size, count), {**UNIT, **({"depth_multiplier": 1} if axis else {})}
        value = model.op(op, [value, *operands], shape, dtype="int8", options=options, quant=quant)
    model.output(value)
    return model.finish()
