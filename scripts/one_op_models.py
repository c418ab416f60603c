"""Small quantized models of one operator each, with random values of everything that LiteRT's rounding depends on.

    model = one_op_model("CONV_2D", seed=3)

Types, shapes, options, zero points (often at the ends of the range) and scales: half of the models have powers of two
for scales, so that many results lie halfway between two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.call import OPTION
from scripts.one_op_moves import MOVES
from scripts.quantized_draw import ALL, BYTES, Draw, Shape


@dataclass(frozen=True, slots=True)
class OneOp:
    """A model of one operator.

    Attributes:
        types: of its activations.
        what: how it was drawn.
    """

    op: str
    types: str
    what: str
    content: bytes


def window(draw: Draw, shape: Shape, kernel: tuple[int, int], dilated: bool) -> tuple[dict[str, Any], tuple[int, int]]:
    """Options of a window, and the height and width of its result."""
    stride = draw.pick("stride", [(1, 1), (1, 1), (2, 2), (1, 2)])
    dilation = draw.choice([(1, 1), (1, 1), (2, 2)]) if dilated and stride == (1, 1) else (1, 1)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    fits = all(each <= size for each, size in zip(reach, shape[1:3], strict=True))
    padding = draw.pick("padding", ["SAME", "VALID"] if fits else ["SAME"])
    sizes = [
        -(-size // step) if padding == "SAME" else (size - each) // step + 1
        for size, step, each in zip(shape[1:3], stride, reach, strict=True)
    ]
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    if dilated:
        options |= {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
    return options, (sizes[0], sizes[1])


def conv_2d(draw: Draw) -> None:
    groups = draw.pick("groups", [1, 1, 1, 2])
    shape = draw.image(groups)
    kernel = draw.pick("kernel", [(1, 1), (3, 3), (2, 3), (5, 1)])
    channels = groups * draw.choice([1, 3, 8, 19])
    options, sizes = window(draw, shape, kernel, dilated=True)
    quant = draw.quant()
    filters = (channels, *kernel, shape[3] // groups)
    own = draw.weights(filters, 0, channels, quant)
    out = draw.product_quant(own.scales, math.prod(filters[1:]))
    options |= {OPTION: draw.activation(), **own.options}
    operands = [draw.data(shape, quant), own.filter, own.bias]
    draw.result("CONV_2D", operands, (shape[0], *sizes, channels), out, **options)


def depthwise(draw: Draw) -> None:
    shape = draw.image()
    multiplier = draw.pick("multiplier", [1, 1, 1, 2, 3])
    kernel = draw.pick("kernel", [(3, 3), (3, 3), (5, 5), (2, 1), (1, 1)])
    channels = shape[3] * multiplier
    options, sizes = window(draw, shape, kernel, dilated=True)
    quant = draw.quant()
    own = draw.weights((1, *kernel, channels), 3, channels, quant, ("int64",))
    options |= {OPTION: draw.activation(), "depth_multiplier": multiplier}
    out = draw.product_quant(own.scales, math.prod(kernel))
    operands = [draw.data(shape, quant), own.filter, own.bias]
    draw.result("DEPTHWISE_CONV_2D", operands, (shape[0], *sizes, channels), out, **options)


def transpose_conv(draw: Draw) -> None:
    shape = draw.image()
    channels = draw.choice([1, 2, 3, 8])
    kernel = draw.pick("kernel", [(2, 2), (3, 3), (4, 4), (1, 1), (2, 3)])
    strides = draw.pick("stride", [(1, 1), (2, 2), (2, 2), (3, 3), (1, 2)])
    padding = draw.pick("padding", ["SAME", "VALID"])
    sizes = [
        size * stride if padding == "SAME" else (size - 1) * stride + max(edge, stride)
        for size, edge, stride in zip(shape[1:3], kernel, strides, strict=True)
    ]
    out_shape = (shape[0], *sizes, channels)
    quant = draw.quant()
    own = draw.weights((channels, *kernel, shape[3]), 0, channels, quant)
    out = draw.product_quant(own.scales, shape[3] * max(1, math.prod(kernel) // math.prod(strides)))
    operands = [draw.integers(out_shape), own.filter, draw.data(shape, quant)]
    if draw.pick("bias given", [True, False]) or own.options:
        operands.append(own.bias)
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1], **own.options}
    draw.result("TRANSPOSE_CONV", operands, out_shape, out, **options)


def fully_connected(draw: Draw) -> None:
    shape, units = draw.rows(), draw.choice([1, 3, 40, 67])
    keep = len(shape) > 2 or draw.pick("keep_num_dims", [False, True])
    quant = draw.quant()
    own = draw.weights((units, shape[-1]), 0, units, quant, words=("int8", "int8", "int16"))
    out = draw.product_quant(own.scales, shape[-1])
    operands = [draw.data(shape, quant), own.filter]
    if draw.pick("bias given", [True, True, False]) or own.options:
        operands.append(own.bias)
    options = {OPTION: draw.activation(), "keep_num_dims": keep, **own.options}
    draw.result("FULLY_CONNECTED", operands, (*shape[:-1], units), out, **options)


def batch_matmul(draw: Draw) -> None:
    rows, depth, columns = draw.size(), draw.choice([1, 7, 32, 300]), draw.size()
    lead = draw.choice([(1,), (3,), (2, 2)])
    adj_x, adj_y = draw.pick("adj_x", [False, True]), draw.pick("adj_y", [False, True])
    left, right = draw.quant(), draw.quant()
    a = draw.data((*lead, *((depth, rows) if adj_x else (rows, depth))), left)
    b = draw.operand((*lead, *((columns, depth) if adj_y else (depth, columns))), right)
    scale = left.scales[0] * right.scales[0] * (73 if draw.dtype != "int16" else 19000) * math.sqrt(depth)
    out = Quant((draw.scale(math.log2(scale)),), (draw.zero(),))
    draw.result("BATCH_MATMUL", [a, b], (*lead, rows, columns), out, adj_x=adj_x, adj_y=adj_y)


def broadcast_pair(draw: Draw) -> tuple[Shape, Shape, Shape]:
    """Shapes of two operands and of what they make together."""
    full = draw.shape(1, 2, 3, 4, 4, 4, most=12)
    kind = draw.pick("broadcast", ["none", "none", "scalar", "channels", "row", "mixed", "both"])
    if kind == "none":
        other = full
    elif kind == "scalar":
        other = draw.choice([(), (1,)])
    elif kind == "channels":
        other = full[-1:]
    elif kind == "row":
        other = (*full[:-1], 1)
    else:
        other = tuple(size if draw.chance(2) else 1 for size in full)
    first = full
    if kind == "both":
        first = tuple(size if draw.chance(2) else 1 for size in full)
        full = tuple(np.broadcast_shapes(first, other))
    pair = (first, other) if draw.chance(2) else (other, first)
    return *pair, full


def arithmetic(op: str) -> Callable[[Draw], None]:
    """ADD, SUB, MUL, SQUARED_DIFFERENCE."""

    def make(draw: Draw) -> None:
        a, b, shape = broadcast_pair(draw)
        wide = draw.pick("scales", ["near", "near", "apart"]) == "apart"
        left, right = draw.quant(), draw.quant(-5 + (wide and draw.choice([-9, -4, 4, 9])))
        exponent = 1 + math.log2(max(left.scales[0], right.scales[0]))
        if op in ("MUL", "SQUARED_DIFFERENCE"):
            exponent = math.log2(left.scales[0] * right.scales[0]) + (6 if draw.dtype != "int16" else 14)
        out = draw.quant(exponent)
        if draw.dtype == "int16" and op in ("ADD", "SUB") and draw.pick("pot_scale_int16", [False, True, False]):
            powers = [2.0 ** draw.choice([-12, -11]), 2.0**-12]
            left, right, out = (Quant((each,), (0,)) for each in (*powers, 2.0**-11))
            pot = True
        else:
            pot = False
        first = draw.data(a, left)
        second = draw.operand(b, right)
        options = {} if op == "SQUARED_DIFFERENCE" else {OPTION: draw.activation()}
        if op in ("ADD", "SUB"):
            options["pot_scale_int16"] = pot
        draw.result(op, [first, second], shape, out, **options)

    return make


def division(op: str) -> Callable[[Draw], None]:
    """DIV, FLOOR_DIV, FLOOR_MOD; most divisors are constants that are not 0, at which LiteRT stops."""

    def make(draw: Draw) -> None:
        a, b, shape = broadcast_pair(draw)
        left, right = draw.quant(), draw.quant()
        ratio = math.log2(left.scales[0] / right.scales[0])
        out = draw.quant(ratio + draw.pick("step", [-5, -2, 0, 3, -12, 16]))
        if draw.chance(5):
            divisor = draw.data(b, right)
        else:
            codes, zero = draw.codes(b), right.zero_points[0] if op == "DIV" else 0
            divisor = draw.constant(np.where(codes == zero, zero ^ 1, codes).astype(draw.dtype), quant=right)
        options = {OPTION: draw.activation()} if op == "DIV" else {}
        draw.result(op, [draw.data(a, left), divisor], shape, out, **options)

    return make


def selection(op: str) -> Callable[[Draw], None]:
    """MAXIMUM, MINIMUM: both operands and the result have the same parameters, or all have their own."""

    def make(draw: Draw) -> None:
        a, b, shape = broadcast_pair(draw)
        quant = draw.quant()
        right, out = (quant, quant) if draw.pick("same", [True, True, False]) else (draw.quant(), draw.quant())
        draw.result(op, [draw.data(a, quant), draw.operand(b, right)], shape, out)

    return make


def comparison(op: str) -> Callable[[Draw], None]:
    """EQUAL and so on, of values with different parameters."""

    def make(draw: Draw) -> None:
        a, b, shape = broadcast_pair(draw)
        left = draw.quant()
        right = draw.choice([left, draw.quant()])
        draw.result(op, [draw.data(a, left), draw.operand(b, right)], shape, None, "bool")

    return make


def unary(op: str, exponent: float | None = None, **fixed: Quant) -> Callable[[Draw], None]:
    """One operand; `fixed` are the result's parameters by type, where the operator has its own."""

    def make(draw: Draw) -> None:
        shape = draw.shape(1, 2, 4, most=13)
        quant = draw.quant(-12 if op == "EXP" and draw.dtype == "int16" else -5)
        out = fixed.get(draw.dtype) or draw.quant(math.log2(quant.scales[0]) if exponent is None else exponent)
        options = {}
        if op in ("RSQRT", "SQRT"):
            quant = Quant(quant.scales, (-128,))  # LiteRT refuses negative numbers
        if op == "LEAKY_RELU":
            options = {"alpha": float(draw.pick("alpha", [0.5, 0.1, 0.25, -0.5, 2.0]))}
        if op == "GELU":
            options = {"approximate": bool(draw.pick("approximate", [False, True]))}
        if op == "SOFTMAX":
            options = {"beta": float(draw.pick("beta", [1.0, 0.5, 3.0]))}
        draw.result(op, [draw.data(shape, quant)], shape, out, **options)

    return make


