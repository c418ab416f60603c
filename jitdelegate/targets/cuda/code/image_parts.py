"""Assigns parts of an NHWC image to threads: neighbouring threads compute neighbouring channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.sizes import Number

FILLED = 64
"""Threads per multiprocessor, below which more threads gain more time than more reuse within each thread."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of the output that one thread computes.

    Attributes:
        exists: False past the last part.
        image, y, x: indices of the tile of pixels.
        vector: number of the group of neighbouring channels.
    """

    exists: Value
    image: Value
    y: Value
    x: Value
    vector: Value


class ImageSizes(NamedTuple):
    """Rows and columns of an image, and elements between neighbouring pixels."""

    rows: Number
    columns: Number
    pitch: Number

    def pixel(self, me: Part) -> Value:
        """The number of a part's pixel, where parts are single pixels."""
        pixel: Value = (me.image * self.rows + me.y) * self.columns + me.x
        return pixel


def part(code: Code, index: Value, parts: FourAxes) -> Part:
    """Part number `index`; `parts` are images, tiles down, tiles across and groups of channels."""
    return Part(index < parts.number, *parts.coordinates(code, index))


def fills(gpu: Gpu, threads: int) -> bool:
    """Whether this many threads occupy every multiprocessor."""
    return threads >= FILLED * gpu.multiprocessors
