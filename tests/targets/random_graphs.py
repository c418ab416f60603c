"""Random graphs of every operator, float32 but for what lies between comparisons, casts and ranks, in the sizes and
combinations that kernels treat apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call

Shape = tuple[int, ...]
MAX_ELEMENTS = 40_000
MAX_WORK = 4_000_000
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 70)
EXACT_UNARY = ("ABS", "NEG", "SQUARE", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "HARD_SWISH", "LEAKY_RELU")
UNARY = (*EXACT_UNARY, "EXP", "TANH", "LOGISTIC", "ELU", "GELU", "SQRT", "RSQRT", "LOG")
BINARY = ("ADD", "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "DIV")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
WHOLE = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD")
REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


@dataclass
class Draw:
    """Draws one random graph; operators that do not fit what is there are not placed."""

    random: random.Random
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    # parts

    def input(self, shape: Shape) -> int:
        self.inputs.append(self._add(Tensor("input", shape, "float32")))
        self.values.append(self.inputs[-1])
        return self.inputs[-1]

    def weights(self, *shape: int, low: float = -1, high: float = 1) -> int:
        numbers = np.random.default_rng(self.random.getrandbits(32))
        scale = 1 / np.sqrt(max(1, prod(shape[1:]))) if len(shape) in (2, 4) else 1
        return self._add(
            Tensor("weights", shape, "float32", (numbers.uniform(low, high, shape) * scale).astype(np.float32))
        )

    def integers(self, values: Any) -> int:
        data = np.array(values, np.int32)
        return self._add(Tensor("integers", data.shape, "int32", data))

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(replace(tensor, name=f"{tensor.name}{len(self.tensors)}"))
        return len(self.tensors) - 1

    def shape(self, index: int) -> Shape:
        return self.tensors[index].shape

    def value(self, *ranks: int) -> int:
        """A value of one of these ranks, recent ones preferred; a new input where there is none."""
        fitting = [v for v in self.values if not ranks or len(self.shape(v)) in ranks]
        if not fitting or (len(self.inputs) < 3 and self.random.random() < 0.03):
            return self.input(self.any_shape(self.random.choice(ranks or (4, 4, 4, 3, 2))))
        return self.random.choice(fitting[-3:] if self.random.random() < 0.7 else fitting)

    def any_shape(self, rank: int) -> Shape:
        choose = self.random.choice
        if rank == 4:
            return (choose((1, 1, 1, 2, 3)), self.size(), self.size(), choose(CHANNELS))
        return (
            tuple(choose((1, 2, 3, 4, 5, 7, 9, 17, 20)) for _ in range(rank))
            if rank < 5
            else tuple(choose((1, 2, 3, 4)) for _ in range(rank))
        )

    def size(self) -> int:
        return self.random.choice((1, 2, 3, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 26, 40, 97))

    def node(self, op: str, inputs: Sequence[int], **attrs: Any) -> int | None:
        """The output, or None where the operator refuses or is too large for a quick comparison."""
        return next(iter(self.typed(op, inputs, "float32", **attrs)), None)

    def typed(self, op: str, inputs: Sequence[int], *dtypes: str, **attrs: Any) -> tuple[int, ...]:
        """As `node`, the outputs of these types, of which those of float32 become values."""
        outputs = tuple(self._add(Tensor(op.lower(), (1,), dtype)) for dtype in dtypes)
        node = Node(op, tuple(inputs), outputs, attrs, OPS[op].version, origin=(len(self.nodes),))
        call = Call(Graph(tuple(self.tensors), (*self.nodes, node), tuple(self.inputs), outputs), node)
        if next(OPS[op].problems(call), None) is not None:
            return ()
        shapes = OPS[op].shapes(call)
        window = self.shape(inputs[1])[1:] if op.endswith("CONV_2D") or op == "TRANSPOSE_CONV" else ()
        if any(
            prod(shape) > MAX_ELEMENTS or prod(shape) * prod(window) > MAX_WORK or 0 in shape or len(shape) > 6
            for shape in shapes
        ):
            return ()
        for output, shape, dtype in zip(outputs, shapes, dtypes, strict=True):
            self.tensors[output] = replace(self.tensors[output], shape=shape)
            self.values += [output] if dtype == "float32" else []
        self.nodes.append(node)
        return outputs

    # operators

    def window(self) -> dict[str, Any]:
        choose = self.random.choice
        return {
            "padding": choose(("SAME", "VALID")),
            "stride_h": choose((1, 1, 2, 3)),
            "stride_w": choose((1, 1, 2, 3)),
            "fused_activation_function": choose(ACTIVATIONS),
        }

    def kernel(self) -> int:
        return self.random.choice((1, 1, 2, 3, 3, 3, 4, 5, 7))

    def square(self) -> tuple[int, int]:
        height = self.kernel()
        return height, height if self.random.random() < 0.7 else self.kernel()

    def dilation(self) -> dict[str, int]:
        choose = self.random.choice
        return {"dilation_h_factor": choose((1, 1, 1, 2, 3)), "dilation_w_factor": choose((1, 1, 1, 2, 3))}

    def conv(self) -> None:
        x = self.value(4)
        channels = self.shape(x)[3]
        groups = self.random.choice([g for g in range(1, channels + 1) if channels % g == 0] + [1] * 6)
        outputs = groups * self.random.randint(1, 8) if groups > 1 else self.random.choice(CHANNELS)
        filters = self.weights(outputs, *self.square(), channels // groups)
        bias = [self.weights(outputs)] if self.random.random() < 0.9 else self.random.choice(([], [ABSENT]))
        y = self.node("CONV_2D", [x, filters, *bias], **self.window(), **self.dilation())
        if y is not None and self.random.random() < 0.2 and self.shape(y) == self.shape(x):
            self.node("ADD", self.random.sample((x, y), 2), fused_activation_function=self.random.choice(ACTIVATIONS))

    def pointwise(self) -> None:
        x = self.value(4)
        outputs = self.random.choice(CHANNELS)
        options = {"stride_h": 1, "stride_w": 1, "fused_activation_function": self.random.choice(ACTIVATIONS)}
        self.node("CONV_2D", [x, self.weights(outputs, 1, 1, self.shape(x)[3]), self.weights(outputs)], **options)

    def depthwise(self) -> None:
        x = self.value(4)
        channels = self.shape(x)[3]
        multiplier = self.random.choice([1] + [m for m in (1, 1, 1, 1, 2, 3, 4, 5, 8, 16, 32) if channels * m <= 140])
        filters, bias = self.weights(1, *self.square(), channels * multiplier), self.weights(channels * multiplier)
        operands = [x, filters, bias] if self.random.random() < 0.93 else [x, filters]
        y = self.node("DEPTHWISE_CONV_2D", operands, depth_multiplier=multiplier, **self.window(), **self.dilation())
        if y is not None and self.random.random() < 0.5:
            self.pointwise()

    def transposed(self) -> None:
        x = self.value(4)
        choose, (n, h, w, c) = self.random.choice, self.shape(x)
        options = self.window()
        kernel, outputs = (choose((1, 2, 3, 4, 5)), choose((1, 2, 3, 4, 5))), choose(CHANNELS)
        sizes = []
        for size, step, reach in zip((h, w), (options["stride_h"], options["stride_w"]), kernel, strict=True):
            extra = self.random.randrange(step)
            sizes.append(size * step - extra if options["padding"] == "SAME" else (size - 1) * step + reach + extra)
        bias = [self.weights(outputs)] if self.random.random() < 0.7 else []
        shape, filters = self.integers((n, *sizes, outputs)), self.weights(outputs, *kernel, c)
        self.node("TRANSPOSE_CONV", [shape, filters, x, *bias], **options)

    def dense(self) -> None:
        x = self.value()
        size, last = prod(self.shape(x)), (self.shape(x) or (1,))[-1]
        depth = self.random.choice([last, last, last, size, *(d for d in range(2, 40) if size % d == 0)])
        outputs = self.random.choice(CHANNELS)
        operands = [x, self.weights(outputs, depth)]
        operands += self.random.choice(([], [ABSENT], [self.weights(outputs)]))
        keep = depth == last and self.random.random() < 0.5
        self.node(
            "FULLY_CONNECTED",
            operands,
            keep_num_dims=keep,
            fused_activation_function=self.random.choice(ACTIVATIONS),
        )

    def product(self) -> None:
        """A value times another one, or times new numbers, on either side."""
        x, draw = self.value(2, 3, 4, 5), self.random
        *leading, rows, columns = self.shape(x)
        adj_x, adj_y, is_left = (draw.random() < 0.4 for _ in range(3))
        depth = (rows if adj_x else columns) if is_left else (columns if adj_y else rows)
        lines = draw.choice((1, 2, 3, 4, 5, 8, 16, 17, 33, 50, 70))
        mine = [size if draw.random() < 0.7 else 1 for size in leading][draw.randint(0, len(leading)) :]
        lies_along = adj_y if is_left else not adj_x
        shape = (*mine, lines, depth) if lies_along else (*mine, depth, lines)
        same = [v for v in self.values if self.shape(v) == shape]
        if same or len(self.inputs) > 3 or draw.random() < 0.3:
            other = draw.choice(same) if same else self.weights(*shape)
        else:
            other = self.input(shape)
        if prod(self.shape(x)) * lines <= MAX_WORK:
            self.node("BATCH_MATMUL", (x, other) if is_left else (other, x), adj_x=adj_x, adj_y=adj_y)

    def computed(self) -> None:
        """A convolution or a fully connected layer whose filter is fed."""
        x, outputs = self.value(2, 4), self.random.choice((1, 2, 3, 8, 17, 33))
        if len(self.inputs) > 3:
            return
        channels = self.shape(x)[-1]
        bias = self.weights(outputs) if self.random.random() < 0.5 else self.input((outputs,))
        if len(self.shape(x)) == 2:
            self.node("FULLY_CONNECTED", [x, self.input((outputs, channels)), bias])
        else:
            filters = self.input((outputs, *self.square(), channels))
            self.node("CONV_2D", [x, filters, bias], **self.window(), **self.dilation())

    def pooling(self) -> None:
        height, width = self.square()
        op = self.random.choice(("MAX_POOL_2D", "AVERAGE_POOL_2D"))
        self.node(op, [self.value(4)], filter_height=height, filter_width=width, **self.window())

    def resizing(self) -> None:
        op = self.random.choice(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
        options = self.random.choice(({}, {"align_corners": True}, {"half_pixel_centers": True}))
        self.node(op, [self.value(4), self.integers((self.size(), self.size()))], **options)

    def concatenation(self) -> None:
        x = self.value(1, 2, 3, 4, 5)
        shape = self.shape(x)
        axis = self.random.randrange(len(shape)) if self.random.random() < 0.5 else len(shape) - 1
        others = [v for v in self.values if _beside(self.shape(v), axis) == _beside(shape, axis)]
        parts = [x, *(self.random.choice(others) for _ in range(self.random.randint(0, 3)))]
        if len(self.inputs) < 4 and self.random.random() < 0.5:
            parts.append(self.input((*shape[:axis], self.random.randint(1, 20), *shape[axis + 1 :])))
        self.random.shuffle(parts)
        self.node("CONCATENATION", parts, axis=axis - len(shape) * self.random.randrange(2))

    def packing(self) -> None:
        x = self.value(1, 2, 3, 4)
        same = [v for v in self.values if self.shape(v) == self.shape(x)]
        parts = [self.random.choice(same) for _ in range(self.random.randint(1, 3))]
        self.node("PACK", parts, axis=self.random.randint(0, len(self.shape(x))), values_count=len(parts))

    def padding(self) -> None:
        x = self.value(1, 2, 3, 4, 5)
        chance = self.random.choice((0.3, 0.6))
        borders = [
            [self.random.randint(0, 3) if self.random.random() < chance else 0 for _ in range(2)] for _ in self.shape(x)
        ]
        if len(borders) == 4 and self.random.random() < 0.6:
            borders[0] = borders[3] = [0, 0]
        if self.random.random() < 0.3:
            borders[-1] = [0, self.random.choice((1, 8, 16, 20))]
        if self.random.random() < 0.7:
            self.node("PAD", [x, self.integers(borders)])
        else:
            number = np.array(self.random.choice((0.0, 1.5)), np.float32).reshape(self.random.choice(((), (1,))))
            self.node("PADV2", [x, self.integers(borders), self._add(Tensor("fill", number.shape, "float32", number))])

    def slicing(self) -> None:
        x = self.value(1, 2, 3, 4, 5)
        begin, size = [], []
        for extent in self.shape(x):
            begin.append(self.random.randrange(extent) if self.random.random() < 0.4 else 0)
            most = extent - begin[-1]
            size.append(self.random.randint(1, most) if self.random.random() < 0.5 else self.random.choice((-1, most)))
        self.node("SLICE", [x, self.integers(begin), self.integers(size)])

    def striding(self) -> None:
        x = self.value(1, 2, 3, 4, 5)
        shape, draw = self.shape(x), self.random
        places = draw.randint(1, len(shape) + 1)
        bounds = [(draw.randint(-3, 3), draw.randint(-3, 20), draw.choice((1, 1, 2, 3, -1, -2))) for _ in range(places)]
        names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        chances = (0.5, 0.6, 0.1, 0.1, 0.1)
        masks = {
            name: sum(1 << p for p in range(places) if draw.random() < chance)
            for name, chance in zip(names, chances, strict=True)
        }
        self.node("STRIDED_SLICE", [x, *(self.integers(each) for each in zip(*bounds, strict=True))], **masks)

    def looking_up(self) -> None:
        """Slices at some places, or a part of them written over by another."""
        x, draw = self.value(1, 2, 3, 4, 5), self.random
        shape = self.shape(x)
        axis = draw.randrange(len(shape))
        if draw.random() < 0.5:
            sizes = draw.choice(((), (3,), (2, 2), (17,)))
            places = np.array([draw.randrange(shape[axis]) for _ in range(prod(sizes))]).reshape(sizes)
            self.node("GATHER", [x, self.integers(places)], axis=axis - len(shape) * draw.randrange(2))
        else:
            part = self.weights(*(draw.choice((size, draw.randint(1, size))) for size in shape))
            self.node("DYNAMIC_UPDATE_SLICE", [x, part, self.integers([draw.randint(-2, size) for size in shape])])

    def adding_up(self) -> None:
        x, draw = self.value(1, 2, 3, 4, 5), self.random
        options = {name: draw.random() < 0.5 for name in ("exclusive", "reverse")}
        self.node("CUMSUM", [x, self.integers(draw.randrange(len(self.shape(x))))], **options)

    def exact(self, *ranks: int) -> int | None:
        """An input: what is computed of it in steps differs nowhere by a step."""
        fitting = [v for v in self.inputs if len(self.shape(v)) in ranks]
        return self.random.choice(fitting) if fitting else None

    def comparing(self) -> None:
        x, draw = self.exact(1, 2, 3, 4), self.random
        if x is not None:
            part = tuple(size if draw.random() < 0.7 else 1 for size in self.shape(x))
            tests = self.typed(draw.choice(COMPARISONS), [x, self.weights(*part)], "bool")
            others = [v for v in self.values if self.shape(v) == self.shape(x)]
            self.node("SELECT_V2", [*tests, draw.choice(others), self.weights()])

    def counting(self) -> None:
        """Whole numbers, and back to floats."""
        x, draw = self.exact(1, 2, 3, 4), self.random
        dtype = draw.choice(("int32", "int64"))
        to, back = (
            {"in_data_type": a, "out_data_type": b} for a, b in (("FLOAT32", dtype.upper()), (dtype.upper(), "FLOAT32"))
        )
        scaled = None if x is None else self.node("MUL", [x, self.weights(low=5, high=9)])
        whole = () if scaled is None else self.typed("CAST", [scaled], dtype, **to)
        for op in draw.sample(WHOLE, draw.randint(0, 2)) if whole else ():
            number = np.array(draw.choice((-7, -2, 1, 3, 16)), dtype)
            other = self._add(Tensor("number", (), dtype, number))
            whole = self.typed(op, [*whole, other], dtype) or whole
        if whole:
            self.node("CAST", whole, **back)

    def ranking(self) -> None:
        x, draw = self.value(1, 2, 3, 4), self.random
        self.typed("TOPK_V2", [x, self.integers(draw.randint(1, self.shape(x)[-1]))], "float32", "int32")

    def finding(self) -> None:
        x, options = self.exact(1, 2, 3, 4), {"in_data_type": "INT32", "out_data_type": "FLOAT32"}
        if x is not None:
            axis, op = (
                self.integers(self.random.randrange(len(self.shape(x)))),
                self.random.choice(("ARG_MAX", "ARG_MIN")),
            )
            places = self.typed(op, [x, axis], "int32", output_type="INT32")
            if places:
                self.node("CAST", places, **options)

    def parting(self) -> None:
        x, draw = self.value(1, 2, 3, 4), self.random
        axis = draw.randrange(len(self.shape(x)))
        size = self.shape(x)[axis]
        if draw.random() < 0.3 and size < 9:
            self.typed("UNPACK", [x], *("float32",) * size, num=size, axis=axis)
        elif draw.random() < 0.5:
            count = draw.choice([n for n in range(1, min(size, 6) + 1) if size % n == 0])
            self.typed("SPLIT", [self.integers(axis), x], *("float32",) * count, num_splits=count)
        else:
            first = draw.randint(1, size)
            sizes = [first, -1] if first < size else [first]
            operands = [x, self.integers(sizes), self.integers(axis)]
            self.typed("SPLIT_V", operands, *("float32",) * len(sizes), num_splits=len(sizes))

    def repeating(self) -> None:
        x, draw = self.value(1, 2, 3, 4), self.random
        shape = self.shape(x)
        if draw.random() < 0.5:
            self.node("TILE", [x, self.integers([draw.choice((1, 1, 2, 3)) for _ in shape])])
        else:
            self.node("REVERSE_V2", [x, self.integers(draw.sample(range(len(shape)), 1))])

    def transposing(self) -> None:
        x = self.value(2, 3, 4, 5, 6)
        order = list(range(len(self.shape(x))))
        self.random.shuffle(order)
        self.node("TRANSPOSE", [x, self.integers(order)])

    def arithmetic(self) -> None:
        op, x = self.random.choice(BINARY), self.value()
        shape = self.shape(x)
        same = [v for v in self.values if self.shape(v) == shape]
        kind = self.random.random()
        if kind < 0.35 and op != "DIV":
            other = self.random.choice(same)
        else:
            keep = self.random.choice((0.5, 0.8))
            part = tuple(size if self.random.random() < keep else 1 for size in shape)
            part = part[self.random.randint(0, len(part)) :] if self.random.random() < 0.5 else part
            if kind < 0.8 or len(self.inputs) > 3 or op == "DIV":
                other = self.weights(*part, low=0.5, high=2)
            else:
                other = self.input(part)
        pair = [x, other] if op == "DIV" else self.random.sample((x, other), 2)
        activates = op in ("ADD", "SUB", "MUL", "DIV")
        options = {"fused_activation_function": self.random.choice(ACTIVATIONS)} if activates else {}
        self.node(op, pair, **options)

    def outer(self) -> None:
        """Both operands are repeated along some axis."""
        shape = self.any_shape(self.random.choice((2, 3, 4)))
        parts = [tuple(size if self.random.random() < 0.6 else 1 for size in shape) for _ in range(2)]
        self.node(self.random.choice(BINARY[:-1]), [self.input(part) for part in parts])

    def elementwise(self) -> None:
        x, op = self.value(), self.random.choice(UNARY)
        if op in ("SQRT", "RSQRT", "LOG"):
            x = self.node("ABS", [x]) or x
            x = self.node("ADD", [x, self.weights(low=0.5, high=1)]) or x
        if op == "EXP":
            x = self.node("TANH", [x]) or x
        alpha = self.random.choice((0.25, 1.5))
        options: dict[str, dict[str, Any]] = {"LEAKY_RELU": {"alpha": alpha}, "GELU": {"approximate": True}}
        self.node(op, [x], **options.get(op, {}))

    def prelu(self) -> None:
        x = self.value(2, 3, 4)
        shape = self.shape(x)
        alphas = ((1,) * (len(shape) - 2) + shape[-1:], shape[1:], (1,) * (len(shape) - 1), (*shape[1:-1], 1))
        self.node("PRELU", [x, self.weights(*self.random.choice(alphas))])

    def softmax(self) -> None:
        self.node("SOFTMAX", [self.value(1, 2, 3, 4)], beta=self.random.choice((1.0, 0.5)))

    def reduction(self) -> None:
        x = self.value(1, 2, 3, 4, 5)
        rank = len(self.shape(x))
        axes = self.random.sample(range(-rank, rank), self.random.randint(1, rank))
        if rank == 4 and self.random.random() < 0.4:
            axes = [1, 2]
        op = self.random.choice(REDUCTIONS)
        if op != "REDUCE_PROD" or prod(self.shape(x)) < 50:
            self.node(op, [x, self.integers(axes)], keep_dims=self.random.random() < 0.5)

    def reshaping(self) -> None:
        x = self.value()
        shape = self.shape(x)
        kind = self.random.randrange(6)
        if kind == 0:
            self.node("SQUEEZE", [x], squeeze_dims=())
        elif kind == 1 and len(shape) < 6:
            self.node("EXPAND_DIMS", [x, self.integers(self.random.randint(0, len(shape)))])
        else:
            self.node("RESHAPE", [x, self.integers(self.factors(prod(shape)))])

    def factors(self, size: int) -> list[int]:
        """`size` as a product of up to five sizes."""
        found = [size]
        for _ in range(self.random.randint(0, 4)):
            largest = found.pop(self.random.randrange(len(found)))
            divisor = self.random.choice([d for d in range(1, min(largest, 100) + 1) if largest % d == 0])
            found += [divisor, largest // divisor]
        return found

    def blocks(self) -> None:
        self.node(
            self.random.choice(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")),
            [self.value(4)],
            block_size=self.random.choice((1, 2, 3)),
        )

    OPERATORS = (
        *(conv, conv, conv, pointwise, depthwise, depthwise, transposed, dense, pooling, resizing, concatenation),
        *(packing, padding, slicing, striding, transposing, arithmetic, arithmetic, outer, elementwise, elementwise),
        *(prelu, softmax, reduction, reshaping, blocks, product, product, computed, looking_up, adding_up),
        *(comparing, counting, ranking, finding, parting, repeating),
    )

    def graph(self) -> Graph:
        """One to eight operators; the last value is an output, and so are some others, some twice."""
        wanted = self.random.randint(1, 8)
        for _ in range(50):
            if len(self.nodes) >= wanted:
                break
            self.random.choice(self.OPERATORS)(self)
        if not self.nodes:
            self.input((1, 4, 4, 3))
            self.node("RELU", [self.value()])
        made = [node.outputs[0] for node in self.nodes]
        outputs = [made[-1], *(i for i in made[:-1] if self.random.random() < 0.15)]
        if self.random.random() < 0.1:
            outputs.append(self.random.choice(outputs))
        self.random.shuffle(outputs)
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), tuple(outputs))


def _beside(shape: Shape, axis: int) -> Shape | None:
    """The sizes of all other axes; None where there is no such axis."""
    return (*shape[:axis], -1, *shape[axis + 1 :]) if axis < len(shape) else None


def graph_of(seed: int) -> Graph:
    """The graph of one seed, the same in every process."""
    return Draw(random.Random(seed)).graph()