def prelu(draw: Draw) -> None:
    shape = draw.image()
    quant, slopes = draw.quant(), draw.quant(-6)
    alpha_shape = draw.pick("alpha shape", [(1, 1, shape[3]), shape[1:], (1, 1, 1)])
    alpha = draw.constant(draw.codes(alpha_shape), quant=slopes)
    draw.result("PRELU", [draw.data(shape, quant), alpha], shape, draw.quant(math.log2(quant.scales[0])))


SOURCES = {
    "int8": ("float32", "int8", "int8", "uint8", "int16", "int32"),
    "uint8": ("float32", "uint8", "uint8", "int8"),
    "int16": ("float32", "int16", "int16", "int8", "uint8", "int32"),
}
"""Result of a QUANTIZE -> what LiteRT has one from."""


def quantize(draw: Draw) -> None:
    """From float32, or from one integer type to another."""
    shape = draw.shape(1, 2, 4, most=13)
    source = draw.pick("from", SOURCES[draw.dtype])
    out = draw.quant(-5 if source == "float32" else draw.choice([-5, -4, -6, -13 if draw.dtype == "int16" else -5]))
    quant = None if source == "float32" else draw.quant(-5, source)
    if source == "int32":
        quant = Quant((draw.scale(-8),), (0,))
    draw.result("QUANTIZE", [draw.data(shape, quant, source)], shape, out)


