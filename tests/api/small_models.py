"""Small models for the tests of the front: one that is compiled, and some that run on LiteRT."""

from __future__ import annotations

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder


def convolution(seed: int = 0, signature: bool = False, open_batch: bool = False) -> bytes:
    """f32[1,8,8,3] -> CONV_2D with RELU6 -> f32[1,4,4,4]; compiled for the CPU."""
    random = np.random.default_rng(seed)
    model = ModelBuilder()
    shape_signature = (-1, 8, 8, 3) if open_batch else None
    image = model.input((1, 8, 8, 3), name="image", shape_signature=shape_signature)
    weights = model.constant(random.standard_normal((4, 3, 3, 3)).astype(np.float32))
    bias = model.constant(random.standard_normal(4).astype(np.float32))
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"}
    result = model.op("CONV_2D", [image, weights, bias], (1, 4, 4, 4), options=options, name="features")
    model.output(result)
    if signature:
        model.signature("serve", {"picture": image}, {"found": result})
    return model.finish()


def halves() -> bytes:
    """f32[1,8,8,3] -> DEPTHWISE_CONV_2D and RELU, whose weights are float16 behind DEQUANTIZE."""
    random = np.random.default_rng(0)
    model = ModelBuilder()
    image = model.input((1, 8, 8, 3), name="image")
    shapes = {"weights": (1, 3, 3, 3), "bias": (3,)}
    stored = [model.constant(random.standard_normal(shape).astype(np.float16), name=n) for n, shape in shapes.items()]
    wide = [model.op("DEQUANTIZE", [half], shape) for half, shape in zip(stored, shapes.values(), strict=True)]
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    model.output(
        model.op("RELU", [model.op("DEPTHWISE_CONV_2D", [image, *wide], (1, 8, 8, 3), options=options)], (1, 8, 8, 3))
    )
    return model.finish()


def flattened() -> bytes:
    """f32[?,4,4,2] -> RESHAPE to [batch, -1], the batch taken from SHAPE -> FULLY_CONNECTED -> f32[?,3]; compiled."""
    random = np.random.default_rng(0)
    model = ModelBuilder()
    image = model.input((1, 4, 4, 2), name="image", shape_signature=(-1, 4, 4, 2))
    shape = model.op("SHAPE", [image], (4,), dtype="int32", options={"out_type": "INT32"})
    ends = [model.constant(np.array([value], np.int32)) for value in (0, 1, 1)]
    batch = model.op("STRIDED_SLICE", [shape, *ends], (), dtype="int32", options={"shrink_axis_mask": 1})
    sizes = [batch, model.constant(np.array(-1, np.int32))]
    asked = model.op("PACK", sizes, (2,), dtype="int32", options={"values_count": 2, "axis": 0})
    rows = model.op("RESHAPE", [image, asked], (1, 32))
    weights = model.constant(random.standard_normal((3, 32)).astype(np.float32))
    model.output(model.op("FULLY_CONNECTED", [rows, weights, None], (1, 3), name="scores"))
    return model.finish()


def rows_of_a_dozen() -> bytes:
    """f32[?,?] -> RESHAPE to rows of 12 -> their RELU; the single number that the file says is no row."""
    model = ModelBuilder()
    value = model.input((1, 1), name="value", shape_signature=(-1, -1))
    asked = model.constant(np.array([-1, 12], np.int32))
    model.output(model.op("RELU", [model.op("RESHAPE", [value, asked], (1, 12))], (1, 12), name="rows"))
    return model.finish()


def two_signatures() -> bytes:
    """Signature "double" on the first subgraph, "triple" on the second: f32[?,2] times 2 or 3; both compiled."""
    model = ModelBuilder()
    second = model.subgraph("second")
    for key, graph, factor in (("double", model, 2), ("triple", second, 3)):
        value = graph.input((1, 2), name=f"{key} value", shape_signature=(-1, 2))
        factors = graph.constant(np.full(2, factor, np.float32))
        result = graph.op("MUL", [value, factors], (1, 2), name=f"{key} result")
        graph.output(result)
        model.signature(key, {"x": value}, {"y": result}, 0 if graph is model else 1)
    return model.finish()


def two_outputs(dtype: str = "float32") -> bytes:
    """dtype[2,3], dtype[2,3] -> their sum and product; compiled for the CPU."""
    model = ModelBuilder()
    left, right = model.input((2, 3), dtype, name="left"), model.input((2, 3), dtype, name="right")
    model.output(model.op("ADD", [left, right], (2, 3), dtype=dtype, name="sum"))
    model.output(model.op("MUL", [left, right], (2, 3), dtype=dtype, name="product"))
    return model.finish()


def uncompiled() -> bytes:
    """f32[4] -> FAKE_QUANT: whole numbers from 0 to 255; nobody compiles that, so it runs on LiteRT."""
    model = ModelBuilder()
    options = {"min": 0.0, "max": 255.0, "num_bits": 8}
    model.output(model.op("FAKE_QUANT", [model.input((4,), name="value")], (4,), options=options, name="rounded"))
    return model.finish()


