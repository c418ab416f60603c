"""Pool: mean or maximum over the part of each window that lies inside the image.

Small windows are compiled in, so that all their loads are under way together. Others are walked at run time, and large
ones over few pixels are shared out to threads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, ClassVar

from jitdelegate.ir.forms import Pool
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import Element, common_width, load_where, store
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.image_parts import PARTS_SIZES, Part, part, parts_sizes
from jitdelegate.targets.cuda.template import Definition, Kind, Template, TensorPointer
from jitdelegate.targets.cuda.window import (
    AXIS_SIZES,
    LEAST_THREADS,
    Span,
    axis_sizes,
    block_threads,
    merged,
    slices_of,
    span,
    walk,
)
from jitdelegate.targets.cuda.writer import Writer

USUAL_TAPS = 9
"""Windows of up to so many taps are compiled in."""
TARGET_SIZES = 3
POOL_SIZES = PARTS_SIZES + 2 * AXIS_SIZES + TARGET_SIZES


@dataclass(frozen=True, eq=False)
class PoolTemplate(Template):
    """What all pooling kernels depend on.

    Attributes:
        kind: "mean" or "max".
        width: neighbouring channels of a thread.
        source, target: how data and output are stored.
    """

    family: ClassVar[str] = "pool"
    kind: str
    width: int
    source: Element
    target: Element
    epilogue: Epilogue

    @property
    @abstractmethod
    def parts(self) -> int:
        """Vectors of a block."""

    @abstractmethod
    def write(self, layer: Layer) -> None:
        """Writes the kernel."""

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def pool(code: Code, out: Any, data: Any, extra: Any, sizes: Any) -> None:
            self.write(Layer(self, code, out, data, extra, sizes))

        def kernel(out: Any, data: Any, extra: Any, sizes: Any) -> None:
            pool(out, data, extra, sizes)

        extra: Kind = ("pointer", len(self.epilogue.operands))
        return Definition(kernel, ("pointer", "pointer", extra, ("int32", POOL_SIZES)))

    def combined(self, code: Code, a: Value, b: Value) -> Value:
        """Two partial results as one."""
        return a + b if self.kind == "mean" else code.maximum(a, b)


class Layer:
    """The arguments of a pooling kernel, and what its ways of walking a window share."""

    def __init__(
        self,
        template: PoolTemplate,
        code: Code,
        out: Value,
        data: Value,
        extra: Sequence[Value],
        sizes: Sequence[Value],
    ) -> None:
        self.template, self.code = template, code
        self.out, self.data, self.extra, self.sizes = out, data, extra, sizes
        self.axes = sizes[PARTS_SIZES : PARTS_SIZES + AXIS_SIZES], sizes[PARTS_SIZES + AXIS_SIZES : -TARGET_SIZES]
        self.rows, self.columns, self.channels = sizes[-TARGET_SIZES:]

    def spans(self, me: Part) -> tuple[Span, Span]:
        """The rows and the columns under a part's window."""
        rows, columns = (span(self.code, place, axis) for place, axis in zip((me.y, me.x), self.axes, strict=True))
        return rows, columns

    def initial(self) -> list[Value]:
        """The values of no taps."""
        return [self.code.real(0 if self.template.kind == "mean" else -inf)] * self.template.width

    def add(self, inside: Value, me: Part, place: tuple[Value, Value], values: Sequence[Value]) -> list[Value]:
        """The values with one more pixel, at (y, x) of the data, where it is inside."""
        code, template = self.code, self.template
        height, width = self.axes[0][0], self.axes[1][0]
        index = ((me.image * height + place[0]) * width + place[1]) * self.channels + me.vector * template.width
        found = load_where(code, template.source, inside, self.data, index, template.width)
        pairs = zip(values, found, strict=True)
        if template.kind == "mean":
            return [a + b for a, b in pairs]
        return [code.select(inside & (a < b), b, a) for a, b in pairs]

    def finish(self, me: Part, spans: tuple[Span, Span], values: list[Value]) -> None:
        """Through the epilogue to the part's output pixel."""
        code, template = self.code, self.template
        if template.kind == "mean":
            share = 1.0 / code.to_float(spans[0].count * spans[1].count)
            values = [value * share for value in values]
        pixel, channel = (me.image * self.rows + me.y) * self.columns + me.x, me.vector * template.width
        results = template.epilogue.apply(code, values, pixel, channel, self.channels, self.extra)
        store(code, template.target, results, self.out, pixel * self.channels + channel)