def dequantize(draw: Draw) -> None:
    shape = draw.shape(1, 2, 4, most=13)
    draw.result("DEQUANTIZE", [draw.data(shape, draw.quant())], shape, None, "float32")


def reduction(op: str) -> Callable[[Draw], None]:
    """MEAN, SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN over any axes."""

    def make(draw: Draw) -> None:
        shape = draw.shape(2, 3, 4, 4, 4, most=4 if op == "REDUCE_PROD" else 12)
        axes = draw.choice([(1, 2), (1, 2), (2, 1), (-1,), (0,), (1,), (2,), (0, 1, 2, 3), (-2, -3)])
        axes = tuple(axis for axis in axes if -len(shape) <= axis < len(shape)) or (0,)
        keep = draw.pick("keep_dims", [False, True])
        draw.say("axes", f"{axes} of rank {len(shape)}")
        done = {axis % len(shape) for axis in axes}
        out_shape = tuple(1 if axis in done else size for axis, size in enumerate(shape) if keep or axis not in done)
        bits = ELEMENT_TYPES[draw.dtype].bits - 1
        quant = draw.quant(-bits) if op == "REDUCE_PROD" else draw.quant()
        count = math.prod(shape[axis] for axis in done)
        exponent = math.log2(quant.scales[0]) + (math.log2(count) / 2 if op == "SUM" else 0)
        if op == "REDUCE_PROD":
            least = count * (exponent + bits - (28 - bits) / max(count - 1, 1)) + 2
            exponent = min(max(count * (exponent + bits) - bits - draw.choice([0, 1, 3]), least, -50), 20)
        if op == "MEAN" and draw.chance(8):  # the mean of what lies around it, in steps of its own tiny range
            exponent -= draw.size(30)
        out = quant if op in ("REDUCE_MAX", "REDUCE_MIN") or draw.chance(4) else draw.quant(exponent)
        operands = [draw.data(shape, quant), draw.integers(axes)]
        draw.result(op, operands, out_shape, out, keep_dims=keep)

    return make


