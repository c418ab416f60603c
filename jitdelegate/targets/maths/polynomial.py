"""Polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from jitdelegate.targets.maths.builder import Builder, V


def polynomial(b: Builder[V], x: V, coefficients: Sequence[float]) -> V:
    """Horner's scheme, highest coefficient first."""
    return reduce(lambda total, c: b.fma(total, x, c), coefficients[1:], b.like(coefficients[0], x))
