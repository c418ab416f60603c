"""What TopK and Suppress compare: ranks of elements, and boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from jitdelegate.targets.maths.builder import Builder, V

HIGHEST_INDEX = (1 << 31) - 1
NOTHING = -(1 << 63)
"""A rank below that of any element."""
FIRST = (1 << 63) - 1
"""A rank above that of any element."""


def rank(b: Builder[V], value: V, index: V) -> V:
    """An int64 that orders by the value, a float32 or int32, and equal values by the index, an int32, the first one
    highest."""
    key = value
    if value.is_float:
        bits = b.convert("bitcast", value + 0.0, "i32")  # -0.0 + 0.0 is 0.0, which -0.0 equals
        key = bits ^ (b.ashr(bits, 31) & HIGHEST_INDEX)
    high = b.convert("sext", key, "i64") << 32
    return high | b.convert("zext", HIGHEST_INDEX - index, "i64")


def index_of(b: Builder[V], ranked: V) -> V:
    """The index in a rank."""
    return HIGHEST_INDEX - b.convert("trunc", ranked, "i32")


@dataclass(frozen=True)
class Box(Generic[V]):
    """The sides of a box, or of a vector of boxes."""

    ymin: V
    xmin: V
    ymax: V
    xmax: V

    @property
    def area(self) -> V:
        return (self.ymax - self.ymin) * (self.xmax - self.xmin)


def overlap_exceeds(b: Builder[V], one: Box[V], other: Box[V], limit: V | float) -> V:
    """Whether the intersection of boxes that each have an area is more than `limit` times their union."""
    height = b.maximum(b.minimum(one.ymax, other.ymax) - b.maximum(one.ymin, other.ymin), 0.0)
    width = b.maximum(b.minimum(one.xmax, other.xmax) - b.maximum(one.xmin, other.xmin), 0.0)
    shared = height * width
    return b.compare("ogt", shared / (one.area + other.area - shared), limit)


def has_area(b: Builder[V], box: Box[V]) -> V:
    """Whether the area of a box is above 0."""
    return b.compare("ogt", box.area, 0.0)