def pool(op: str) -> Callable[[Draw], None]:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""

    def make(draw: Draw) -> None:
        shape = draw.image()
        kernel = draw.pick("kernel", [(2, 2), (3, 3), (1, 1), (5, 2), (shape[1], shape[2])])
        options, sizes = window(draw, shape, kernel, dilated=False)
        quant = draw.quant()
        options |= {OPTION: draw.activation(), "filter_height": kernel[0], "filter_width": kernel[1]}
        draw.result(op, [draw.data(shape, quant)], (shape[0], *sizes, shape[3]), quant, **options)

    return make


def resize(op: str) -> Callable[[Draw], None]:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

    def make(draw: Draw) -> None:
        shape = draw.image()
        sizes = draw.pick("factor", [(2, 2), (3, 1), (0.5, 0.5), (1.7, 0.6)])
        out = tuple(max(1, int(size * factor)) for size, factor in zip(shape[1:3], sizes, strict=True))
        align, half = draw.pick("align_corners, half_pixel_centers", [(False, False), (True, False), (False, True)])
        quant = draw.quant()
        operands = [draw.data(shape, quant), draw.integers(out)]
        options = {"align_corners": align, "half_pixel_centers": half}
        draw.result(op, operands, (shape[0], *out, shape[3]), quant, **options)

    return make


def arg_reduction(op: str) -> Callable[[Draw], None]:
    """ARG_MAX and ARG_MIN."""

    def make(draw: Draw) -> None:
        shape = draw.shape(3)
        axis = int(draw.random.integers(3))
        place = draw.integers(axis)
        out = (*shape[:axis], *shape[axis + 1 :])
        draw.result(op, [draw.data(shape, draw.quant()), place], out, None, "int32", output_type="INT32")

    return make


def _fixed(byte: tuple[float, int, int], word: float) -> dict[str, Quant]:
    """Parameters of a result: scale, zero points of int8 and uint8; the scale of int16."""
    scale, low, high = byte
    return {"int8": Quant((scale,), (low,)), "uint8": Quant((scale,), (high,)), "int16": Quant((word,), (0,))}


LOGISTIC = _fixed((1 / 256, -128, 0), 1 / 32768)
TANH = _fixed((1 / 128, 0, 128), 1 / 32768)
L2 = _fixed((1 / 128, 0, 128), 1 / 32768)
LOG_SOFTMAX = _fixed((16 / 256, 127, 255), 1 / 32768)