def moved(dtype: str) -> bytes:
    """[2,3] of any type -> TRANSPOSE -> [3,2]; compiled for the CPU."""
    model = ModelBuilder()
    order = model.constant(np.array([1, 0], np.int32))
    model.output(model.op("TRANSPOSE", [model.input((2, 3), dtype, name="value"), order], (3, 2), dtype=dtype))
    return model.finish()


def integers() -> bytes:
    """i32[4], i32[4] -> their sum; compiled for the CPU."""
    model = ModelBuilder()
    left, right = model.input((4,), "int32", name="left"), model.input((4,), "int32", name="right")
    model.output(model.op("ADD", [left, right], (4,), dtype="int32", name="sum"))
    return model.finish()


def quantized() -> bytes:
    """f32[1,4] -> QUANTIZE -> i8[1,4], with scale and zero point."""
    model = ModelBuilder()
    value = model.input((1, 4), name="value")
    model.output(model.op("QUANTIZE", [value], (1, 4), dtype="int8", name="stored", quant=Quant((0.5,), (3,))))
    return model.finish()


def quantized_by_channel() -> bytes:
    """f32[1,4] -> QUANTIZE -> i8[1,4], with a scale for each of the four; nobody compiles that."""
    model, quant = ModelBuilder(), Quant((0.5, 1.0, 2.0, 4.0), (0, 0, 0, 0), axis=1)
    model.output(model.op("QUANTIZE", [model.input((1, 4))], (1, 4), dtype="int8", name="stored", quant=quant))
    return model.finish()


def integers_and_floats(dtype: str, *, open_batch: bool = True) -> bytes:
    """[?,5,5,4] of `dtype` -> CONV_2D, ADD, LOGISTIC, DEQUANTIZE, TANH, QUANTIZE, RESHAPE; three outputs of them."""
    dice, model, image = np.random.default_rng(0), ModelBuilder(), (1, 5, 5, 6)
    middle = 128 if dtype == "uint8" else 0

    def op(name: str, inputs: list[int | None], scale: float, zero: int, **options: object) -> int:
        quant = Quant((scale,), (zero + middle,)) if scale else None
        shape = (1, 150) if name == "RESHAPE" else image
        return model.op(name, inputs, shape, dtype=dtype if scale else "float32", quant=quant, options=options)

    signature = (-1, 5, 5, 4) if open_batch else None
    x = model.input((1, 5, 5, 4), dtype, quant=Quant((0.05,), (3 + middle,)), shape_signature=signature, name="x")
    by_channel = Quant(tuple(dice.uniform(0.001, 0.01, 6)), (0,) * 6)
    filters = dice.integers(-127, 128, (6, 3, 3, 4))
    if dtype == "uint8":
        by_channel, filters = Quant((0.004,), (120,)), filters + 127
    weights = model.constant(filters.astype(dtype), quant=by_channel)
    bias = model.constant(
        dice.integers(-999, 999, 6).astype(np.int32),
        quant=Quant(tuple(0.05 * each for each in by_channel.scales), (0,) * len(by_channel.scales)),
    )
    strides = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    found = op("CONV_2D", [x, weights, bias], 0.1, -5, **strides, fused_activation_function="RELU")
    total = op("ADD", [found, found], 0.2, 7)
    soft = op("TANH", [op("DEQUANTIZE", [op("LOGISTIC", [total], 1 / 256, -128)], 0.0, 0)], 0.0, 0)
    stored = op("QUANTIZE", [soft], 1 / 128, 0)
    rows = op("RESHAPE", [stored, model.constant(np.array([-1, 150], np.int32))], 1 / 128, 0, new_shape=[-1, 150])
    model.output(rows, total, soft)
    return model.finish()


def custom() -> bytes:
    """A custom operator that nobody has."""
    model = ModelBuilder()
    value, result = model.input((1,), name="value"), model.tensor((1,), name="result")
    model.node("Nonesuch", [value], [result], custom_options=b"")
    model.output(result)
    return model.finish()


def narrow_state(state: str = "int8", time: str = "int16", data: str = "int8") -> bytes:
    """An SVDF of two filters over three steps, whose state and weights over time are of these types."""
    model, quant = ModelBuilder(), Quant((0.1,), (0,))
    value = model.input((1, 4), data, name="value", quant=quant if data == "int8" else None)
    feature = model.constant(np.arange(-4, 4, dtype=np.int8).reshape(2, 4), quant=quant)
    weights = model.constant(np.array([[1, 2, 3], [-1, 5, 1]], time), name="time", quant=quant)
    bias = model.constant(
        np.zeros(2, np.int32 if data == "int8" else np.float32), quant=quant if data == "int8" else None
    )
    kept = model.tensor((1, 6), state, name="state", quant=quant, is_variable=True)
    options = {"rank": 1, "fused_activation_function": "RELU"}
    model.output(
        model.op("SVDF", [value, feature, weights, bias, kept], (1, 2), dtype=data, quant=quant, options=options)
    )
    return model.finish()
