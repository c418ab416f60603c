"""Resize: bilinear or nearest sampling, by tables of source rows and columns.

A bilinear sample mixes two rows and two columns. Where a row of the result has as many pixels as one of the image or
more, the two rows of integers are mixed first, as a whole and once for all samples. Floats wait for memory rather than
for arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from jitdelegate.ir.forms import Resize
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.resize import sample_places
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, INDEX, POINTER, Function, Value, register, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.pixels import Line, Pixels, Sample, pixel_jobs
from jitdelegate.targets.maths.cast import cast

TOGETHER = 4
"""Vectors of a row that are mixed in one round."""


def write_resize(writer: Writer, node: Node, form: Resize) -> list[Job]:
    """The jobs of a Resize node."""
    generator, (a, c) = writer.generator, writer.ends(node)
    between = _mixed_rows(generator, form, a, c)
    rows, columns = (
        _table(generator, form, a.layout.shape[axis], c.layout.shape[axis], distance)
        for axis, distance in ((1, a.layout.row), (2, (between or a).layout.pixel))
    )

    def pixels(kernel: Kernel) -> Pixels:
        f = kernel.f
        y_table, x_table = Value(f, POINTER, rows), Value(f, POINTER, columns)
        if between is None:
            row = partial(_corners_row, f, form, a.layout.dtype, y_table, x_table)
            return Pixels(row, row)
        row = partial(_columns_row, f, form, a.layout.dtype, x_table)
        return Pixels(row, row, prepared=partial(_mix_rows, kernel, form, a, between, y_table))

    return pixel_jobs(generator, "resize", a, c, writer.epilogue(node), pixels, between)


def _mixed_rows(generator: Generator, form: Resize, a: Memory, c: Memory) -> Memory | None:
    """Scratch memory for a mix of two rows; None where samples are computed from four pixels each."""
    _, _, columns, channels = a.layout.shape
    is_dense = not (a.layout.blocked or c.layout.blocked) and a.layout.pixel == channels * a.layout.element
    if form.kind != "bilinear" or form.weights == "float32" or not is_dense:
        return None
    if columns > c.layout.shape[2] or columns * channels < generator.lanes:
        return None
    layout = Layout((1, 1, columns, channels), generator.lanes, dtype="int32")
    generator.reserve_scratch(layout.size + 4 * generator.vector_bytes)  # a whole vector of bytes may be read
    return Memory("scratch", 0, layout)


def _mix_rows(kernel: Kernel, form: Resize, a: Memory, between: Memory, rows: Value, image: Value, y: Value) -> Value:
    """Mixes the two rows of the image around row `y` of the result; the address of the mix."""
    f, lanes, count = kernel.f, kernel.generator.lanes, a.layout.shape[2] * a.layout.shape[3]
    element, to = a.layout.element, kernel.pointer(between)
    low, high, part = _entry(f, register("int32"), rows, y)
    part, together = f.splat(part, lanes), TOGETHER if count >= TOGETHER * lanes else 1

    def round_(i: Value) -> None:
        first = f.minimum(i * (together * lanes), f.index(count - together * lanes))
        for number in range(together):
            at = first + number * lanes
            pair = (load(f, a.layout.dtype, image + (row + at * element), lanes, element) for row in (low, high))
            one, other = (cast(f, value, a.layout.dtype, "int32") for value in pair)
            f.store(_mixed(f, form, one, other, part), to + at * FLOAT_BYTES)

    f.loop(-(-count // (together * lanes)), round_)
    return to


def _columns_row(f: Function, form: Resize, dtype: str, columns: Value, y: Value) -> Line:
    """The pixels of a row, each from two pixels of a mix of rows."""
    calculated = "int64" if dtype == "int16" else "int32"

    def pixel(x: Value) -> Sample:
        low, high, part = _entry(f, register("int32"), columns, x)

        def sample(row: Value, lanes: int, mask: Value | None) -> Value:
            pair = (f.load(vector(lanes, register("int32")), row + column) for column in (low, high))
            one, other, along = (cast(f, value, "int32", calculated) for value in (*pair, f.splat(part, lanes)))
            return cast(f, _rounded(f, form, _mixed(f, form, one, other, along)), calculated, dtype)

        return sample

    return pixel


def _corners_row(f: Function, form: Resize, dtype: str, rows: Value, columns: Value, y: Value) -> Line:
    """The pixels of a row, each from the four pixels around it."""
    calculated = "float32" if form.weights == "float32" else ("int64" if dtype == "int16" else "int32")
    weight = FLOAT if calculated == "float32" else register(calculated)
    y_low, y_high, dy = _entry(f, weight, rows, y)

    def pixel(x: Value) -> Sample:
        x_low, x_high, dx = _entry(f, weight, columns, x)

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            def corner(y: Value, x: Value) -> Value:
                return load(f, dtype, image + y + x, lanes, ELEMENT_TYPES[dtype].nbytes, mask)

            if form.kind == "nearest":
                return corner(y_low, x_low)
            corners = [cast(f, corner(y, x), dtype, calculated) for x in (x_low, x_high) for y in (y_low, y_high)]
            down, along = f.splat(dy, lanes), f.splat(dx, lanes)
            if form.weights == "float32" and dtype != "float32":
                return cast(f, _mixed_as_reference(f, corners, down, along) + 0.5, calculated, dtype)
            left, right = (_mixed(f, form, corners[k], corners[k + 1], down) for k in (0, 2))
            total = _mixed(f, form, left, right, along)
            return total if dtype == "float32" else cast(f, _rounded(f, form, total), calculated, dtype)

        return sample

    return pixel


def _bits(form: Resize) -> int:
    """Bits of the weights of integers."""
    return int(form.weights.removeprefix("fixed"))


def _mixed(f: Function, form: Resize, low: Value, high: Value, part: Value) -> Value:
    """The number that lies `part` of the way from one to another; of integers, times all bits of a weight."""
    if low.is_float:
        return f.fma(high - low, part, low)
    return (high - low) * part + (low << _bits(form))


def _rounded(f: Function, form: Resize, total: Value) -> Value:
    """A mix of mixes without its bits, rounded half away from zero where there are 10, half up where there are 11."""
    bits = _bits(form)
    sign = f.ashr(total, total.bits - 1) if bits == 10 else 0
    return f.ashr(total + (1 << 2 * bits - 1) + sign, 2 * bits)


def _mixed_as_reference(f: Function, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
    """Quantized values as floats, in the order of operations of TFLite's reference kernel."""
    one = f.literal(dy.type, 1.0)
    (low_left, high_left), (low_right, high_right) = corners[:2], corners[2:]
    return (
        low_left * (one - dy) * (one - dx)
        + high_left * dy * (one - dx)
        + low_right * (one - dy) * dx
        + high_right * dy * dx
    )


def _entry(f: Function, weight: str, table: Value, index: Value) -> tuple[Value, Value, Value]:
    """The entry of a table, with a weight of type `weight`."""
    at = table + index * 24
    return f.load(INDEX, at, 8), f.load(INDEX, at + 8, 8), f.load(weight, at + 16, 4)


def _table(generator: Generator, form: Resize, source: int, target: int, distance: int) -> str:
    """[target][byte offset of the lower, byte offset of the upper, weight of the upper], 8 bytes each.

    The table is part of the code: offsets must not lie in the weights, whose file another process may overwrite.
    """
    low, high, weight = sample_places(form, source, target)
    table = np.zeros((target, 3), np.int64)
    table[:, 0] = low * distance
    table[:, 1] = high * distance
    table[:, 2] = weight.view(np.uint32) if weight.dtype == np.float32 else weight
    return generator.integers("places", table.reshape(-1).tolist())
