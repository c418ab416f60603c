"""Device code of implicit GEMM: where the data of an output pixel lies, and where its results go.

`conv_problem.py` says how the table is made that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.device_code import I16, I32, Code, Value
from jitdelegate.targets.cuda.sizes import Number

NOWHERE = -(2**30)
"""First row of a pixel past the last one: all its taps are outside."""


class SourceSizes(NamedTuple):
    """What a launch says of the data of a phase.

    Attributes:
        pixels, steps: lengths of M and K.
        height, width, channels: of an image of the data.
        rows, columns: output pixels of the phase in an image.
        stride_y, stride_x, start_y, start_x: as `Phase` has them.
    """

    pixels: Number
    steps: Number
    height: Number
    width: Number
    channels: Number
    rows: Number
    columns: Number
    stride_y: Number
    stride_x: Number
    start_y: Number
    start_x: Number


class PlaceSizes(NamedTuple):
    """What a launch says of the place of a phase's pixels in the output.

    Attributes:
        rows, columns: output pixels of the phase in an image.
        height, width: of an image of the output.
        step_y, step_x, first_y, first_x: as `Phase` has them.
    """

    rows: Number
    columns: Number
    height: Number
    width: Number
    step_y: Number
    step_x: Number
    first_y: Number
    first_x: Number

    def pixel(self, number: Value) -> Value:
        """Where pixel number `number` of the phase lies among the output's pixels."""
        line = number // self.columns
        image = line // self.rows
        y = (line - image * self.rows) * self.step_y + self.first_y
        x = (number - line * self.columns) * self.step_x + self.first_x
        pixel: Value = (image * self.height + y) * self.width + x
        return pixel


@dataclass(frozen=True, slots=True)
class PixelRow:
    """Where a pixel's data begins.

    Attributes:
        y, x: its first tap in the image; of a direct problem, y is how many elements of it may be read.
        element: the first tap's first element, from the start of the data.
    """

    y: Value
    x: Value
    element: Value


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A chunk of K: what the table says of it; of a direct problem, `offset` alone."""

    offset: Value
    taps: Value


@dataclass(frozen=True, slots=True)
class PixelGather:
    """Device code that finds the data of pixels.

    Attributes:
        table: pointer to `ConvProblem.table`; not read where `direct`.
        width: elements of a chunk.
    """

    code: Code
    sizes: SourceSizes
    table: Value
    width: int
    direct: bool

    def row(self, pixel: Value, channel: Value | int) -> PixelRow:
        """Where the data of output pixel `pixel` begins, a group's first channel being `channel`.

        A pixel past the last one has a place too, of which all chunks are outside.
        """
        code, sizes, real = self.code, self.sizes, pixel < self.sizes.pixels
        if self.direct:
            return PixelRow(code.select(real, sizes.steps, 0), pixel, pixel * sizes.channels + channel)
        line = pixel // sizes.columns
        image = line // sizes.rows
        y = (line - image * sizes.rows) * sizes.stride_y + sizes.start_y
        x = (pixel - line * sizes.columns) * sizes.stride_x + sizes.start_x
        element = ((image * sizes.height + y) * sizes.width + x) * sizes.channels + channel
        return PixelRow(code.select(real, y, NOWHERE), x, element)

    def entry(self, chunk: Value) -> TableEntry:
        """What the table says of chunk number `chunk`, which may be one of K's padding."""
        if self.direct:
            offset = chunk * self.width
            return TableEntry(offset, offset)
        return TableEntry(*self.code.load(self.table, chunk * 8, I32, 2))

    def chunk(self, row: PixelRow, entry: TableEntry) -> tuple[Value, Value]:
        """(whether a chunk of the row is inside the data, the index of its first element)."""
        code, index = self.code, row.element + entry.offset
        if self.direct:
            return entry.offset < row.y, index
        builder, taps = code.builder, entry.taps.value
        rows = Value(code, builder.sext(builder.trunc(taps, I16), I32))
        columns = Value(code, builder.ashr(taps, I32(16)))
        inside = code.within(row.y + rows, self.sizes.height) & code.within(row.x + columns, self.sizes.width)
        return inside, index
