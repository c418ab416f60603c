"""The fast Fourier transform of real rows, for targets to write.

A row of 2 * M numbers x is transformed as M complex numbers z[i] = x[2 * i] + 1j * x[2 * i + 1], in stages that need
no bit reversal (T. G. Stockham, "High-speed convolution and correlation", 1966). A stage has a `radix`, a `stride`, the
product of the radices before it, and `groups` = M / (radix * stride). With w(n) = exp(-2j * pi / n):
    after[q + stride * (radix * p + k)] = w(radix * groups) ** (p * k) * sum over j of
        before[q + stride * (p + groups * j)] * w(radix) ** (j * k), for q < stride, p < groups and k < radix.
From the transform Z of z follows that of x, X[k] for k = 0 ... M, with Z[M] = Z[0] and conj(a + 1j * b) = a - 1j * b:
    X[k] = (Z[k] + conj(Z[M - k])) / 2 + turn[k] * (Z[k] - conj(Z[M - k])), turn[k] = -1j / 2 * w(2 * M) ** k
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

Complex = tuple[Any, Any]
"""Real and imaginary part, values of a target."""
LARGEST_RADIX = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, as above."""

    radix: int
    stride: int
    groups: int

    def twiddles(self) -> np.ndarray:
        """complex128[groups, radix - 1]: the factors w ** (p * k), except for k = 0."""
        p, k = np.arange(self.groups)[:, None], np.arange(1, self.radix)
        return np.asarray(np.exp(-2j * np.pi * (p * k) / (self.radix * self.groups)))


def stages(count: int, first: int = 1) -> list[Stage]:
    """The stages of `count` complex numbers, powers of two; a `first` above 1 is the radix of the first stage."""
    found, stride = list[Stage](), 1
    while stride < count:
        left = count // stride
        radix = first if stride == 1 < first else 4 if left in (4, 16) else min(left, LARGEST_RADIX)
        found.append(Stage(radix, stride, left // radix))
        stride *= radix
    return found


def turns(count: int) -> np.ndarray:
    """complex128[count]: the factors turn[k] for M = `count`."""
    return np.asarray(-0.5j * np.exp(-1j * np.pi * np.arange(count) / count))


def small_transform(values: Sequence[Complex]) -> list[Complex]:
    """The transform of 1, 2, 4 or 8 values, in order."""
    half = len(values) // 2
    if not half:
        return list(values)
    pairs = list(zip(values[:half], values[half:], strict=True))
    sums = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
    rests = [_turned((a[0] - b[0], a[1] - b[1]), j * LARGEST_RADIX // len(values)) for j, (a, b) in enumerate(pairs)]
    both = zip(small_transform(sums), small_transform(rests), strict=True)
    return [value for pair in both for value in pair]


def _turned(value: Complex, eighths: int) -> Complex:
    """The value times w(8) ** eighths; 0 to 3 eighths."""
    real, imaginary = value
    if eighths == 0:
        return value
    if eighths == 1:
        return (real + imaginary) * sqrt(0.5), (imaginary - real) * sqrt(0.5)
    if eighths == 2:
        return imaginary, -real
    return (imaginary - real) * sqrt(0.5), (real + imaginary) * -sqrt(0.5)


def product(writer: Any, value: Complex, factor: Complex) -> Complex:
    """The product of two complex values; the target's `writer` has `fma`."""
    (a, b), (c, d) = value, factor
    return writer.fma(a, c, -(b * d)), writer.fma(a, d, b * c)


def real_transform(writer: Any, ahead: Complex, back: Complex, turn: Complex) -> Complex:
    """X[k] from `ahead` = Z[k], `back` = Z[M - k] and turn[k]."""
    (a, b), (c, d) = ahead, back
    real, imaginary = product(writer, (a - c, b + d), turn)
    return writer.fma(a + c, 0.5, real), writer.fma(b - d, 0.5, imaginary)
