"""Device code of implicit GEMM: finds the data of an output pixel, and the position of its results.

`conv_problem.py` makes the table that this code reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jitdelegate.targets.cuda.code.device_code import I16, I32, Code, Value
from jitdelegate.targets.cuda.code.sizes import Number

NOWHERE = -(2**30)
"""The row of the first tap of a pixel past the last one: all taps of this pixel are outside the image."""


class SourceSizes(NamedTuple):
    """Launch arguments about the data of a phase.

    Attributes:
        pixels, steps: lengths of M and K.
        height, width: size of an image of the data.
        pitch: elements between neighbouring pixels of the data.
        rows, columns: output pixels of the phase in an image.
        stride_y, stride_x, start_y, start_x: as in `Phase`.
    """

    pixels: Number
    steps: Number
    height: Number
    width: Number
    pitch: Number
    rows: Number
    columns: Number
    stride_y: Number
    stride_x: Number
    start_y: Number
    start_x: Number


class TargetPixels(NamedTuple):
    """Launch arguments about the positions of a phase's pixels in the output.

    Attributes:
        rows, columns: output pixels of the phase in an image.
        height, width: size of an image of the output.
        step_y, step_x, first_y, first_x: as in `Phase`.
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
        """The number, among the output's pixels, of pixel `number` of the phase."""
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
        y, x: the pixel's first tap in the image; in a direct problem, y is the number of the pixel's elements that may
            be read.
        element: index of the first tap's first element in the data.
    """

    y: Value
    x: Value
    element: Value


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The table's entry for a chunk of K; in a direct problem only `offset` is used."""

    offset: Value
    taps: Value


@dataclass(frozen=True, slots=True)
class PixelGather:
    """Device code that finds the data of pixels.

    Attributes:
        table: pointer to `ConvProblem.table`; not read if `direct`.
        width: elements of a chunk.
    """

    code: Code
    sizes: SourceSizes
    table: Value
    width: int
    direct: bool

    def row(self, pixel: Value, channel: Value | int) -> PixelRow:
        """Where the data of output pixel `pixel` begins; `channel` is the group's first channel.

        For a pixel past the last one, all chunks are outside the data.
        """
        code, sizes, real = self.code, self.sizes, pixel < self.sizes.pixels
        if self.direct:
            return PixelRow(code.select(real, sizes.steps, 0), pixel, pixel * sizes.pitch + channel)
        line = pixel // sizes.columns
        image = line // sizes.rows
        y = (line - image * sizes.rows) * sizes.stride_y + sizes.start_y
        x = (pixel - line * sizes.columns) * sizes.stride_x + sizes.start_x
        element = ((image * sizes.height + y) * sizes.width + x) * sizes.pitch + channel
        return PixelRow(code.select(real, y, NOWHERE), x, element)

    def entry(self, chunk: Value) -> TableEntry:
        """The table's entry for chunk number `chunk`, which may be in the padding of K."""
        if self.direct:
            offset = chunk * self.width
            return TableEntry(offset, offset)
        return TableEntry(*self.code.load(self.code.advanced(self.table, chunk, 8), 0, I32, 2))

    def entries(self, first: Value, count: int) -> list[TableEntry]:
        """The entries of `count` neighbouring chunks, two in an access where `first` is a multiple of an even count."""
        if self.direct or count % 2:
            return [self.entry(first + at) for at in range(count)]
        start = self.code.advanced(self.table, first, 8)
        pairs = [self.code.load(start, 8 * at, I32, 4) for at in range(0, count, 2)]
        return [TableEntry(*pair[at : at + 2]) for pair in pairs for at in (0, 2)]

    def chunk(self, row: PixelRow, entry: TableEntry) -> tuple[Value, Value]:
        """(whether a chunk of the row is inside the data, the index of its first element)."""
        return self.is_inside(row, entry), row.element + entry.offset

    def is_inside(self, row: PixelRow, entry: TableEntry) -> Value:
        """Whether a chunk of the row is inside the data."""
        if self.direct:
            return entry.offset < row.y
        code = self.code
        builder, taps = code.builder, entry.taps.value
        rows = Value(code, builder.sext(builder.trunc(taps, I16), I32))
        columns = Value(code, builder.ashr(taps, I32(16)))
        return code.within(row.y + rows, self.sizes.height) & code.within(row.x + columns, self.sizes.width)
