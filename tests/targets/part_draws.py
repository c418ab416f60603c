"""Random graphs whose branches meet in concatenations, and whose concatenations are cut again, as in networks with
dense blocks, skip connections and channel shuffles."""

from __future__ import annotations

import random

from jitdelegate.ir.graph import Graph
from tests.targets.random_graphs import Draw


class PartDraw(Draw):
    """Draws a graph whose values are often parts of others."""

    def branches(self) -> None:
        """Several results of one value, or of its slices, that are joined along an axis, some of them twice."""
        x, draw = self.value(4, 4, 3, 2), self.random
        ends = [self.branch(x) for _ in range(draw.randint(2, 4))]
        if draw.random() < 0.3:
            ends.append(x)
        axis = len(self.shape(x)) - 1 if draw.random() < 0.7 else draw.randrange(len(self.shape(x)))
        rest = self.without(ends[0], axis)
        ends = [end for end in ends if self.without(end, axis) == rest]
        joined = self.node("CONCATENATION", draw.choices(ends, k=draw.randint(len(ends), 5)), axis=axis)
        if joined is not None and draw.random() < 0.4:
            self.shuffled(joined)
        if draw.random() < 0.6:
            self.parting()
            self.branch(self.values[-1])

    def without(self, index: int, axis: int) -> tuple[int, ...]:
        """The shape of a value without an axis."""
        shape = self.shape(index)
        return (*shape[:axis], *shape[axis + 1 :])

    def branch(self, x: int) -> int:
        """A value made from another one; it has the same rows and columns where it can."""
        before = self.values[-1]
        self.values.append(x)
        self.random.choice(self.INSIDE)(self)
        made = self.values[-1]
        self.values.append(before)
        return made

    def shuffled(self, x: int) -> None:
        """The channels in another order."""
        shape = self.shape(x)
        parts = self.random.choice([d for d in range(1, shape[-1] + 1) if shape[-1] % d == 0])
        split = self.node("RESHAPE", [x, self.integers([*shape[:-1], parts, shape[-1] // parts])])
        if split is not None:
            rank = len(shape) - 1
            turned = self.node("TRANSPOSE", [split, self.integers([*range(rank), rank + 1, rank])])
            if turned is not None:
                self.node("RESHAPE", [turned, self.integers(shape)])

    def same_size(self) -> None:
        """A resize to the size of another image."""
        x = self.value(4)
        size = self.shape(self.random.choice([v for v in self.values if len(self.shape(v)) == 4]))[1:3]
        self.node("RESIZE_BILINEAR", [x, self.integers(size)], half_pixel_centers=True)

    INSIDE = (
        *(Draw.pointwise, Draw.pointwise, Draw.elementwise, Draw.arithmetic, Draw.slicing, Draw.parting, same_size),
        *(Draw.conv, Draw.depthwise, Draw.pooling, Draw.dense),
    )
    OPERATORS = (
        *((branches,) * 12 + (Draw.parting, Draw.concatenation, Draw.packing) * 2),
        *(Draw.reshaping, Draw.product, Draw.softmax, Draw.reduction, Draw.transposing, Draw.padding, same_size),
    )


def part_graph_of(seed: int) -> Graph:
    """The graph of one seed, the same in every process."""
    return PartDraw(random.Random(seed)).graph()
