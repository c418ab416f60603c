"""Small quantized models of one operator each, with everything drawn at random that LiteRT's rounding depends on.

    model = one_op_model("CONV_2D", seed=3)

Types, shapes, options, zero points (often at the ends of the range) and scales: half of the models have powers of two
for scales, so that many results lie halfway between two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.activation import OPTION
from jitdelegate.tflite.write import ModelBuilder

Shape = tuple[int, ...]
BYTES = ("int8", "uint8")
ALL = (*BYTES, "int16")
ACTIVATIONS = ("NONE", "NONE", "NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


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


class Draw(ModelBuilder):
    """A model under construction, and the random choices for it.

    Attributes:
        dtype: of activations.
        ties: whether scales are powers of two.
    """

    def __init__(self, op: str, seed: int, dtype: str, ties: bool) -> None:
        super().__init__()
        self.random = np.random.default_rng((crc32(op.encode()), seed))
        self.ties = ties
        self.dtype = dtype
        self.said: list[str] = [self.dtype, "ties" if self.ties else "any scales"]

    def choice(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.integers(len(values)))]

    def say(self, name: str, value: Any) -> Any:
        self.said.append(f"{name}={value}")
        return value

    def pick(self, name: str, values: Sequence[Any]) -> Any:
        """One of the values, and said."""
        return self.say(name, self.choice(values))

    def size(self, most: int = 9) -> int:
        return int(self.random.integers(1, most + 1))

    def shape(self, rank: int = 4, most: int = 9) -> Shape:
        return tuple(self.size(most) for _ in range(rank))

    def image(self, channels: int | None = None) -> Shape:
        """[N, H, W, C]"""
        return self.choice([1, 1, 2]), self.size(12), self.size(12), channels or self.choice([1, 3, 8, 17, 33])

    def scale(self, exponent: float = -5.0) -> float:
        """Near 2**exponent."""
        if self.ties:
            return 2.0 ** round(exponent + float(self.random.uniform(-1.5, 1.5)))
        return float(np.float32(2.0 ** (exponent + float(self.random.uniform(-1.5, 1.5)))))

    def zero(self, dtype: str | None = None) -> int:
        element = ELEMENT_TYPES[dtype or self.dtype]
        if element.bits > 8:
            return 0
        middle = (element.minimum + element.maximum + 1) // 2
        anywhere = int(self.random.integers(element.minimum, element.maximum + 1))
        near = middle + int(self.random.integers(-20, 21))
        return int(self.choice([element.minimum, element.maximum, middle, near, near, anywhere]))

    def quant(self, exponent: float = -5.0, dtype: str | None = None) -> Quant:
        return Quant((self.scale(exponent),), (self.zero(dtype),))

    def codes(self, shape: Shape, dtype: str | None = None, symmetric: bool = False) -> np.ndarray:
        """Uniform over the stored numbers."""
        element = ELEMENT_TYPES[dtype or self.dtype]
        low = element.minimum + (symmetric and element.is_signed)
        return self.random.integers(low, element.maximum + 1, shape).astype(element.name)

    def data(self, shape: Shape, quant: Quant, dtype: str | None = None) -> int:
        """An input of the model."""
        return self.input(shape, dtype or self.dtype, quant=quant)

    def operand(self, shape: Shape, quant: Quant) -> int:
        """An input of the model or, now and then, a constant."""
        if self.random.integers(3):
            return self.data(shape, quant)
        self.said.append("constant operand")
        return self.constant(self.codes(shape), quant=quant)

    def result(
        self, op: str, inputs: Sequence[int | None], shape: Shape, quant: Quant | None, dtype: str = "", **options: Any
    ) -> None:
        """The operator, whose output is the model's."""
        known = options or None
        self.output(self.op(op, inputs, shape, options=known, dtype=dtype or self.dtype, quant=quant))

    def activation(self) -> str:
        return str(self.pick("activation", ACTIVATIONS))

    def weights(self, shape: Shape, axis: int, channels: int, data: Quant) -> tuple[int, int | None, tuple[float, ...]]:
        """Weights, bias and the scales of the weights: of uint8 with a zero point, of others maybe by channel."""
        if self.dtype == "uint8":
            quant = Quant((self.scale(-7),), (self.zero("uint8"),))
            values = self.codes(shape, "uint8")
        else:
            count = channels if self.pick("per channel", [True, True, False]) else 1
            quant = Quant(tuple(self.scale(-7) for _ in range(count)), (0,) * count, axis if count > 1 else 0)
            values = self.codes(shape, "int8", symmetric=True)
        weights = self.constant(values, quant=quant)
        scales = tuple(float(np.float32(data.scales[0]) * np.float32(scale)) for scale in quant.scales)
        kind = "int64" if self.dtype == "int16" else "int32"  # LiteRT reads an int32 bias of int16 data as an int64
        spread = 1 << (18 if self.dtype == "int16" else 12)
        bias = self.random.integers(-spread, spread, channels).astype(kind)
        return weights, self.constant(bias, quant=Quant(scales, (0,) * len(scales))), scales

    def product_quant(self, scales: Sequence[float], taps: int) -> Quant:
        """Of sums of `taps` products with these scales, most of which it holds."""
        spread = (
            73.0
            * (19000.0 if self.dtype == "int16" else 73.0)
            * math.sqrt(taps)
            / (60.0 if self.dtype != "int16" else 12000.0)
        )
        exponent = math.log2(float(np.median(scales)) * spread)
        return Quant((self.scale(exponent),), (self.zero(),))


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
    shape = draw.image(groups * draw.choice([1, 3, 8, 17, 33]))
    kernel = draw.pick("kernel", [(1, 1), (3, 3), (2, 3), (5, 1)])
    channels = groups * draw.choice([1, 3, 8, 19])
    options, sizes = window(draw, shape, kernel, dilated=True)
    quant = draw.quant()
    filters = (channels, *kernel, shape[3] // groups)
    weights, bias, scales = draw.weights(filters, 0, channels, quant)
    out = draw.product_quant(scales, math.prod(filters[1:]))
    options[OPTION] = draw.activation()
    draw.result("CONV_2D", [draw.data(shape, quant), weights, bias], (shape[0], *sizes, channels), out, **options)


def depthwise(draw: Draw) -> None:
    shape = draw.image()
    multiplier = draw.pick("multiplier", [1, 1, 1, 2, 3])
    kernel = draw.pick("kernel", [(3, 3), (3, 3), (5, 5), (2, 1), (1, 1)])
    channels = shape[3] * multiplier
    options, sizes = window(draw, shape, kernel, dilated=True)
    quant = draw.quant()
    weights, bias, scales = draw.weights((1, *kernel, channels), 3, channels, quant)
    options |= {OPTION: draw.activation(), "depth_multiplier": multiplier}
    out = draw.product_quant(scales, math.prod(kernel))
    draw.result(
        "DEPTHWISE_CONV_2D", [draw.data(shape, quant), weights, bias], (shape[0], *sizes, channels), out, **options
    )


def transpose_conv(draw: Draw) -> None:
    shape = draw.image(draw.choice([1, 3, 8]))
    channels = draw.choice([1, 2, 3, 8])
    kernel = draw.pick("kernel", [(2, 2), (3, 3), (4, 4)])
    stride = draw.pick("stride", [1, 2])
    padding = draw.pick("padding", ["SAME", "VALID"])
    sizes = [
        size * stride if padding == "SAME" else (size - 1) * stride + max(edge, stride)
        for size, edge in zip(shape[1:3], kernel, strict=True)
    ]
    out_shape = (shape[0], *sizes, channels)
    quant = draw.quant()
    weights, bias, scales = draw.weights((channels, *kernel, shape[3]), 0, channels, quant)
    out = draw.product_quant(scales, shape[3] * max(1, math.prod(kernel) // stride**2))
    operands = [draw.constant(np.array(out_shape, np.int32)), weights, draw.data(shape, quant)]
    if draw.pick("bias", [True, False]):
        operands.append(bias)
    draw.result("TRANSPOSE_CONV", operands, out_shape, out, padding=padding, stride_h=stride, stride_w=stride)


def fully_connected(draw: Draw) -> None:
    depth, units = draw.choice([1, 7, 32, 65]), draw.choice([1, 3, 40, 67])
    keep = draw.pick("keep_num_dims", [False, True])
    lead = draw.choice([(1,), (3,), (4, 5)]) if keep else (draw.size(16),)
    quant = draw.quant()
    weights, bias, scales = draw.weights((units, depth), 0, units, quant)
    out = draw.product_quant(scales, depth)
    operands = [draw.data((*lead, depth), quant), weights]
    if draw.pick("bias given", [True, True, False]):
        operands.append(bias)
    options = {OPTION: draw.activation(), "keep_num_dims": keep}
    draw.result("FULLY_CONNECTED", operands, (*lead, units), out, **options)


def batch_matmul(draw: Draw) -> None:
    rows, depth, columns = draw.size(), draw.choice([1, 7, 32]), draw.size()
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
    rank = draw.choice([1, 2, 3, 4, 4, 4])
    full = draw.shape(rank, 12)
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
        other = tuple(size if draw.random.integers(2) else 1 for size in full)
    first = full
    if kind == "both":
        first = tuple(size if draw.random.integers(2) else 1 for size in full)
        full = tuple(np.broadcast_shapes(first, other))
    pair = (first, other) if draw.random.integers(2) else (other, first)
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


def same_quant(op: str) -> Callable[[Draw], None]:
    """MAXIMUM, MINIMUM: both operands and the result have the same parameters."""

    def make(draw: Draw) -> None:
        a, b, shape = broadcast_pair(draw)
        quant = draw.quant()
        draw.result(op, [draw.data(a, quant), draw.operand(b, quant)], shape, quant)

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
        shape = draw.shape(draw.choice([1, 2, 4]), 13)
        quant = draw.quant()
        out = fixed.get(draw.dtype) or draw.quant(math.log2(quant.scales[0]) if exponent is None else exponent)
        options = {}
        if op == "RSQRT":
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


def quantize(draw: Draw) -> None:
    """From float32, or from one integer type to another."""
    shape = draw.shape(draw.choice([1, 2, 4]), 13)
    source = draw.pick("from", ["float32", draw.dtype, draw.dtype, "int8", "uint8", "int16", "int32"])
    out = draw.quant(-5 if source == "float32" else draw.choice([-5, -4, -6, -13 if draw.dtype == "int16" else -5]))
    quant = None if source == "float32" else draw.quant(-5, source)
    if source == "int32":
        quant = Quant((draw.scale(-8),), (0,))
    draw.result("QUANTIZE", [draw.input(shape, source, quant=quant)], shape, out)


def dequantize(draw: Draw) -> None:
    shape = draw.shape(draw.choice([1, 2, 4]), 13)
    draw.result("DEQUANTIZE", [draw.data(shape, draw.quant())], shape, None, "float32")


def reduction(op: str) -> Callable[[Draw], None]:
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN over any axes."""

    def make(draw: Draw) -> None:
        shape = draw.shape(draw.choice([2, 3, 4, 4, 4]), 12)
        axes = draw.choice([(1, 2), (1, 2), (2, 1), (-1,), (0,), (1,), (2,), (0, 1, 2, 3), (-2, -3)])
        axes = tuple(axis for axis in axes if -len(shape) <= axis < len(shape)) or (0,)
        keep = draw.pick("keep_dims", [False, True])
        draw.say("axes", f"{axes} of rank {len(shape)}")
        done = {axis % len(shape) for axis in axes}
        out_shape = tuple(1 if axis in done else size for axis, size in enumerate(shape) if keep or axis not in done)
        quant = draw.quant()
        count = math.prod(shape[axis] for axis in done)
        exponent = math.log2(quant.scales[0]) + (math.log2(count) / 2 if op == "SUM" else 0)
        out = quant if op in ("REDUCE_MAX", "REDUCE_MIN") or not draw.random.integers(4) else draw.quant(exponent)
        operands = [draw.data(shape, quant), draw.constant(np.array(axes, np.int32))]
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
        operands = [draw.data(shape, quant), draw.constant(np.array(out, np.int32))]
        options = {"align_corners": align, "half_pixel_centers": half}
        draw.result(op, operands, (shape[0], *out, shape[3]), quant, **options)

    return make


def concatenation(draw: Draw) -> None:
    rank = draw.choice([2, 3, 4])
    axis = int(draw.random.integers(rank))
    shape = draw.shape(rank)
    equal = draw.dtype != "uint8" or draw.pick("equal parameters", [True, False])
    out = draw.quant()
    parts = [(*shape[:axis], draw.size(), *shape[axis + 1 :]) for _ in range(draw.choice([1, 2, 2, 3, 5]))]
    operands = [draw.data(part, out if equal else draw.quant()) for part in parts]
    total = (*shape[:axis], sum(part[axis] for part in parts), *shape[axis + 1 :])
    options = {"axis": draw.say("axis", axis if draw.random.integers(2) else axis - rank), OPTION: "NONE"}
    draw.result("CONCATENATION", operands, total, out, **options)


def pad(op: str) -> Callable[[Draw], None]:
    """PAD, PADV2, MIRROR_PAD."""

    def make(draw: Draw) -> None:
        shape = tuple(size + 3 for size in draw.shape(draw.choice([2, 4])))
        amounts = draw.random.integers(0, 3, (len(shape), 2)).astype(np.int32)
        quant = draw.quant()
        operands = [draw.data(shape, quant), draw.constant(amounts)]
        if op == "PADV2":
            operands.append(draw.constant(draw.codes(()), quant=quant))
        out = tuple(int(size + sum(pair)) for size, pair in zip(shape, amounts, strict=True))
        options = {"mode": draw.pick("mode", ["REFLECT", "SYMMETRIC"])} if op == "MIRROR_PAD" else {}
        draw.result(op, operands, out, quant, **options)

    return make


def transpose(draw: Draw) -> None:
    shape = draw.shape(draw.choice([2, 3, 4]))
    order = tuple(int(axis) for axis in draw.random.permutation(len(shape)))
    quant = draw.quant()
    operands = [draw.data(shape, quant), draw.constant(np.array(order, np.int32))]
    draw.result("TRANSPOSE", operands, tuple(shape[axis] for axis in order), quant)


def reshape(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    out = (shape[0] * shape[1], shape[2] * shape[3])
    operands = [draw.data(shape, quant), draw.constant(np.array(out, np.int32))]
    draw.result("RESHAPE", operands, out, quant, new_shape=out)


def strided_slice(draw: Draw) -> None:
    shape, quant = tuple(size + 2 for size in draw.shape()), draw.quant()
    begin, step = [int(draw.random.integers(2)) for _ in shape], [draw.choice([1, 1, 2]) for _ in shape]
    out = tuple(len(range(a, size, c)) for a, size, c in zip(begin, shape, step, strict=True))
    constants = [draw.constant(np.array(each, np.int32)) for each in (begin, shape, step)]
    draw.result("STRIDED_SLICE", [draw.data(shape, quant), *constants], out, quant)


def slice_(draw: Draw) -> None:
    shape, quant = tuple(size + 2 for size in draw.shape()), draw.quant()
    begin = [int(draw.random.integers(2)) for _ in shape]
    out = tuple(int(draw.random.integers(1, size - a + 1)) for a, size in zip(begin, shape, strict=True))
    constants = [draw.constant(np.array(each, np.int32)) for each in (begin, out)]
    draw.result("SLICE", [draw.data(shape, quant), *constants], out, quant)


def split(draw: Draw) -> None:
    parts = draw.choice([2, 3])
    shape, quant = draw.shape(), draw.quant()
    axis = int(draw.random.integers(4))
    whole = (*shape[:axis], parts * shape[axis], *shape[axis + 1 :])
    source = draw.data(whole, quant)
    place = draw.constant(np.array(axis, np.int32))
    outputs = [draw.tensor(shape, draw.dtype, quant=quant) for _ in range(parts)]
    draw.node("SPLIT", [place, source], outputs, options={"num_splits": parts})
    draw.output(*outputs)


def pack(draw: Draw) -> None:
    shape, quant, count = draw.shape(3), draw.quant(), draw.size(3)
    axis = int(draw.random.integers(4))
    operands = [draw.data(shape, quant) for _ in range(count)]
    draw.result("PACK", operands, (*shape[:axis], count, *shape[axis:]), quant, axis=axis, values_count=count)


def gather(draw: Draw) -> None:
    shape, quant = draw.shape(3), draw.quant()
    axis = int(draw.random.integers(3))
    places = draw.constant(draw.random.integers(0, shape[axis], 4).astype(np.int32))
    out = (*shape[:axis], 4, *shape[axis + 1 :])
    draw.result("GATHER", [draw.data(shape, quant), places], out, quant, axis=axis)


def tile(draw: Draw) -> None:
    shape, quant = draw.shape(3), draw.quant()
    counts = [draw.size(3) for _ in shape]
    out = tuple(size * count for size, count in zip(shape, counts, strict=True))
    draw.result("TILE", [draw.data(shape, quant), draw.constant(np.array(counts, np.int32))], out, quant)


def depth_to_space(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    draw.result(
        "DEPTH_TO_SPACE",
        [draw.data((*shape[:3], 4 * shape[3]), quant)],
        (shape[0], 2 * shape[1], 2 * shape[2], shape[3]),
        quant,
        block_size=2,
    )


def space_to_depth(draw: Draw) -> None:
    shape, quant = draw.shape(), draw.quant()
    draw.result(
        "SPACE_TO_DEPTH",
        [draw.data((shape[0], 2 * shape[1], 2 * shape[2], shape[3]), quant)],
        (*shape[:3], 4 * shape[3]),
        quant,
        block_size=2,
    )


def select(draw: Draw) -> None:
    shape, quant = draw.shape(3), draw.quant()
    condition = draw.input(shape, "bool")
    draw.result("SELECT_V2", [condition, draw.data(shape, quant), draw.operand(shape, quant)], shape, quant)


def arg_reduction(op: str) -> Callable[[Draw], None]:
    """ARG_MAX and ARG_MIN."""

    def make(draw: Draw) -> None:
        shape = draw.shape(3)
        axis = int(draw.random.integers(3))
        place = draw.constant(np.array(axis, np.int32))
        out = (*shape[:axis], *shape[axis + 1 :])
        draw.result(op, [draw.data(shape, draw.quant()), place], out, None, "int32", output_type="INT32")

    return make


def _fixed(byte: tuple[float, int, int], word: float) -> dict[str, Quant]:
    """Parameters of a result: scale, zero points of int8 and uint8; the scale of int16."""
    scale, low, high = byte
    return {"int8": Quant((scale,), (low,)), "uint8": Quant((scale,), (high,)), "int16": Quant((word,), (0,))}


LOGISTIC = _fixed((1 / 256, -128, 0), 1 / 32768)
TANH = _fixed((1 / 128, 0, 128), 1 / 32768)

MAKERS: Mapping[str, tuple[Sequence[str], Callable[[Draw], None]]] = {
    "ABS": (("int8", "int16"), unary("ABS")),
    "ADD": (ALL, arithmetic("ADD")),
    "ARG_MAX": (BYTES, arg_reduction("ARG_MAX")),
    "ARG_MIN": (BYTES, arg_reduction("ARG_MIN")),
    "AVERAGE_POOL_2D": (ALL, pool("AVERAGE_POOL_2D")),
    "BATCH_MATMUL": (("int8", "int16"), batch_matmul),
    "CONCATENATION": (ALL, concatenation),
    "CONV_2D": (ALL, conv_2d),
    "DEPTHWISE_CONV_2D": (ALL, depthwise),
    "DEPTH_TO_SPACE": (BYTES, depth_to_space),
    "DEQUANTIZE": (ALL, dequantize),
    "ELU": (("int8",), unary("ELU")),
    "EQUAL": (BYTES, comparison("EQUAL")),
    "EXP": (("int8",), unary("EXP", -4)),
    "FULLY_CONNECTED": (ALL, fully_connected),
    "GATHER": (ALL, gather),
    "GELU": (BYTES, unary("GELU")),
    "GREATER": (BYTES, comparison("GREATER")),
    "GREATER_EQUAL": (BYTES, comparison("GREATER_EQUAL")),
    "HARD_SWISH": (BYTES, unary("HARD_SWISH")),
    "LEAKY_RELU": (ALL, unary("LEAKY_RELU")),
    "LESS": (BYTES, comparison("LESS")),
    "LESS_EQUAL": (BYTES, comparison("LESS_EQUAL")),
    "LOGISTIC": (BYTES, unary("LOGISTIC", **LOGISTIC)),
    "MAXIMUM": (ALL, same_quant("MAXIMUM")),
    "MAX_POOL_2D": (ALL, pool("MAX_POOL_2D")),
    "MEAN": (ALL, reduction("MEAN")),
    "MINIMUM": (ALL, same_quant("MINIMUM")),
    "MIRROR_PAD": (("int8", "int16", "uint8"), pad("MIRROR_PAD")),
    "MUL": (ALL, arithmetic("MUL")),
    "NEG": (("int8",), unary("NEG")),
    "NOT_EQUAL": (BYTES, comparison("NOT_EQUAL")),
    "PACK": (ALL, pack),
    "PAD": (ALL, pad("PAD")),
    "PADV2": (ALL, pad("PADV2")),
    "PRELU": (BYTES, prelu),
    "QUANTIZE": (ALL, quantize),
    "REDUCE_MAX": (ALL, reduction("REDUCE_MAX")),
    "REDUCE_MIN": (ALL, reduction("REDUCE_MIN")),
    "RELU": (ALL, unary("RELU")),
    "RELU6": (BYTES, unary("RELU6")),
    "RELU_N1_TO_1": (BYTES, unary("RELU_N1_TO_1")),
    "RESHAPE": (ALL, reshape),
    "RESIZE_BILINEAR": (ALL, resize("RESIZE_BILINEAR")),
    "RESIZE_NEAREST_NEIGHBOR": (ALL, resize("RESIZE_NEAREST_NEIGHBOR")),
    "RSQRT": (("int8",), unary("RSQRT")),
    "SELECT_V2": (ALL, select),
    "SLICE": (ALL, slice_),
    "SOFTMAX": (ALL, unary("SOFTMAX", **LOGISTIC)),
    "SPACE_TO_DEPTH": (BYTES, space_to_depth),
    "SPLIT": (ALL, split),
    "SQUARED_DIFFERENCE": (("int8",), arithmetic("SQUARED_DIFFERENCE")),
    "STRIDED_SLICE": (ALL, strided_slice),
    "SUB": (ALL, arithmetic("SUB")),
    "SUM": (ALL, reduction("SUM")),
    "TANH": (BYTES, unary("TANH", **TANH)),
    "TILE": (BYTES, tile),
    "TRANSPOSE": (ALL, transpose),
    "TRANSPOSE_CONV": (ALL, transpose_conv),
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
