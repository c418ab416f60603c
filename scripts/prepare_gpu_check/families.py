"""Graphs of several operators, for families of kernels and for branches that no operator alone has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from jitdelegate.tflite.write import ModelBuilder
from scripts.gpu_check.bundle import FORM
from scripts.prepare_gpu_check.quantized import litert_feeds
from scripts.prepare_gpu_check.source import LITERT, Feed, Source
from scripts.quantized_models import input_tensors

PRECISIONS = ("float32", "float16")
ARMS = "two arms"


def families() -> Iterator[Source]:
    """The models below, with random values that 16 bits hold exactly."""
    random = np.random.default_rng(0)
    for name, content in (("attention to many keys", attention()), ("spectrum", spectrum()), (ARMS, arms())):
        shapes = [tensor.shape for tensor in input_tensors(content)]
        values = [random.integers(-256, 256, shape).astype(np.float32) / 256 for shape in shapes]
        expected = partial(litert_feeds, content, values)
        yield Source(name, FORM, content, list(map(Feed, values)), expected, LITERT, PRECISIONS)


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
