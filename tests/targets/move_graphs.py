"""Random graphs of transposes and reshapes among operators, as converters from other axis orders write them."""

from __future__ import annotations

import random
from math import prod

from jitdelegate.ir.graph import Graph
from tests.targets.random_graphs import Draw


class MoveDraw(Draw):
    """Draws a graph whose values are often transposed, used, and transposed back."""

    def there_and_back(self) -> None:
        """A few operators in another order of axes."""
        x = self.value(2, 3, 4, 5)
        order = list(range(len(self.shape(x))))
        self.random.shuffle(order)
        self.apply(x, order)
        for _ in range(self.random.randint(1, 3)):
            self.random.choice(self.INSIDE)(self)
        y = self.values[-1]
        if len(self.shape(y)) == len(order):
            self.apply(y, [order.index(axis) for axis in range(len(order))])

    def apply(self, x: int, order: list[int]) -> None:
        self.node("TRANSPOSE", [x, self.integers(order)])

    def split_axis(self) -> None:
        """Swaps the parts of one axis, as channel shuffles and attention heads do."""
        x = self.value(2, 3, 4)
        shape = self.shape(x)
        axis = self.random.randrange(len(shape))
        parts = self.random.choice([d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])
        y = self.node("RESHAPE", [x, self.integers([*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]])])
        if y is not None:
            order = list(range(len(shape) + 1))
            other = self.random.randrange(len(order))
            order[axis], order[other] = order[other], order[axis]
            self.apply(y, order)

    def again(self) -> None:
        """A reshape that merges two axes, or the first reshape of a value back."""
        x = self.value(2, 3, 4, 5)
        shape = self.shape(x)
        axis = self.random.randrange(len(shape) - 1)
        self.node("RESHAPE", [x, self.integers([*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]])])

    def heads(self) -> None:
        """Products of the heads of two values, with every order of axes that attention has, joined again."""
        x, draw = self.value(2, 3), self.random
        *_, rows, width = self.shape(x)
        same = [v for v in self.values if self.shape(v)[-2:] == (rows, width) and len(self.shape(v)) < 4]
        parts = draw.choice([d for d in range(1, width + 1) if width % d == 0])
        size, turned = width // parts, draw.random() < 0.5
        sides = []
        for value, order in ((x, (0, 2, 1, 3)), (draw.choice(same), (0, 2, 3, 1) if turned else (0, 2, 1, 3))):
            count = prod(self.shape(value)) // (rows * width)
            split = self.node("RESHAPE", [value, self.integers([count, rows, parts, size])])
            if split is None:
                return
            self.apply(split, list(order))
            sides.append(self.values[-1])
        scores = self.node("BATCH_MATMUL", sides, adj_y=not turned)
        found = None if scores is None else self.node("BATCH_MATMUL", [scores, sides[0]], adj_x=draw.random() < 0.3)
        if found is not None:
            self.apply(found, [0, 2, 1, 3])
            self.node("RESHAPE", [self.values[-1], self.integers([-1, rows, width])])

    INSIDE = (
        *(Draw.elementwise, Draw.arithmetic, Draw.arithmetic, Draw.reduction, Draw.concatenation, Draw.padding),
        *(Draw.slicing, Draw.striding, Draw.softmax, Draw.product, Draw.dense, Draw.parting, Draw.packing, again),
    )
    OPERATORS = (
        *(
            (there_and_back,) * 8
            + (split_axis,) * 4
            + (heads,) * 4
            + (Draw.transposing, again, Draw.blocks, Draw.pointwise)
        ),
        *INSIDE,
    )


def move_graph_of(seed: int) -> Graph:
    """The graph of one seed, the same in every process."""
    return MoveDraw(random.Random(seed)).graph()
