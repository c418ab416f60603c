"""Small models about which an analysis has something to say."""

from __future__ import annotations

import numpy as np

from jitdelegate.tflite.write import ModelBuilder

SIDE, CHANNELS = 80, 64
ELEMENTS = SIDE * SIDE * CHANNELS
ROUNDING = {"min": 0.0, "max": 255.0, "num_bits": 8}


def convolved(model: ModelBuilder, value: int, shape: tuple[int, ...], outputs: int, name: str = "") -> int:
    """A convolution of three by three pixels."""
    weights = model.constant(np.full((outputs, 3, 3, shape[3]), 0.001, np.float32))
    bias = model.constant(np.zeros(outputs, np.float32))
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    return model.op("CONV_2D", [value, weights, bias], (*shape[:3], outputs), options=options, name=name)


def in_partitions() -> bytes:
    """CONV_2D, RELU, CONV_2D: so much work that models of their own cost little beside it."""
    model, shape = ModelBuilder(), (1, SIDE, SIDE, CHANNELS)
    first = convolved(model, model.input(shape, name="image"), shape, CHANNELS)
    positive = model.op("RELU", [first], shape, name="positive")
    model.output(convolved(model, positive, shape, CHANNELS, "features"))
    return model.finish()


def loop() -> bytes:
    """The magnitudes of f32[2,3] are halved until a counter reaches the input's value."""
    model = ModelBuilder()
    condition, body = model.subgraph("condition"), model.subgraph("body")
    limit, value = model.input((), "int32", name="limit"), model.input((2, 3), name="value")
    magnitude = model.op("ABS", [value], (2, 3))
    start = model.constant(np.int32(0))
    results = [model.tensor(shape, dtype) for shape, dtype in (((), "int32"), ((), "int32"), ((2, 3), "float32"))]
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    model.node("WHILE", [start, limit, magnitude], results, options=options)
    model.output(results[2])
    counter, limit, value = (condition.input(*each) for each in (((), "int32"), ((), "int32"), ((2, 3), "float32")))
    condition.output(condition.op("LESS", [counter, limit], (), dtype="bool"))
    counter, limit, value = (body.input(*each) for each in (((), "int32"), ((), "int32"), ((2, 3), "float32")))
    body.output(body.op("ADD", [counter, body.constant(np.int32(1))], (), dtype="int32"), limit)
    body.output(body.op("MUL", [value, body.constant(np.float32(0.5))], (2, 3)))
    return model.finish()


def chain(*ops: str) -> bytes:
    """f32[2,3] through operators one after another."""
    model = ModelBuilder()
    value = model.input((2, 3), name="value")
    for op in ops:
        value = model.op(op, [value], (2, 3), options=ROUNDING if op == "FAKE_QUANT" else None)
    model.output(value)
    return model.finish()


def behind_different_values() -> bytes:
    """f32[6] -> UNIQUE -> RELU -> ABS, of as many elements as the values differ."""
    model = ModelBuilder()
    found, places = model.tensor((1,)), model.tensor((1,), "int32")
    model.node("UNIQUE", [model.input((6,), name="value")], [found, places], options={"idx_out_type": "INT32"})
    model.output(model.op("ABS", [model.op("RELU", [found], (1,))], (1,)))
    return model.finish()


def moved_between() -> bytes:
    """RELU, TRANSPOSE, RELU."""
    model = ModelBuilder()
    first = model.op("RELU", [model.input((2, 3), name="value")], (2, 3))
    order = model.constant(np.array([1, 0], np.int32))
    turned = model.op("TRANSPOSE", [first, order], (3, 2))
    model.output(model.op("RELU", [turned], (3, 2)))
    return model.finish()


def named(name: str) -> bytes:
    """A FAKE_QUANT before an ADD whose tensors, subgraph and signature have this name."""
    model = ModelBuilder(name, name)
    value = model.input((2, 3), name=name, shape_signature=(-1, 3))
    rounded = model.op("FAKE_QUANT", [value], (2, 3), options=ROUNDING, name=name + "2")
    result = model.op("ADD", [rounded, value], (2, 3), name=name + "3")
    model.output(result)
    model.signature(name, {name: value}, {name: result})
    return model.finish()


def dead() -> bytes:
    """FAKE_QUANT, whose result is the output, beside one that nobody reads."""
    model = ModelBuilder()
    value = model.input((2, 3), name="value")
    model.op("FAKE_QUANT", [value], (2, 3), options=ROUNDING, name="unread")
    model.output(model.op("FAKE_QUANT", [value], (2, 3), options=ROUNDING, name="read"))
    return model.finish()


def narrow() -> bytes:
    """f32[1,64,64,3] -> CONV_2D to 5 channels -> CONV_2D to 6."""
    model = ModelBuilder()
    first = convolved(model, model.input((1, 64, 64, 3), name="image"), (1, 64, 64, 3), 5)
    model.output(convolved(model, first, (1, 64, 64, 5), 6))
    return model.finish()


def asked_shape() -> bytes:
    """RESHAPE to a shape that an input names."""
    model = ModelBuilder()
    value, shape = model.input((2, 3), name="value"), model.input((2,), "int32", name="shape")
    model.output(model.op("RESHAPE", [value, shape], (3, 2)))
    return model.finish()


def filled() -> bytes:
    """A FILL whose sizes are calculated from numbers that the model gets."""
    model = ModelBuilder()
    sizes = model.op("CAST", [model.input((2,), name="sizes")], (2,), dtype="int32")
    model.output(model.op("FILL", [sizes, model.constant(np.float32(1))], (1, 1)))
    return model.finish()


def unpacked_weights() -> bytes:
    """A DEQUANTIZE of float16 weights, and the FULLY_CONNECTED that reads them."""
    model = ModelBuilder()
    value = model.input((1, 4), name="value")
    weights = model.op("DEQUANTIZE", [model.constant(np.ones((3, 4), np.float16))], (3, 4), name="weights")
    model.output(model.op("FULLY_CONNECTED", [value, weights, None], (1, 3), name="scores"))
    return model.finish()


def reshaped() -> bytes:
    """RELU, RESHAPE to the same shape, SOFTMAX."""
    model = ModelBuilder()
    first = model.op("RELU", [model.input((2, 6), name="value")], (2, 6))
    shape = model.constant(np.array([2, 6], np.int32))
    turned = model.op("RESHAPE", [first, shape], (2, 6))
    model.output(model.op("SOFTMAX", [turned], (2, 6), options={"beta": 1.0}))
    return model.finish()
