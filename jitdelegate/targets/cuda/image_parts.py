"""Which part of an NHWC image a thread computes: neighbouring threads take neighbouring channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.axes import FourAxes
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.sizes import Number

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


class ImageSizes(NamedTuple):
    """Rows, columns and channels of an image."""

    rows: Number
    columns: Number
    channels: Number

    def pixel(self, me: Part) -> Value:
        """Number of a part's pixel, where parts are single pixels."""
        pixel: Value = (me.image * self.rows + me.y) * self.columns + me.x
        return pixel


def part(code: Code, index: Value, parts: FourAxes) -> Part:
    """Part number `index` of images, tiles down, tiles across, groups of channels."""
    return Part(index < parts.number, *parts.coordinates(code, index))


def fills(gpu: Gpu, threads: int) -> bool:
    """Whether so many threads occupy every multiprocessor."""
    return threads >= FILLED * gpu.multiprocessors
