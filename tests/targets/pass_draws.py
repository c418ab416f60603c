"""Random graphs of what the passes look for, with small differences: normalisations and softmax spelled out, attention,
shifted windows, dense blocks, sibling products, reductions of reductions, transposes round all of these."""

from __future__ import annotations

import random
from math import prod

from jitdelegate.ir.graph import Graph
from tests.targets.random_graphs import EXACT_UNARY, Draw, Shape


class PassDraw(Draw):
    """Draws a graph of many operators that belong together; further readers and outputs lie anywhere between."""

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def made(self, op: str, *inputs: int, **attrs: object) -> int:
        """The operator's result; its first operand where it does not fit."""
        found = self.node(op, inputs, **attrs)
        if found is None:
            return inputs[0]
        if self.chance(0.04):
            self.node(self.random.choice(EXACT_UNARY[:4]), [found])
        return found

    def scalar(self, low: float, high: float) -> int:
        return self.weights(*self.random.choice(((), (1,), (1, 1))), low=low, high=high)

    def shaped(self, x: int, shape: Shape) -> int:
        return self.made("RESHAPE", x, self.integers(shape))

    def turned(self, x: int, *order: int) -> int:
        return self.made("TRANSPOSE", x, self.integers(order))

    def reduced(self, op: str, x: int, axes: list[int]) -> int:
        """A reduction whose result broadcasts with `x`, as a rule."""
        keeps = self.chance(0.7)
        found = self.made(op, x, self.integers(axes), keep_dims=keeps)
        kept = [1 if axis in axes else size for axis, size in enumerate(self.shape(x))]
        return found if keeps or self.chance(0.1) or prod(kept) != prod(self.shape(found)) else self.shaped(found, kept)

    def both(self, op: str, a: int, b: int) -> int:
        """A commutative operator with its operands in any order."""
        return self.made(op, *self.random.sample((a, b), 2))

    def beside(self, x: int) -> int:
        """A tensor that broadcasts to `x`: numbers, an input, or another value."""
        shape = self.shape(x)
        part = tuple(size if self.chance(0.6) else 1 for size in shape)
        part = part[self.random.randint(0, len(part)) :] if self.chance() else part
        if self.chance(0.6) or len(self.inputs) > 4:
            return self.weights(*part, low=0.5, high=2)
        return self.input(part)

    # what the passes look for

    def normalized(self) -> None:
        """Layer, RMS, group or instance normalisation, or nearly."""
        x, choose = self.value(2, 3, 4), self.random.choice
        shape = self.shape(x)
        some = sorted(self.random.sample(range(len(shape)), self.random.randint(1, 2)))
        axes = [len(shape) - 1] if self.chance() else some
        if self.chance(0.3):
            x = self.both("ADD", x, self.beside(x))
        centred = x
        if self.chance(0.8):
            mean = self.reduced("MEAN", x, axes)
            centred = self.made(choose(("SUB", "SUB", "SUB", "ADD")), x, mean)
        other = axes if self.chance(0.9) else [self.random.randrange(len(shape))]
        if self.chance(0.3):
            squares = self.made("SQUARED_DIFFERENCE", x, mean if centred != x else x)
        elif self.chance():
            squares = self.made("SQUARE", centred)
        else:
            squares = self.made("MUL", centred, choose((centred, centred, x)))
        variance = self.reduced(choose(("MEAN", "MEAN", "SUM", "REDUCE_MAX")), squares, other)
        if self.chance(0.3):
            variance = self.made("MUL", variance, self.scalar(0.1, 1))
        variance = self.made("ADD", self.made("ABS", variance) if self.chance() else variance, self.scalar(0.01, 0.5))
        kind = self.random.random()
        if kind < 0.5:
            factor = self.made("RSQRT", variance)
            if self.chance():
                factor = self.both("MUL", factor, self.beside(x) if self.chance(0.7) else self.scalar(0.5, 2))
            result = self.both("MUL", choose((centred, centred, centred, x)), factor)
        else:
            result = self.made("DIV", centred, self.made("SQRT", variance))
        if self.chance(0.6):
            result = self.both("MUL", result, self.beside(result))
        if self.chance(0.6):
            result = self.both("ADD", result, choose((self.beside(result), x)))
        if self.chance(0.3):
            self.made(choose(("RELU", "GELU", "LOGISTIC", "TANH")), result)

    def softened(self) -> None:
        """A softmax of single operators, or nearly."""
        x = self.value(1, 2, 3, 4)
        axis = len(self.shape(x)) - 1 if self.chance(0.6) else self.random.randrange(len(self.shape(x)))
        if self.chance(0.3):
            x = self.made("MUL", x, self.scalar(0.2, 1))
        top = self.reduced("REDUCE_MAX" if self.chance(0.9) else "MEAN", x, [axis])
        difference = self.made("SUB", x, top)
        if self.chance(0.3):
            difference = self.both("MUL", difference, self.scalar(0.2, 1))
        powers = self.made("EXP", difference)
        total = self.reduced("SUM", powers, [axis] if self.chance(0.9) else [self.random.randrange(len(self.shape(x)))])
        if self.chance(0.2):
            self.made("LOG", total)
        if self.chance(0.8):
            self.made("DIV", powers, total)
        else:
            self.made("MUL", powers, self.made("DIV", self.weights(1, low=1, high=1), total))

    def operand(self, rows: int, heads: int, depth: int, source: int | None = None) -> int:
        """[1, heads, rows, depth] of an image's or a sequence's rows: a dense layer, a reshape and a transpose."""
        if source is None:
            source = self.input((1, rows, heads * depth))
        if self.chance():
            width = self.shape(source)[-1]
            weights = self.weights(heads * depth, width)
            bias = [self.weights(heads * depth)] if self.chance(0.7) else []
            source = self.made("FULLY_CONNECTED", source, weights, *bias, keep_num_dims=True)
        found = self.turned(self.shaped(source, (1, rows, heads, depth)), 0, 2, 1, 3)
        if self.chance(0.4):
            found = self.both("MUL", found, self.scalar(0.1, 1) if self.chance(0.8) else self.beside(found))
        return found

    def attention(self) -> None:
        """Scores, with a scale and a mask, a softmax and their product with values; queries may be keys or values."""
        choose = self.random.choice
        heads, depth, rows, keys = map(choose, ((1, 2, 3), (1, 4, 8, 16, 17), (1, 3, 8, 17, 33, 50), (1, 4, 8, 17, 40)))
        if self.chance(0.4):
            keys = rows
        data = self.input((1, rows, heads * depth)) if len(self.inputs) < 5 else None
        other = data if keys == rows and self.chance(0.7) else None
        query = self.operand(rows, heads, depth, data)
        key = query if keys == rows and self.chance(0.15) else self.operand(keys, heads, depth, other)
        value = choose((query, key)) if keys == rows and self.chance(0.15) else self.operand(keys, heads, depth, other)
        if self.chance(0.3):
            query, key, value = (self.shaped(each, (heads, *self.shape(each)[2:])) for each in (query, key, value))
        if self.chance():
            scores = self.made("BATCH_MATMUL", query, key, adj_x=False, adj_y=True)
        else:
            rank = len(self.shape(key))
            turned = self.turned(key, *range(rank - 2), rank - 1, rank - 2)
            scores = self.made("BATCH_MATMUL", query, turned, adj_x=False, adj_y=False)
        if self.chance(0.5):
            scores = self.both("MUL", scores, self.scalar(0.1, 1) if self.chance(0.8) else self.beside(scores))
        if self.chance(0.5):
            scores = self.both("ADD", scores, self.beside(scores))
        if self.chance(0.2):
            scores = self.shaped(scores, (prod(self.shape(scores)[:-1]) // rows, rows, self.shape(scores)[-1]))
        if self.chance(0.8):
            weights = self.made("SOFTMAX", scores, beta=1.0 if self.chance(0.7) else 0.5)
        else:
            weights = scores
        if len(self.shape(weights)) != len(self.shape(value)):
            weights = self.shaped(weights, (*self.shape(value)[:-2], rows, self.shape(weights)[-1]))
        result = self.made("BATCH_MATMUL", weights, value, adj_x=False, adj_y=False)
        if self.shape(result) == self.shape(query) and self.chance(0.3):
            same = value if self.shape(value) == self.shape(result) else query
            result = self.both("ADD", result, choose((query, same)))
        if self.chance(0.7):
            whole = self.shaped(result, (1, *self.shape(result))) if len(self.shape(result)) == 3 else result
            if len(self.shape(whole)) == 4:
                last = self.turned(whole, 0, 2, 1, 3)
                self.shaped(last, (1, self.shape(last)[1], prod(self.shape(last)[2:])))

    def scaled_product(self) -> None:
        """A product of operands with factors, moved afterwards, that may be read again beside the product."""
        size, batch = self.random.choice((2, 4, 8, 9)), self.random.choice((1, 2, 3))
        fitting = [v for v in self.values if prod(self.shape(v)) == batch * size * size]
        a, b = (
            self.shaped(self.random.choice(fitting), (batch, size, size))
            if fitting and self.chance()
            else self.input((batch, size, size))
            for _ in range(2)
        )
        ends = []
        for each in (a, b):
            if self.chance(0.7):
                each = self.made("MUL", each, self.scalar(0.2, 2)) if self.chance(0.8) else self.made("NEG", each)
            if self.chance(0.3):
                each = self.turned(each, *(self.random.sample(range(3), 3) if batch == size else (0, 2, 1)))
            ends.append(each)
        if self.chance(0.2):
            ends[1] = ends[0]
        if self.shape(ends[0]) != (batch, size, size) or self.shape(ends[1]) != (batch, size, size):
            return
        found = self.made("BATCH_MATMUL", *ends, adj_x=self.chance(), adj_y=self.chance())
        for _ in range(self.random.randint(0, 2)):
            found = self.both(self.random.choice(("ADD", "MUL")), found, self.random.choice((*ends, a, b, found)))

    def twice_reduced(self) -> None:
        """A reduction of a reduction, perhaps with a reshape between, or of elementwise work over a short axis."""
        x, choose = self.value(3, 4, 5), self.random.choice
        if self.chance(0.3):
            *leading, last = self.shape(x)
            if last % 2 == 0:
                x = self.shaped(x, (*leading, 2, last // 2) if self.chance() else (*leading, last // 2, 2))
        if self.chance(0.4):
            x = self.both("MUL", x, self.beside(x)) if self.chance() else self.made("SQUARE", x)
        for _ in range(self.random.randint(1, 3)):
            shape = self.shape(x)
            if not shape:
                break
            axes = self.random.sample(range(-len(shape), len(shape)), self.random.randint(1, min(2, len(shape))))
            op = choose(("SUM", "MEAN", "SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN"))
            x = self.made(op, x, self.integers(axes), keep_dims=self.chance())
            if self.chance(0.3):
                x = self.shaped(x, self.factors(prod(self.shape(x))))

    def shifted(self) -> None:
        """Rows or columns rolled, then cut into windows."""
        x = self.value(4)
        n, h, w, c = self.shape(x)
        for axis, size in ((1, h), (2, w)):
            if size > 1 and self.chance(0.8):
                cut = self.random.randint(1, size - 1)
                parts = []
                for first, count in ((0, cut), (cut, size - cut)):
                    begin, sizes = [0] * 4, list(self.shape(x))
                    begin[axis], sizes[axis] = first, count
                    parts.append(self.made("SLICE", x, self.integers(begin), self.integers(sizes)))
                order = parts[::-1] if self.chance(0.8) else self.random.choices(parts, k=self.random.randint(2, 3))
                x = self.made("CONCATENATION", *order, axis=axis - (4 if self.chance(0.3) else 0))
        n, h, w, c = self.shape(x)
        dh, dw = (self.random.choice([d for d in range(1, size + 1) if size % d == 0]) for size in (h, w))
        if self.chance(0.8):
            x = self.shaped(x, (n, h // dh, dh, w // dw, dw, c))
            x = self.turned(x, 0, 1, 3, 2, 4, 5)
            if self.chance(0.7):
                x = self.shaped(x, (n * (h // dh) * (w // dw), dh * dw, c))

    def dense_block(self) -> None:
        """Every layer reads all features before it, joined anew."""
        x = self.value(3, 4)
        axis = len(self.shape(x)) - 1
        features = [x]
        for _ in range(self.random.randint(2, 3)):
            joined = self.made("CONCATENATION", *features, axis=axis) if len(features) > 1 else x
            if self.chance(0.5):
                joined = self.made(self.random.choice(EXACT_UNARY), joined)
            count = self.random.choice((4, 8, 16, 3))
            if len(self.shape(x)) == 4 and self.chance(0.8):
                options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": "RELU"}
                size = self.random.choice((1, 3))
                filters = self.weights(count, size, size, self.shape(joined)[-1])
                layer = self.made("CONV_2D", joined, filters, self.weights(count), **options)
            else:
                filters = self.weights(count, self.shape(joined)[-1])
                layer = self.made("FULLY_CONNECTED", joined, filters, self.weights(count), keep_num_dims=True)
            features.append(layer if self.chance(0.9) else x)
        if self.chance(0.3):
            self.random.shuffle(features)
        self.made("CONCATENATION", *features, axis=axis)

    def siblings(self) -> None:
        """Several products of the same data, whose results meet again."""
        x = self.value(2, 3, 4)
        count, ends = self.random.choice((4, 8, 16, 5)), []
        for _ in range(self.random.randint(2, 3)):
            outputs = count if self.chance(0.7) else self.random.choice((4, 8, 12))
            width, bias = self.shape(x)[-1], [self.weights(outputs)]
            if len(self.shape(x)) == 4:
                options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
                made = self.made("CONV_2D", x, self.weights(outputs, 1, 1, width), *bias, **options)
            else:
                made = self.made("FULLY_CONNECTED", x, self.weights(outputs, width), *bias, keep_num_dims=True)
            if self.chance(0.4):
                made = self.both("MUL", made, self.weights(*self.random.choice(((outputs,), (1, outputs), ()))))
            if self.chance(0.3):
                made = self.made("RELU", made)
            ends.append(made)
        same = [each for each in ends if self.shape(each) == self.shape(ends[0])]
        if len(same) > 1:
            self.both(self.random.choice(("ADD", "MUL", "SUB")), same[0], same[1])
        else:
            self.made("CONCATENATION", *ends, axis=len(self.shape(ends[0])) - 1)

    def around(self) -> None:
        """A transpose, what may be done in either order of axes, and a transpose back, or nearly."""
        x = self.value(2, 3, 4, 5)
        order = self.random.sample(range(len(self.shape(x))), len(self.shape(x)))
        before, self.values = self.values, [self.turned(x, *order)]
        for _ in range(self.random.randint(1, 4)):
            self.random.choice(self.INSIDE)(self)
        self.values = [*before, *self.values]
        last = self.values[-1]
        if len(self.shape(last)) == len(order):
            self.turned(last, *map(order.index, range(len(order))))

    INSIDE = (
        *(Draw.elementwise, Draw.arithmetic, Draw.arithmetic, Draw.slicing, Draw.padding, Draw.parting, Draw.striding),
        *(Draw.reduction, Draw.dense, Draw.concatenation, Draw.softmax),
    )
    OPERATORS = (
        *((normalized, softened, attention, scaled_product, twice_reduced, shifted, dense_block, siblings, around) * 4),
        *(Draw.conv, Draw.pointwise, Draw.depthwise, Draw.dense, Draw.arithmetic, Draw.elementwise, Draw.reshaping),
        *(Draw.transposing, Draw.parting, Draw.concatenation, Draw.product, Draw.softmax, Draw.reduction, Draw.slicing),
    )


def pass_graph_of(seed: int) -> Graph:
    """The graph of one seed, the same in every process."""
    return PassDraw(random.Random(seed)).graph()