MAKERS: Mapping[str, tuple[Sequence[str], Callable[[Draw], None]]] = {
    "ABS": (("int8", "int16"), unary("ABS")),
    "ADD": (ALL, arithmetic("ADD")),
    "ARG_MAX": (BYTES, arg_reduction("ARG_MAX")),
    "ARG_MIN": (BYTES, arg_reduction("ARG_MIN")),
    "AVERAGE_POOL_2D": (ALL, pool("AVERAGE_POOL_2D")),
    "BATCH_MATMUL": (("int8", "int16"), batch_matmul),
    "CONV_2D": (ALL, conv_2d),
    "DEPTHWISE_CONV_2D": (ALL, depthwise),
    "DEQUANTIZE": (ALL, dequantize),
    "DIV": (ALL, division("DIV")),
    "ELU": (("int8",), unary("ELU")),
    "EQUAL": (BYTES, comparison("EQUAL")),
    "EXP": (("int8", "int16"), unary("EXP", -4)),
    "FLOOR_DIV": (("int8", "int16"), division("FLOOR_DIV")),
    "FLOOR_MOD": (("int8", "int16"), division("FLOOR_MOD")),
    "FULLY_CONNECTED": (ALL, fully_connected),
    "GELU": (ALL, unary("GELU")),
    "GREATER": (BYTES, comparison("GREATER")),
    "GREATER_EQUAL": (BYTES, comparison("GREATER_EQUAL")),
    "HARD_SWISH": (BYTES, unary("HARD_SWISH")),
    "L2_NORMALIZATION": (BYTES, unary("L2_NORMALIZATION", **L2)),
    "LEAKY_RELU": (ALL, unary("LEAKY_RELU")),
    "LESS": (BYTES, comparison("LESS")),
    "LESS_EQUAL": (BYTES, comparison("LESS_EQUAL")),
    "LOG": (("int8", "int16"), unary("LOG")),
    "LOGISTIC": (ALL, unary("LOGISTIC", **LOGISTIC)),
    "LOG_SOFTMAX": (BYTES, unary("LOG_SOFTMAX", **LOG_SOFTMAX)),
    "MAXIMUM": (ALL, selection("MAXIMUM")),
    "MAX_POOL_2D": (ALL, pool("MAX_POOL_2D")),
    "MEAN": (ALL, reduction("MEAN")),
    "MINIMUM": (ALL, selection("MINIMUM")),
    "MUL": (ALL, arithmetic("MUL")),
    "NEG": (("int8", "int16"), unary("NEG")),
    "NOT_EQUAL": (BYTES, comparison("NOT_EQUAL")),
    "PRELU": (BYTES, prelu),
    "QUANTIZE": (ALL, quantize),
    "REDUCE_MAX": (ALL, reduction("REDUCE_MAX")),
    "REDUCE_MIN": (ALL, reduction("REDUCE_MIN")),
    "REDUCE_PROD": (("int8", "int16"), reduction("REDUCE_PROD")),
    "RELU": (ALL, unary("RELU")),
    "RELU6": (BYTES, unary("RELU6")),
    "RELU_0_TO_1": (BYTES, unary("RELU_0_TO_1")),
    "RELU_N1_TO_1": (BYTES, unary("RELU_N1_TO_1")),
    "RESIZE_BILINEAR": (ALL, resize("RESIZE_BILINEAR")),
    "RESIZE_NEAREST_NEIGHBOR": (ALL, resize("RESIZE_NEAREST_NEIGHBOR")),
    "RSQRT": (("int8",), unary("RSQRT")),
    "SOFTMAX": (ALL, unary("SOFTMAX", **LOGISTIC)),
    "SQRT": (("int8",), unary("SQRT")),
    "SQUARED_DIFFERENCE": (("int8",), arithmetic("SQUARED_DIFFERENCE")),
    "SUB": (ALL, arithmetic("SUB")),
    "SUM": (ALL, reduction("SUM")),
    "TANH": (ALL, unary("TANH", **TANH)),
    "TRANSPOSE_CONV": (ALL, transpose_conv),
    **MOVES,
}
"""Operator -> the types that LiteRT quantizes it for, and the function that makes a model of it."""


def one_op_model(op: str, seed: int) -> OneOp:
    """A model of one operator, of the types in turn; equal arguments give equal bytes."""
    types, make = MAKERS[op]
    draw = Draw(op, seed, types[seed % len(types)], ties=seed // len(types) % 2 == 0)
    make(draw)
    return OneOp(op, draw.dtype, f"seed {seed}: {', '.join(draw.said)}", draw.finish())


def one_op_models(ops: Sequence[str], count: int, first: int = 0) -> Iterator[OneOp]:
    """`count` models of each operator."""
    for op in ops:
        for seed in range(first, first + count):
            yield one_op_model(op, seed)
