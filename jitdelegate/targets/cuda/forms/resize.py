"""Resize: each thread interpolates or copies a few neighbouring channels of one output pixel, or of several below each
other, with positions from tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from jitdelegate.ir.forms import Resize
from jitdelegate.ir.graph import Node
from jitdelegate.ops.resize import sample_places
from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, load
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.image_parts import ImageSizes, fills, part
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.walks.window import LEAST_THREADS
from jitdelegate.targets.maths.cast import cast

Entry = tuple[Value, Value, Value]
"""Offsets of the lower and the upper neighbour, and the upper one's weight."""
MOST_HEIGHT, MOST_VALUES = 4, 16
"""Most pixels of a thread, and most of their values."""
WHOLE_BITS = {"fixed10": 10, "fixed11": 11}
"""Weights of whole parts -> bits of a part's fraction."""
ENTRY_WORDS = 4
"""Number of int32s in a table's entry, which one access reads."""


@dataclass(frozen=True, eq=False)
class ResizeTemplate(Template):
    """Sampling of an image's rows and columns.

    Attributes:
        kind: "bilinear" or "nearest".
        weights: as in `Resize`.
        width: neighbouring channels of a thread.
        height: output pixels of a thread, below each other.
        source, target: element types of data and output.
    """

    family: ClassVar[str] = "resize"
    threads: ClassVar[int] = LEAST_THREADS
    kind: str
    weights: str
    width: int
    source: Element
    target: Element
    epilogue: Epilogue
    height: int = 1

    @property
    def instructions(self) -> int:
        """Instructions of a thread, counted in machine code, without the epilogue."""
        return 45 + self.height * (28 + 11 * self.width if self.kind == "bilinear" else 10 + 2 * self.width)

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return "pointer", "pointer", ("pointer", "pointer"), extra, FourAxes, "int32", ImageSizes

    def write(
        self,
        code: Code,
        out: Value,
        data: Value,
        tables: Sequence[Value],
        extra: Sequence[Value],
        parts: FourAxes,
        image: Value,
        target: ImageSizes,
    ) -> None:
        """Args:
        image: elements between neighbouring images of the data.
        """
        me = part(code, self.thread(code), parts)
        with code.when(me.exists):
            channel = me.vector * self.width
            column = self._column(code, data, me.image * image + channel, self._entry(code, tables[1], me.x))
            rows = [me.y * self.height + at for at in range(self.height)]
            places = rows if self.height == 1 else [code.minimum(row, target.rows - 1) for row in rows]
            samples = [self._sample(code, self._entry(code, tables[0], y), column) for y in places]
            output = Output(code, self.epilogue, self.target, out, extra, target.pitch)
            for row, results in zip(rows, samples, strict=True):
                with code.when(row < target.rows) if self.height > 1 else nullcontext():
                    output.store(results, target.pixel(replace(me, y=row)), channel)

    def _column(self, code: Code, data: Value, start: Value, entry: Entry) -> Entry:
        """A column's entry with pointers to the neighbours in the first row; `start` is the image's first element at
        the part's channels."""
        left, right = (code.advanced(data, start + x, self.source.nbytes) for x in entry[:2])
        return left, right, entry[2]

    def _sample(self, code: Code, row: Entry, column: Entry) -> list[Value]:
        """One output pixel, from a row's entry and what `_column` made of a column's."""
        (top, bottom, dy), (left, right, dx) = row, column

        def pixel(y: Value, x: Value) -> list[Value]:
            return load(code, self.source, code.advanced(x, y, self.source.nbytes), code.integer(0), self.width)

        if self.kind == "nearest":
            return pixel(top, left)
        corners = pixel(top, left), pixel(bottom, left), pixel(top, right), pixel(bottom, right)
        if self.source.dtype != "float32":
            mix = self._mixed_floats if self.weights == "float32" else self._mixed_integers
            return [mix(code, pixels, dy, dx) for pixels in zip(*corners, strict=True)]
        parts = (1.0 - dy) * (1.0 - dx), dy * (1.0 - dx), (1.0 - dy) * dx, dy * dx
        return [_mixed(pixels, parts) for pixels in zip(*corners, strict=True)]

    def _mixed_floats(self, code: Code, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
        """Integers weighed in float32, in the order of TFLite's kernel, each product rounded."""
        wide = [cast(code, pixel, self.source.dtype, "float32") for pixel in corners]
        code.rounds_products = True
        pairs = ((1.0 - dy), (1.0 - dx)), (dy, (1.0 - dx)), ((1.0 - dy), dx), (dy, dx)
        shares = [pixel * down * across for pixel, (down, across) in zip(wide, pairs, strict=True)]
        code.rounds_products = False
        return code.to_integer(shares[0] + shares[1] + shares[2] + shares[3] + 0.5, self.source.dtype)

    def _mixed_integers(self, code: Code, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
        """Integers weighed by whole 1024ths or 2048ths of each axis."""
        bits, calculated = WHOLE_BITS[self.weights], "int64" if self.source.nbytes > 1 else "int32"
        top_left, bottom_left, top_right, bottom_right = (
            cast(code, pixel, self.source.dtype, calculated) for pixel in corners
        )
        dy, dx = (cast(code, weight, "int32", calculated) for weight in (dy, dx))
        above, before, half = (1 << bits) - dy, (1 << bits) - dx, 1 << 2 * bits - 1
        left, right = top_left * above + bottom_left * dy, top_right * above + bottom_right * dy
        total = left * before + right * dx
        if self.weights == "fixed11":
            return cast(code, code.ashr(total + half, 2 * bits), calculated, self.source.dtype)
        size = code.select(total < 0, -total, total) + half >> 2 * bits
        return cast(code, code.select(total < 0, -size, size), calculated, self.source.dtype)

    def _entry(self, code: Code, table: Value, place: Value) -> Entry:
        """The entry of `_table` for a row or column."""
        lower, upper, weight, _ = code.load(table, place * (4 * ENTRY_WORDS), I32, ENTRY_WORDS)
        return lower, upper, weight if self.weights in WHOLE_BITS else code.from_bits(weight)


def _mixed(pixels: Sequence[Value], parts: Sequence[Value]) -> Value:
    """The weighted sum of all pixels; `parts` are the weights."""
    first, *others = (pixel * share for pixel, share in zip(pixels, parts, strict=True))
    for other in others:
        first = first + other
    return first


def _table(form: Resize, source: int, target: int, distance: int) -> np.ndarray:
    """int32[target, 4]: for each sample, the offsets of its lower and upper neighbour in elements, the weight of the
    upper one as it is or as float32 bits, and an unused number; neighbours are `distance` elements apart."""
    lower, upper, weight = sample_places(form, source, target)
    bits = weight.view(np.int32) if weight.dtype == np.float32 else weight
    return np.stack([lower * distance, upper * distance, bits, np.zeros_like(lower)], axis=1).astype(np.int32)


def write_resize(writer: Writer, node: Node, form: Resize) -> None:
    """Writes the launches of a Resize node."""
    source, target = node.inputs[0], node.outputs[0]
    epilogue, extra = writer.epilogue(node)
    data, output = writer.shape(source), writer.shape(target)
    elements = writer.element(source), writer.element(target)
    grain = *writer.grain(source), *writer.output_grain(node)
    width = common_width((output[3], *grain), min(element.widest for element in elements))
    height, threads = min(MOST_HEIGHT, MOST_VALUES // width), prod(output) // width
    height = height if fills(writer.gpu, threads // height) and output[1] >= height else 1
    template = ResizeTemplate(form.kind, form.weights, width, *elements, epilogue, max(height, 1))
    pitch = writer.pitch(source)
    distances = data[2] * pitch, pitch
    tables = [
        writer.constant(_table(form, data[axis], output[axis], distance)) for axis, distance in enumerate(distances, 1)
    ]
    parts = FourAxes.of((output[0], -(-output[1] // template.height), output[2], output[3] // width))
    sizes = ImageSizes(output[1], output[2], writer.pitch(target))
    pointers = writer.pointer(target), writer.pointer(source), tables, extra
    writer.launch(
        template,
        template.grid(parts.number),
        [*pointers, parts, prod(data[1:3]) * pitch, sizes],
        products=template.instructions * parts.number,  # an instruction takes as long as a multiply-add
    )