@dataclass(frozen=True, eq=False)
class PoolUnrolled(PoolTemplate):
    """A window whose size, `kernel`, is compiled in; (rows, columns)."""

    kernel: tuple[int, int]

    @property
    def threads(self) -> int:
        return LEAST_THREADS

    @property
    def parts(self) -> int:
        return self.threads

    def write(self, layer: Layer) -> None:
        code = layer.code
        me = part(code, code.special("ctaid.x") * self.threads + code.special("tid.x"), layer.sizes)
        with code.when(me.exists):
            spans, values = layer.spans(me), layer.initial()
            rows, columns = (_taps(axis, count) for axis, count in zip(spans, self.kernel, strict=True))
            for row_inside, y in rows:
                for inside, x in columns:
                    values = layer.add(row_inside & inside, me, (y, x), values)
            layer.finish(me, spans, values)


def _taps(axis: Span, count: int) -> list[tuple[Value, Value]]:
    """(whether it is inside the image, its row or column) for each tap of an axis."""
    return [(axis.count > number, axis.start + axis.step * number) for number in range(count)]


@dataclass(frozen=True, eq=False)
class PoolWalk(PoolTemplate):
    """A window whose size comes with the launch.

    Attributes:
        slices: threads that share each window.
    """

    slices: int

    @property
    def threads(self) -> int:
        return block_threads(self.slices)

    @property
    def parts(self) -> int:
        return self.threads // self.slices

    def write(self, layer: Layer) -> None:
        code, thread = layer.code, layer.code.special("tid.x")
        me = part(code, code.special("ctaid.x") * self.parts + thread % self.parts, layer.sizes)
        spans = layer.spans(me)
        values = self._values(layer, me, spans, thread // self.parts)
        if self.slices > 1:
            values = merged(code, values, self.slices, lambda a, b: self.combined(code, a, b))
        with code.when(me.exists & (thread < self.parts)):
            layer.finish(me, spans, values)

    def _values(self, layer: Layer, me: Part, spans: tuple[Span, Span], slice_: Value) -> list[Value]:
        """Of this thread's share of the window."""
        rows, columns = spans

        def visit(exists: Value, row: Value, column: Value, values: Sequence[Value]) -> list[Value]:
            place = rows.start + row * rows.step, columns.start + column * columns.step
            return layer.add(me.exists & exists, me, place, values)

        return walk(layer.code, rows, columns, (slice_, self.slices), layer.initial(), visit)


def write_pool(writer: Writer, node: Node) -> None:
    """Launches of a Pool node."""
    form = node.form
    assert isinstance(form, Pool)
    source, target = node.inputs[0], node.outputs[0]
    epilogue, extra = writer.epilogue(node)
    data, output = writer.shape(source), writer.shape(target)
    elements = writer.element(source), writer.element(target)
    width = common_width((output[3],), min(element.widest for element in elements))
    common = form.kind, width, *elements, epilogue
    template: PoolUnrolled | PoolWalk
    if prod(form.kernel) <= USUAL_TAPS:
        template = PoolUnrolled(*common, form.kernel)
    else:
        template = PoolWalk(*common, slices_of(writer.gpu, prod(output) // width, prod(form.kernel)))
    parts = parts_sizes((*output[:3], output[3] // width))
    sizes = (*parts, *axis_sizes(form, 0, data[1]), *axis_sizes(form, 1, data[2]), *output[1:])
    arguments = (TensorPointer(target), writer.pointer(source), *extra, *sizes)
    writer.launch(template, (-(-parts[0] // template.parts), 1, 1), arguments)
