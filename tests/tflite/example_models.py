"""Small models for tests, built with the project's writer."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.graph import DimensionMetadata, Quant, Sparsity
from jitdelegate.tflite.write import ModelBuilder

CONV_OPTIONS = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"}


def convolution(external: bool = False) -> bytes:
    """CONV_2D, ADD and RESHAPE of f32[1,8,8,3]; `external` keeps the weights behind the FlatBuffer."""
    model = ModelBuilder()
    random = np.random.default_rng(1)
    image = model.input((1, 8, 8, 3), name="image")
    weights = model.constant(random.normal(size=(4, 3, 3, 3)).astype(np.float32), name="weights", external=external)
    bias = model.constant(random.normal(size=4).astype(np.float32), name="bias")
    conv = model.op("CONV_2D", [image, weights, bias], (1, 4, 4, 4), options=CONV_OPTIONS, name="conv")
    total = model.op("ADD", [conv, bias], (1, 4, 4, 4), name="sum")
    shape = model.constant(np.array([1, 64], np.int32), name="shape")
    flat = model.op("RESHAPE", [total, shape], (1, 64), options={"new_shape": (1, 64)}, name="flat")
    model.output(flat)
    model.signature("serving_default", {"image": image}, {"flat": flat})
    return model.finish()


def sparse_matrix() -> tuple[np.ndarray, Sparsity]:
    """[[0, 1, 0, 2], [0, 0, 3, 0]] as stored values and as compressed rows."""
    rows = DimensionMetadata(False, dense_size=2)
    columns = DimensionMetadata(True, segments=(0, 2, 3), indices=(1, 3, 2))
    return np.array([1, 2, 3], np.float32), Sparsity((0, 1), (), (rows, columns))


def everything() -> bytes:
    """A model with every kind of thing that the reader knows; not meant to be run."""
    model = ModelBuilder(description="everything")
    x = model.input((1, 4), name="x", shape_signature=(-1, 4))
    channels = Quant((0.5, 0.25), (0, 0), axis=0, minimum=(-1.0,), maximum=(1.0,))
    blocks = Quant((0.5, 2.0, 1.0, 0.25), (0, 0, 0, 0), axis=0, block_size=2)
    weights = model.constant(np.arange(8, dtype=np.int8).reshape(2, 4), name="weights", quant=channels)
    halves = model.constant(np.arange(2, dtype=np.float16), name="halves")
    model.constant(np.arange(4, dtype=np.uint8), dtype="int4", shape=(2, 4), name="packed", quant=blocks)
    values, rows = sparse_matrix()
    stored = model.constant(values, shape=(2, 4), name="stored", sparsity=rows)
    dense = model.op("DENSIFY", [stored], (2, 4), name="dense")
    bias = model.op("DEQUANTIZE", [halves], (2,), name="bias")
    y = model.op("FULLY_CONNECTED", [x, weights, bias], (1, 2), name="y", version=3)
    z = model.op("FULLY_CONNECTED", [x, dense, None], (1, 2), name="z")
    state = model.variable((1, 2), name="state")
    parts = [model.tensor((1, 1)), model.tensor((1, 1))]
    axis = model.constant(np.array(1, np.int32), name="axis")
    model.node("SPLIT", [axis, y], parts, options={"num_splits": 2})
    model.node("Custom", [z, state, *parts], [model.tensor((1, 2), name="custom")], custom_options=b"\x01\x02")
    flag = model.op("LESS", [parts[0], parts[1]], (1, 1), dtype="bool")
    ends = model.op("IF", [flag, y], (1, 2), options={"then_subgraph_index": 1, "else_subgraph_index": 1})
    model.output(ends, z)
    branch = model.subgraph("branch")
    inside = branch.input((1, 2))
    branch.output(branch.op("RELU", [inside], (1, 2)))
    model.signature("serve", {"x": x}, {"y": ends, "z": z})
    model.signature("branch", {"a": 0}, {"b": 1}, graph=1)
    model.metadata("note", b"some bytes")
    return model.finish()
