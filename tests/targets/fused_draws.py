"""Random graphs of what CUDA kernels compute together: attention, normalisations, depthwise and 1x1 convolutions."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np

from jitdelegate.ir.graph import Graph, Tensor
from tests.targets.random_graphs import ACTIVATIONS, Draw, Shape

LINES = (1, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 130)
NUMBERS = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 20, 24, 31, 32, 33, 40, 64, 65, 96, 130)
HIDDEN = (-1e4, -np.inf, -np.inf)


class FusedDraw(Draw):
    """Draws a graph of one to eight operators or such groups of them."""

    # attention

    def attention(self) -> None:
        """Scores of queries and keys, with what models do to them, their Softmax, and its product with values."""
        draw = self.random
        batch, kept, group = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3, 5)), draw.choice((1, 1, 1, 2, 3))
        heads, (rows, keys), (depth, columns) = kept * group, draw.choices(LINES, k=2), draw.choices(NUMBERS, k=2)
        if batch * heads * max(rows * keys, rows * depth, keys * depth, keys * columns) > 40_000:
            return
        columns = depth if draw.random() < 0.6 else columns
        if kept == heads and rows == keys and depth == columns and draw.random() < 0.4:
            query, key, value = self.joint(batch, heads, rows, depth)
        else:
            query = self.matrices(batch, heads, rows, depth)
            key, value = (self.matrices(batch, kept, keys, size) for size in (depth, columns))
        key, value = (self.repeated(one, group) for one in (key, value))
        adj_y = draw.random() < 0.6
        key = key if adj_y else self.turned(key, 0, 1, 3, 2)
        if draw.random() < 0.3:
            query = self.must("MUL", [query, self.weights(low=0.3, high=0.5)])
        scores = self.must("BATCH_MATMUL", [query, key], adj_x=False, adj_y=adj_y)
        for change in draw.sample((self.scaled, self.masked, self.hidden, self.gated), draw.randint(0, 2)):
            scores = change(scores)
        flat = draw.random() < 0.2
        if flat:
            scores = self.must("RESHAPE", [scores, self.integers([batch * heads, rows, keys])])
        weights = self.must("SOFTMAX", [scores], beta=draw.choice((1.0, 0.5, 3.0)))
        if flat:
            weights = self.must("RESHAPE", [weights, self.integers([batch, heads, rows, keys])])
        found = self.must("BATCH_MATMUL", [weights, value], adj_x=False, adj_y=False)
        if draw.random() < 0.6:
            found = self.turned(found, 0, 2, 1, 3)
            if draw.random() < 0.7:
                self.must("RESHAPE", [found, self.integers([batch, rows, heads * columns])])

    def must(self, op: str, inputs: list[int], **attrs: Any) -> int:
        """The output of an operator; the first operand where it is too large."""
        found = self.node(op, inputs, **attrs)
        return inputs[0] if found is None else found

    def matrices(self, batch: int, heads: int, rows: int, numbers: int) -> int:
        """[batch, heads, rows, numbers], made from an input or a value in one of several ways."""
        draw = self.random
        kind = draw.randrange(5)
        shape = (batch, heads, rows, numbers)
        same = [v for v in self.values if prod(self.shape(v)) == prod(shape)]
        if same and kind == 0:
            return self.must("RESHAPE", [draw.choice(same), self.integers(shape)])
        if kind == 1:
            return self.turned(self.start(batch, rows, heads, numbers), 0, 2, 1, 3)
        if kind == 2:
            joined = self.must(
                "RESHAPE", [self.start(batch, rows, heads * numbers), self.integers([batch, rows, heads, numbers])]
            )
            return self.turned(joined, 0, 2, 1, 3)
        if kind == 3:
            more = draw.randint(0, 3), draw.randint(0, 4)
            whole = self.start(batch, heads, rows + more[0], numbers + more[1])
            begin = [0, 0, draw.randint(0, more[0]), draw.randint(0, more[1])]
            return self.must("SLICE", [whole, self.integers(begin), self.integers(shape)])
        return self.start(*shape)

    def start(self, *shape: int) -> int:
        """An input, or what is made of one: a tensor that is stored as the precision says."""
        found = self.input(shape)
        return self.must("MUL", [found, self.weights(low=0.5, high=1)]) if self.random.random() < 0.6 else found

    def joint(self, batch: int, heads: int, rows: int, depth: int) -> list[int]:
        """Queries, keys and values that lie beside one another."""
        draw = self.random
        width = heads * depth
        whole = self.start(batch, rows, 3 * width)
        if draw.random() < 0.5:
            whole = self.must(
                "FULLY_CONNECTED",
                [self.start(batch, rows, 8), self.weights(3 * width, 8), self.weights(3 * width)],
                keep_num_dims=True,
            )
        found = []
        for at in range(3):
            part = self.must("SLICE", [whole, self.integers([0, 0, at * width]), self.integers([batch, rows, width])])
            part = self.must("RESHAPE", [part, self.integers([batch, rows, heads, depth])])
            found.append(self.turned(part, 0, 2, 1, 3))
        return found

    def turned(self, x: int, *order: int) -> int:
        return self.must("TRANSPOSE", [x, self.integers(order)])

    def repeated(self, x: int, group: int) -> int:
        """Each head several times."""
        batch, heads, rows, numbers = self.shape(x)
        if group == 1:
            return x
        apart = self.must("RESHAPE", [x, self.integers([batch, heads, 1, rows, numbers])])
        apart = self.must("BROADCAST_TO", [apart, self.integers([batch, heads, group, rows, numbers])])
        return self.must("RESHAPE", [apart, self.integers([batch, heads * group, rows, numbers])])

    def scaled(self, scores: int) -> int:
        return self.must("MUL", [scores, self.weights(low=0.3, high=1)])

    def gated(self, scores: int) -> int:
        return self.must("TANH", [scores])

    def part_of(self, shape: Shape) -> Shape:
        part = tuple(size if self.random.random() < 0.6 else 1 for size in shape)
        return part[self.random.randint(0, len(part)) :] if self.random.random() < 0.4 else part

    def masked(self, scores: int) -> int:
        part = self.part_of(self.shape(scores))
        other = self.input(part) if self.random.random() < 0.5 else self.weights(*part, low=-2, high=2)
        return self.must("ADD", self.random.sample((scores, other), 2))

    def hidden(self, scores: int) -> int:
        """Some scores hidden, by an addition or a choice, sometimes all of a row."""
        shape = self.part_of(self.shape(scores))
        numbers = np.random.default_rng(self.random.getrandbits(32))
        shown = numbers.uniform(size=shape) < self.random.choice((0.2, 0.5, 0.9))
        if self.random.random() < 0.7 and shape:
            shown[..., -1:] = True
        value = np.array(self.random.choice(HIDDEN), np.float32)
        if self.random.random() < 0.5:
            mask = self._add(Tensor("mask", shape, "float32", np.where(shown, np.float32(0), value)))
            return self.must("ADD", [scores, mask])
        mask = self._add(Tensor("mask", shape, "bool", shown))
        return self.must("SELECT_V2", [mask, scores, self._add(Tensor("hidden", (), "float32", value))])

    # normalisations

    def normalization(self) -> None:
        """A layer, group, instance or RMS normalisation, or a softmax, spelt out, along any axes."""
        x, draw = self.value(2, 3, 4), self.random
        rank = len(self.shape(x))
        axes = self.integers(
            draw.choice(([rank - 1], [rank - 1], sorted(draw.sample(range(rank), draw.randint(1, rank)))))
        )
        if draw.random() < 0.3:
            top = self.must("REDUCE_MAX", [x, axes], keep_dims=True)
            power = self.must("EXP", [self.must("SUB", [x, top])])
            self.must("DIV", [power, self.must("SUM", [power, axes], keep_dims=True)])
            return
        centred = x
        if draw.random() < 0.7:
            centred = self.must("SUB", [x, self.must("MEAN", [x, axes], keep_dims=True)])
        power = self.must("SQUARE", [centred]) if draw.random() < 0.5 else self.must("MUL", [centred, centred])
        variance = self.must("MEAN", [power, axes], keep_dims=True)
        shifted = self.must("ADD", [variance, self.weights(low=0.01, high=0.1)])
        if draw.random() < 0.6:
            found = self.must("MUL", [centred, self.must("RSQRT", [shifted])])
        else:
            found = self.must("DIV", [centred, self.must("SQRT", [shifted])])
        for op in draw.sample(("MUL", "ADD", "MUL"), draw.randint(0, 3)):
            found = self.must(op, [found, self.weights(*self.part_of(self.shape(x)), low=0.5, high=2)])

    # convolutions

    def start_image(self, channels: int) -> int:
        return self.start(self.random.choice((1, 1, 2, 3)), self.size(), self.size(), channels)

    def separable(self) -> None:
        """A depthwise convolution and a 1x1 convolution."""
        x = (
            self.value(4)
            if self.random.random() < 0.5
            else self.start_image(self.random.choice((4, 8, 12, 16, 20, 24, 32, 40, 72)))
        )
        self.filtered(x)

    def filtered(self, x: int) -> int | None:
        channels, draw = self.shape(x)[3], self.random
        filters, bias = self.weights(1, *self.square(), channels), self.weights(channels)
        operands = [x, filters, bias] if draw.random() < 0.9 else [x, filters]
        y = self.node("DEPTHWISE_CONV_2D", operands, depth_multiplier=1, **self.window(), **self.dilation())
        if y is None:
            return None
        if draw.random() < 0.15:
            y = self.must("MUL", [y, self.input(self.shape(y))])
        found = self.projected(y, draw.choice((1, 2, 3, 4, 8, 16, 17, 20, 33, 40, 64, 130)))
        if draw.random() < 0.3:
            found = self.must("ADD", [found, self.input(self.shape(found))])
        return found

    def projected(self, x: int, outputs: int, activation: str | None = None) -> int:
        activation = activation or self.random.choice(ACTIVATIONS)
        options = {"stride_h": 1, "stride_w": 1, "fused_activation_function": activation}
        return self.must(
            "CONV_2D", [x, self.weights(outputs, 1, 1, self.shape(x)[3]), self.weights(outputs)], **options
        )

    def residual(self) -> None:
        """A 1x1 convolution, then a depthwise one, then a 1x1 one, with or without a shortcut."""
        draw = self.random
        fitting = [v for v in self.values if len(self.shape(v)) == 4 and self.shape(v)[3] % 8 == 0]
        x = (
            draw.choice(fitting)
            if fitting and draw.random() < 0.5
            else self.start_image(draw.choice((8, 16, 24, 32, 40)))
        )
        wide = draw.choice((8, 16, 24, 40, 64, 72, 136))
        y = self.filtered(self.projected(x, wide, draw.choice(("RELU6", "NONE", "RELU"))))
        if y is not None and self.shape(y)[:3] == self.shape(x)[:3]:
            y = self.projected(y, self.shape(x)[3])
            self.must("ADD", draw.sample((x, y), 2))

    OPERATORS = (
        *(attention, attention, attention, normalization, normalization, separable, separable, residual, residual),
        *(Draw.elementwise, Draw.arithmetic, Draw.concatenation, Draw.parting, Draw.reshaping, Draw.transposing),
        *(Draw.dense, Draw.pointwise, Draw.looking_up, Draw.padding),
    )


def fused_graph_of(seed: int) -> Graph:
    """The graph of one seed, the same in every process."""
    return FusedDraw(random.Random(seed)).graph()
