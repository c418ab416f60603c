"""Winograd's algorithms for filters of three taps: their matrices, and their application to vectors.

Data of a tile are a polynomial, which is evaluated at 0, at pairs of points p and -p, and at infinity. Products there
give what becomes two results for each pair. Filters are transformed when the model is compiled, in float64.

Sources: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (https://arxiv.org/abs/1509.09308); Barabasz
et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks
(https://arxiv.org/abs/1803.10986), on points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import numpy as np

from jitdelegate.targets.cpu.code.vector_ir import Function, Value

Stages = tuple[np.ndarray, np.ndarray]
"""A matrix as a product of two sparse ones, the right one first: a pair of points shares even and odd parts."""
TAPS = np.arange(3)


@dataclass(frozen=True)
class Algorithm:
    """F(step, 3).

    Attributes:
        points: p of each pair of points.
        scale_bits: bits by which filters are longer, so that those of integers are integers.
    """

    points: tuple[float, ...]
    scale_bits: int = 0

    @property
    def step(self) -> int:
        """Results along a side of a tile."""
        return 2 * len(self.points)

    @property
    def side(self) -> int:
        """Data along a side of a tile."""
        return self.step + 2

    @property
    def positions(self) -> int:
        """Products of a tile and a channel."""
        return self.side**2

    @property
    def _pairs(self) -> Iterable[tuple[int, float]]:
        """(number of the position at p, p) of each pair; that at -p follows."""
        return zip(range(1, self.side - 1, 2), self.points, strict=True)

    @cached_property
    def filter(self) -> np.ndarray:
        """f64[side, 3]: taps -> numbers."""
        numbers = np.zeros((self.side, len(TAPS)))
        numbers[0, 0], numbers[-1, -1] = 1 / _even(self.points)[0], 1
        for even, p in self._pairs:
            scale = 2 * p**2 * prod(p**2 - other**2 for other in self.points if other != p)
            numbers[even], numbers[even + 1] = p**TAPS / scale, (-p) ** TAPS / scale
        return numbers * float(1 << self.scale_bits)

    @cached_property
    def data(self) -> Stages:
        """Data -> numbers."""
        first, second = np.zeros((self.side, self.side)), np.eye(self.side)
        all_points = _even(self.points)
        first[0, : len(all_points)] = first[-1, 1 : 1 + len(all_points)] = all_points
        for even, p in self._pairs:
            others = _even([other for other in self.points if other != p])
            first[even, 2 : 2 + len(others)] = first[even + 1, 1 : 1 + len(others)] = others
            second[even : even + 2, even : even + 2] = (1, p), (1, -p)
        return first, second

    @cached_property
    def results(self) -> Stages:
        """Sums -> results."""
        first, second = np.eye(self.side), np.zeros((self.step, self.side))
        second[0, 0] = second[-1, -1] = 1
        for even, p in self._pairs:
            first[even : even + 2, even : even + 2] = (1, 1), (1, -1)
            for power in range(self.step):
                second[power, even + power % 2] = p**power
        return first, second


def _even(points: Iterable[float]) -> np.ndarray:
    """The coefficients of the product of t**2 - p**2 over all points, the lowest first."""
    return reduce(np.convolve, [(-(p**2), 0, 1) for p in points], np.ones(1))


def applied(f: Function, stages: Stages, values: Sequence[Value]) -> list[Value]:
    """The product of a matrix and vectors."""
    for stage in stages:
        values = [_sum(f, [term for term in zip(row, values, strict=True) if term[0]]) for row in stage.tolist()]
    return list(values)


def _sum(f: Function, terms: Sequence[tuple[float, Value]]) -> Value:
    (factor, total), *others = sorted(terms, key=lambda term: term[0] != 1)  # the first one rather needs no product
    total = total if factor == 1 else total * factor
    for factor, value in others:
        if abs(factor) == 1:
            total = total + value if factor == 1 else total - value
        else:
            total = f.fma(value, factor, total)
    return total
