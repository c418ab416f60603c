"""The memory that a compilation takes at most, counted in multiples of the model's file."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import jitdelegate
from jitdelegate.ir.graph import Numbers, Quant
from jitdelegate.tflite.write import ModelBuilder

BLOCK = 32


def product(rows: int, depth: int) -> bytes:
    """f32[1, depth] -> its products with a matrix of int4 in blocks."""
    model, random = ModelBuilder(), np.random.default_rng(0)
    packed = random.integers(0, 256, rows * depth // 2).astype(np.uint8)
    scales = random.uniform(0.01, 0.02, rows * depth // BLOCK).astype(np.float16)
    matrix = model.constant(packed, quant=Quant(Numbers(scales), (0,), 0, BLOCK), dtype="int4", shape=(rows, depth))
    data = model.input((1, depth))
    model.output(model.op("FULLY_CONNECTED", [data, matrix, -1], (1, rows), options={"keep_num_dims": False}))
    return model.finish()


@pytest.mark.parametrize("features", ["x86-64-v3", ""])
def test_weights_of_int4_in_blocks_are_never_floats_while_they_are_compiled(features: str) -> None:
    """Floats alone would take seven times the file, and the scales as Python numbers three times."""
    content = product(6000, 1024)
    options = {"cpu_features": features} if features else {}
    jitdelegate.load(product(64, 64), serialization_dir=False, target="cpu", **options).close()  # imports the compiler
    tracemalloc.start()
    try:
        model = jitdelegate.load(content, serialization_dir=False, target="cpu", **options)
        _, peak = tracemalloc.get_traced_memory()
        model.close()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(content)
