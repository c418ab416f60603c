"""What XNNPACK takes and what it leaves to LiteRT's own kernels, and that both round as LiteRT does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
import pytest

from jitdelegate.ir.graph import Quant
from jitdelegate.ops import OPS
from jitdelegate.ops.call import OPTION, Call
from jitdelegate.ops.xnnpack import takes
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from scripts.fuzz_quantized import delegated
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors, steps
from scripts.quantized_runs import compared, run_litert, run_ours
from tests.ops.quantized_models import transposed

TIES = 2.0**-4, 2.0**-7, 2.0**-5
"""Scales of data, weights and results whose products often lie halfway between two numbers."""
BARE, ODD_AXIS, FLAT = "bias without parameters", "bias along axis 1", "bias of rank 2"


def quant(scale: float, zero: int = 0, axis: int = 0) -> Quant:
    return Quant((scale,), (zero,), axis)


def convolution(
    op: str = "CONV_2D",
    dtype: str = "int8",
    channels: int = 12,
    bias: str = "",
    data_axis: int = 0,
    filter_axis: int = 0,
    groups: int = 1,
    **options: Any,
) -> bytes:
    """A 3x3 convolution of ties."""
    model, random = ModelBuilder(), np.random.default_rng(0)
    depth = channels if op == "DEPTHWISE_CONV_2D" else 6
    middle = 128 if dtype == "uint8" else 0
    data = model.input((1, 7, 6, depth), dtype, quant=quant(TIES[0], middle + 3, data_axis))
    shape = (1, 3, 3, channels) if op == "DEPTHWISE_CONV_2D" else (channels, 3, 3, depth // groups)
    weights = random.integers(middle - 100, middle + 100, shape).astype(dtype)
    filters = model.constant(weights, quant=quant(TIES[1], middle, filter_axis))
    numbers = random.integers(-2000, 2000, channels).astype(np.int32)
    own = None if bias == BARE else quant(TIES[0] * TIES[1], 0, int(bias == ODD_AXIS))
    sizes = (1, -1) if bias in (FLAT, ODD_AXIS) else (-1,)
    operands = [data, filters, model.constant(numbers.reshape(sizes), quant=own)]
    given = {"padding": "SAME", "stride_h": 1, "stride_w": 1, **options}
    if op == "DEPTHWISE_CONV_2D":
        given["depth_multiplier"] = 1
    out = quant(TIES[2], middle - 5)
    model.output(model.op(op, operands, (1, 7, 6, channels), options=given, dtype=dtype, quant=out))
    return model.finish()


def one(op: str, axis: int, *, dtype: str = "int8", **options: Any) -> bytes:
    """An operator of one or two operands, the first with its scale along an axis."""
    model = ModelBuilder()
    middle, shape = 128 if dtype == "uint8" else 0, (2, 4, 4, 8)
    operands = [model.input(shape, dtype, quant=quant(TIES[0], middle + 3, axis))]
    if op == "LEAKY_RELU":
        options["alpha"] = 0.3
    if op in ("ADD", "SUB", "MUL"):
        operands.append(model.input(shape, dtype, quant=quant(0.03, middle + 1)))
    if op in ("MEAN", "SUM"):
        operands.append(model.constant(np.array([1, 2], np.int32)))
        shape = (shape[0], 1, 1, shape[3])
        options["keep_dims"] = True
    out = None if op == "DEQUANTIZE" else quant(0.07, middle - 5)
    result = "float32" if op == "DEQUANTIZE" else dtype
    model.output(model.op(op, operands, shape, options=options or None, dtype=result, quant=out))
    return model.finish()


def product(data_axis: int = 0, filter_axis: int = 0, zero: int = 0) -> bytes:
    """A BATCH_MATMUL of ties, with scales of one operand along an axis."""
    model, options = ModelBuilder(), {"adj_x": False, "adj_y": False}
    operands = [model.input((3, 6, 7), "int8", quant=quant(TIES[0], 3, data_axis))]
    operands.append(model.input((3, 7, 9), "int8", quant=quant(TIES[1], zero, filter_axis)))
    model.output(model.op("BATCH_MATMUL", operands, (3, 6, 9), options=options, dtype="int8", quant=quant(TIES[2], -5)))
    return model.finish()


CASES: dict[str, tuple[Callable[[], bytes], bool]] = {
    **{f"BATCH_MATMUL, filter along axis {axis}": (lambda axis=axis: product(0, axis), True) for axis in (0, 1, 2)},
    "BATCH_MATMUL, data along axis 2": (lambda: product(2), False),
    "BATCH_MATMUL, filter with a zero point": (lambda: product(0, 0, 4), False),
    "CONV_2D": (convolution, True),
    "CONV_2D, bare bias": (lambda: convolution(bias=BARE), False),
    "CONV_2D, bias of rank 2": (lambda: convolution(bias=FLAT), False),
    "CONV_2D, bias along axis 1": (lambda: convolution(bias=ODD_AXIS), False),
    "CONV_2D, data along axis 3": (lambda: convolution(data_axis=3), False),
    "CONV_2D, filter along axis 2": (lambda: convolution(filter_axis=2), True),
    "CONV_2D uint8": (lambda: convolution(dtype="uint8"), True),
    "CONV_2D uint8, bare bias": (lambda: convolution(dtype="uint8", bias=BARE), False),
    "CONV_2D uint8, filter along axis 2": (lambda: convolution(dtype="uint8", filter_axis=2), False),
    "CONV_2D in groups": (lambda: convolution(groups=2), True),
    "CONV_2D in groups, bare bias": (lambda: convolution(groups=2, bias=BARE), False),
    "DEPTHWISE_CONV_2D": (lambda: convolution("DEPTHWISE_CONV_2D"), True),
    **{
        f"DEPTHWISE_CONV_2D {channels}, bare bias": (
            lambda channels=channels: convolution("DEPTHWISE_CONV_2D", channels=channels, bias=BARE),
            False,
        )
        for channels in (5, 8, 12)
    },
    "DEPTHWISE_CONV_2D uint8, bare bias": (lambda: convolution("DEPTHWISE_CONV_2D", "uint8", bias=BARE), False),
    "TRANSPOSE_CONV 2/2 SAME": (lambda: transposed(2, 2, "SAME"), True),
    "TRANSPOSE_CONV 2/3 SAME": (lambda: transposed(2, 3, "SAME"), False),
    "TRANSPOSE_CONV 2/3 SAME, 4 channels": (lambda: transposed(2, 3, "SAME", 4), False),
    "TRANSPOSE_CONV 2/3 SAME, 8 channels": (lambda: transposed(2, 3, "SAME", 8), False),
    "TRANSPOSE_CONV 2/3 VALID": (lambda: transposed(2, 3, "VALID"), True),
    **{
        f"{op} {dtype} along axis {axis}": (lambda op=op, axis=axis, dtype=dtype: one(op, axis, dtype=dtype), not axis)
        for op in ("ADD", "SUB", "MUL", "MEAN", "SUM", "QUANTIZE", "LEAKY_RELU", "DEQUANTIZE")
        for axis in (0, 3)
        for dtype in ("int8", "uint8")
        if (op, dtype) != ("SUB", "uint8")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_takes_what_litert_delegates_and_rounds_alike(name: str) -> None:
    make, expected = CASES[name]
    content = make()
    graph = read(content).graphs[0]
    (node,) = graph.nodes
    interpreter = litert.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    assert bool(delegated(graph, interpreter)) == expected
    if OPS[node.op].check(graph, node) is None:
        assert takes(Call(graph, node)) == expected
    inputs = list(hostile(input_tensors(content)))
    ran = run_ours(content, inputs, "reference")
    assert not ran.refused
    assert compared(ran.outputs, run_litert(content, inputs), steps(content)).differing == 0


def limited(op: str, dtype: str, zero: int, activation: str, scale: float) -> bytes:
    """All 256 numbers, times 1 or plus 0, then limited."""
    model = ModelBuilder()
    middle = 128 if dtype == "uint8" else 0
    options: dict[str, Any] = {OPTION: activation}
    shape = (1, 16, 16, 1) if op.endswith("POOL_2D") else (16, 16)
    data = model.input(shape, dtype, quant=quant(scale, zero if op.endswith("POOL_2D") else middle))
    operands = [data]
    if op in ("MUL", "ADD"):
        number = middle + (op == "MUL")
        operands.append(
            model.constant(np.full((1,), number, dtype), quant=quant(1.0 if op == "MUL" else scale, middle))
        )
    elif op == "FULLY_CONNECTED":
        operands.append(model.constant((np.eye(16) + middle).astype(dtype), quant=quant(1.0, middle)))
        operands.append(model.constant(np.zeros(16, np.int32), quant=quant(scale)))
    else:
        options |= {"padding": "VALID", "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}
    model.output(model.op(op, operands, shape, options=options, dtype=dtype, quant=quant(scale, zero)))
    return model.finish()


@pytest.mark.parametrize("activation, scale", [("RELU_N1_TO_1", 2.0), ("RELU_N1_TO_1", 2 / 3), ("RELU6", 4.0)])
@pytest.mark.parametrize("dtype, zero", [("int8", -3), ("int8", 2), ("uint8", 100), ("uint8", 3)])
@pytest.mark.parametrize("op", ["MUL", "ADD", "FULLY_CONNECTED", "MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_limits_of_activations_round_as_the_kernel_that_runs_the_node(
    op: str, dtype: str, zero: int, activation: str, scale: float
) -> None:
    content = limited(op, dtype, zero, activation, scale)
    shape = input_tensors(content)[0].shape
    inputs = [[np.arange(256).astype(np.uint8).view(dtype).reshape(shape)]]
    ran = run_ours(content, inputs, "reference")
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs[0][0], run_litert(content, inputs)[0][0])
