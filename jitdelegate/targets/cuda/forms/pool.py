"""Pool: mean or maximum over each window, or over its part that lies inside the image.

The sizes of small windows are compiled in, so that all loads of a window are in flight together. Kernels for other
windows loop over the taps at run time; where windows are large and pixels few, several threads share each window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, ClassVar

from jitdelegate.ir.forms import Pool
from jitdelegate.ir.graph import Node
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, load_where
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.image_parts import ImageSizes, Part
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.walks.window import Span, WindowAxis, WindowKernel, WindowTile, WindowWalk, slices_of
from jitdelegate.targets.maths.cast import cast

USUAL_TAPS = 9
"""Most taps of a window that is compiled in."""


@dataclass(frozen=True, eq=False)
class PoolTemplate(Template):
    """The fields that the code of all pooling kernels depends on.

    Attributes:
        kind: "mean" or "max".
        width: neighbouring channels of a thread.
        source, target: element types of data and output.
        zero: the zero point of the data, which is subtracted from a mean.
        halo: the value of pixels outside the image; None if they are left out.
    """

    family: ClassVar[str] = "pool"
    kind: str
    width: int
    source: Element
    target: Element
    zero: int
    halo: float | None
    epilogue: Epilogue

    @property
    def is_float(self) -> bool:
        return self.source.dtype == "float32"

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return "pointer", "pointer", extra, FourAxes, WindowAxis, WindowAxis, "int32", ImageSizes


class PoolKernel(WindowKernel):
    """The arguments of a pooling kernel, and the code shared by the compiled-in and the run-time windows."""

    def __init__(
        self,
        template: PoolTemplate,
        code: Code,
        out: Value,
        data: Value,
        extra: Sequence[Value],
        parts: FourAxes,
        rows: WindowAxis,
        columns: WindowAxis,
        pitch: Value,
        target: ImageSizes,
    ) -> None:
        """Args:
        pitch: elements between neighbouring pixels of the data.
        """
        super().__init__(code, parts, (rows, columns))
        self.template, self.data, self.pitch, self.target = template, data, pitch, target
        self.output = Output(code, template.epilogue, template.target, out, extra, target.pitch)

    def nothing(self) -> list[Value]:
        template, code = self.template, self.code
        if template.is_float:
            return [code.real(0 if template.kind == "mean" else -inf)] * template.width
        least = ELEMENT_TYPES[template.source.dtype].minimum
        return [code.integer(0 if template.kind == "mean" else least)] * template.width

    def add(
        self, me: Part, spans: tuple[Span, Span], exists: Value, row: Value, column: Value, values: Sequence[Value]
    ) -> list[Value]:
        y, x = (axis.start + place * axis.step for axis, place in zip(spans, (row, column), strict=True))
        return self.add_pixel(me, me.exists & exists, y, x, values)

    def add_pixel(self, me: Part, inside: Value, y: Value, x: Value, values: Sequence[Value]) -> list[Value]:
        """The values after one more pixel of the data; unchanged where the pixel is not inside the image."""
        code, template = self.code, self.template
        pixel = (me.image * self.axes[0].size + y) * self.axes[1].size + x
        index = pixel * self.pitch + me.vector * template.width
        pixel_values = self._widened(load_where(code, template.source, inside, self.data, index, template.width))
        pairs = zip(values, pixel_values, strict=True)
        if template.kind == "mean":
            return [a + b for a, b in pairs]
        return [code.select(inside & (a < b), b, a) for a, b in pairs]

    def _widened(self, values: list[Value]) -> list[Value]:
        """Integers as int32."""
        if self.template.is_float:
            return values
        return [cast(self.code, value, self.template.source.dtype, "int32") for value in values]

    def combined(self, a: Value, b: Value) -> Value:
        return a + b if self.template.kind == "mean" else self.code.maximum(a, b)

    def finish(self, me: Part, spans: tuple[Span, Span], values: list[Value]) -> None:
        count, template = spans[0].count * spans[1].count, self.template
        if template.halo is not None:
            taps = self.axes[0].kernel * self.axes[1].kernel
            values, count = [self._with_halo(value, taps - count) for value in values], taps
        if template.kind == "mean":
            values = self._means(values, count)
        elif not template.is_float:
            values = [cast(self.code, value, "int32", template.source.dtype) for value in values]
        self.output.store(values, self.target.pixel(me), me.vector * template.width)

    def _with_halo(self, value: Value, outside: Value) -> Value:
        """The sum or maximum of a window with so many pixels outside the image."""
        code, template = self.code, self.template
        assert template.halo is not None
        halo = code.like(template.halo if template.is_float else int(template.halo), value)
        if template.kind == "max":
            return code.select(outside > 0, code.maximum(value, halo), value)
        return value + halo * (code.to_float(outside) if template.is_float else outside)

    def _means(self, sums: list[Value], count: Value) -> list[Value]:
        """Sums of `count` numbers divided by it; integers are rounded, halves away from zero."""
        code = self.code
        if self.template.is_float:
            share = 1.0 / code.to_float(count)
            return [value * share for value in sums]
        centred = [value - count * self.template.zero for value in sums] if self.template.zero else sums
        half = count >> 1
        return [code.sdiv(code.select(value < 0, value - half, value + half), count) for value in centred]


@dataclass(frozen=True, eq=False)
class PoolUnrolled(WindowTile, PoolTemplate):
    """A window whose size, `kernel` = (rows, columns), is compiled in."""

    kernel: tuple[int, int]

    def write(self, code: Code, *arguments: Any) -> None:
        kernel = PoolKernel(self, code, *arguments)
        me = kernel.part(self.thread(code))
        code.await_launches()
        with code.when(me.exists):
            spans, values = kernel.spans(me), kernel.nothing()
            rows, columns = (_taps(axis, count) for axis, count in zip(spans, self.kernel, strict=True))
            for row_inside, y in rows:
                for inside, x in columns:
                    values = kernel.add_pixel(me, row_inside & inside, y, x, values)
            kernel.finish(me, spans, values)


def _taps(axis: Span, count: int) -> list[tuple[Value, Value]]:
    """For each tap of an axis: (whether the tap is inside the image, its row or column)."""
    return [(axis.count > number, axis.start + axis.step * number) for number in range(count)]


@dataclass(frozen=True, eq=False)
class PoolWalk(WindowWalk, PoolTemplate):
    """A window whose size is a launch argument.

    Attributes:
        slices: number of threads that share each window.
    """

    slices: int

    def write(self, code: Code, *arguments: Any) -> None:
        self.write_walk(PoolKernel(self, code, *arguments))


def write_pool(writer: Writer, node: Node, form: Pool) -> None:
    """Writes the launches of a Pool node."""
    source, target = node.inputs[0], node.outputs[0]
    epilogue, extra = writer.epilogue(node)
    data, output = writer.shape(source), writer.shape(target)
    elements = writer.element(source), writer.element(target)
    grain = *writer.grain(source), *writer.output_grain(node)
    width = common_width((output[3], *grain), min(element.widest for element in elements))
    common = form.kind, width, *elements, form.input_zero, form.halo_value, epilogue
    template: PoolUnrolled | PoolWalk
    if prod(form.kernel) <= USUAL_TAPS:
        template = PoolUnrolled(*common, form.kernel)
    else:
        template = PoolWalk(*common, slices_of(writer.gpu, prod(output) // width, prod(form.kernel)))
    parts = FourAxes.of((*output[:3], output[3] // width))
    axes = [WindowAxis.of(form, axis, data[1 + axis]) for axis in range(2)]
    sizes = ImageSizes(output[1], output[2], writer.pitch(target))
    arguments = [writer.pointer(target), writer.pointer(source), extra, parts, *axes, writer.pitch(source), sizes]
    writer.launch(template, (-(-parts.number // template.parts), 1, 1), arguments)
