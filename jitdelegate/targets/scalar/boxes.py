"""Boxes, and how far they overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from jitdelegate.targets.scalar.builder import Builder, V


@dataclass(frozen=True)
class Boxes(Generic[V]):
    """The sides of one box, or of one per lane."""

    ymin: V
    xmin: V
    ymax: V
    xmax: V

    @property
    def area(self) -> V:
        return (self.ymax - self.ymin) * (self.xmax - self.xmin)


def overlap_exceeds(b: Builder[V], one: Boxes[V], other: Boxes[V], limit: Any) -> V:
    """Whether the boxes' intersection over union exceeds `limit`; False where a box has no area."""
    zero = b.like(0.0, one.ymin)
    height = b.maximum(b.minimum(one.ymax, other.ymax) - b.maximum(one.ymin, other.ymin), zero)
    width = b.maximum(b.minimum(one.xmax, other.xmax) - b.maximum(one.xmin, other.xmin), zero)
    shared = height * width
    exceeds = b.compare("ogt", shared / (one.area + other.area - shared), limit)
    return exceeds & (b.compare("ogt", one.area, 0.0) & b.compare("ogt", other.area, 0.0))
