"""Which part of an NHWC image a thread computes: neighbouring threads take neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.division import DIVISOR_SIZES, coordinates, divisors
from jitdelegate.targets.cuda.gpu import Gpu

PARTS_SIZES = 1 + 3 * DIVISOR_SIZES
"""How many numbers `parts_sizes` has."""
FILLED = 64
"""Threads for each multiprocessor: with fewer, more threads gain more than what each of them reuses."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one thread computes.

    Attributes:
        exists: False past the last part.
        image, y, x: which tile of pixels.
        vector: which of its groups of neighbouring channels.
    """

    exists: Value
    image: Value
    y: Value
    x: Value
    vector: Value


def parts_sizes(parts: Sequence[int]) -> tuple[int, ...]:
    """The sizes that `part` takes, int32 arguments of a launch.

    Args:
        parts: images, tiles down, tiles across, groups of channels.
    """
    return (prod(parts), *divisors(parts))


def part(code: Code, index: Value, sizes: Sequence[Value]) -> Part:
    """Part number `index`; `sizes` start with the values of `parts_sizes`."""
    return Part(index < sizes[0], *coordinates(code, index, sizes[1:PARTS_SIZES]))


def fills(gpu: Gpu, threads: int) -> bool:
    """Whether so many threads occupy every multiprocessor."""
    return threads >= FILLED * gpu.multiprocessors
