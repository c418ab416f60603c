"""Pool and Resize: one channel block at a time, pixel by pixel. Windows are clipped to the image and need no halo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.forms import Pool, Resize
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ops.resize import sample_places
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.fold import Fold, pieces
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, divisor
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, INDEX, POINTER, Function, Value, register
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

CHUNK_ELEMENTS = 8192
"""Output elements that are worth a chunk of their own."""
UNROLLED_TAPS = 16
"""Windows with more taps than this are computed in loops, even where they lie inside the image."""

Pixel = Callable[[Function, Value, Value, Value], Value]
"""(function, image pointer at the channel block, y, x) -> the vector of one output pixel."""


@dataclass(frozen=True)
class Pixels:
    """How the pixels of an image are computed.

    Attributes:
        anywhere: computes any pixel.
        inside: computes pixels whose row and column lie in the ranges [start, stop) of `rows` and `columns`.
    """

    anywhere: Pixel
    inside: Pixel
    rows: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)


def write_pool(writer: Writer, node: Node, form: Pool) -> list[Job]:
    """The jobs of a Pool node."""
    return pool_jobs(writer.generator, form, *writer.ends(node), writer.epilogue(node))


def pool_jobs(generator: Generator, form: Pool, a: Memory, c: Memory, epilogue: Epilogue) -> list[Job]:
    """Mean or maximum over the part of each window that lies inside the image."""
    fold = Fold(form.kind, a.layout.dtype, epilogue.source)
    rows, columns = (_inside(form, axis, a.layout, c.layout) for axis in (0, 1))

    def pixels(kernel: Kernel, lanes: int) -> Pixels:
        def anywhere(f: Function, image: Value, y: Value, x: Value) -> Value:
            return _pool_pixel(f, fold, form, a.layout, lanes, image, y, x)

        def inside(f: Function, image: Value, y: Value, x: Value) -> Value:
            return _whole_pool_pixel(f, fold, form, a.layout, lanes, image, y, x)

        is_unrolled = form.kernel[0] * form.kernel[1] <= UNROLLED_TAPS
        return Pixels(anywhere, inside, rows, columns) if is_unrolled else Pixels(anywhere, anywhere)

    return _jobs(generator, "pool", a, c, epilogue, pixels)


def write_resize(writer: Writer, node: Node, form: Resize) -> list[Job]:
    """The jobs of a Resize node: bilinear or nearest sampling, by tables of source rows and columns."""
    a, c = writer.ends(node)
    tables = [
        _table(writer.generator, form, a.layout.shape[axis], c.layout.shape[axis], distance)
        for axis, distance in ((1, a.layout.row), (2, a.layout.pixel))
    ]

    def sampler(kernel: Kernel, lanes: int) -> Pixels:
        rows, columns = (Value(kernel.f, POINTER, table) for table in tables)

        def pixel(f: Function, image: Value, y: Value, x: Value) -> Value:
            return _resize_pixel(f, form, a.layout.dtype, lanes, image, (rows, y), (columns, x))

        return Pixels(pixel, pixel)

    return _jobs(writer.generator, "resize", a, c, writer.epilogue(node), sampler)


def _jobs(
    generator: Generator,
    name: str,
    a: Memory,
    c: Memory,
    epilogue: Epilogue,
    pixels_of: Callable[[Kernel, int], Pixels],
) -> list[Job]:
    """Chunks are rows of the output, with loops over blocks and pixels inside."""
    images, rows, columns, channels = c.layout.shape
    at_once = divisor(rows, CHUNK_ELEMENTS // (columns * channels))
    lanes, width = generator.lanes, _width(generator, a, c, epilogue)
    tail = epilogue.lanes_to_mask(c.layout) if width == lanes else 0

    def body(kernel: Kernel) -> None:
        f = kernel.f
        start = kernel.chunk * at_once
        image, first = start // rows, start % rows
        memories = [(a, a.layout.block), (c, c.layout.block), *((s.memory, s.block) for s in epilogue.streams)]
        distances = [a.layout.image, c.layout.image, *(s.image for s in epilogue.streams)]
        offsets = [0, 0, *(s.start for s in epilogue.streams)]
        bases = [
            kernel.pointer(memory) + (image * distance + offset)
            for (memory, _), distance, offset in zip(memories, distances, offsets, strict=True)
        ]
        moves = [block for _, block in memories]

        def block(number: Value, width: int, mask: Value | None = None, channel: int = 0) -> None:
            pixels = pixels_of(kernel, width)
            at = [
                base + channel * move // lanes + number * (move * width // lanes)
                for base, move in zip(bases, moves, strict=True)
            ]
            f.loop(at_once, lambda i: _row(f, pixels, at, first + i, c.layout, epilogue, mask))

        whole = channels // width if width > lanes else c.layout.blocks - (1 if tail else 0)
        if whole:
            f.loop(whole, lambda number: block(number, width))
        if tail:
            block(f.index(whole), width, f.first_lanes(f.index(tail), width))
        left = channels % width if width > lanes else 0
        if left and f.module.machine.avx512_lanes:
            part = 1 << (left - 1).bit_length()
            mask = f.first_lanes(f.index(left), part) if left < part else None
            block(f.index(0), part, mask, channels - left)
        elif left:
            for channel, part in pieces(channels, width):
                block(f.index(0), part, channel=channel)

    return [generator.job(name, images * rows // at_once, body, worth=images * rows / at_once)]


def _width(generator: Generator, a: Memory, c: Memory, epilogue: Epilogue) -> int:
    """Channels that are computed together: a whole vector as they are stored, or a block if there are blocks."""
    moving = [a, c, *(s.memory for s in epilogue.streams if s.block)]
    if any(memory.layout.blocked and memory.layout.width > 1 for memory in moving):
        return generator.lanes
    return max(generator.lanes, generator.vector_bytes // a.layout.element)


def _row(
    f: Function, pixels: Pixels, at: Sequence[Value], y: Value, c: Layout, epilogue: Epilogue, mask: Value | None
) -> None:
    image, target, *streams = at
    target = target + y * c.row
    streams = [p + y * s.row for p, s in zip(streams, epilogue.streams, strict=True)]

    def span(start: int, stop: int, pixel: Pixel) -> None:
        def one(i: Value) -> None:
            x = i + start
            extra = [p + x * s.pixel for p, s in zip(streams, epilogue.streams, strict=True)]
            epilogue.store(f, pixel(f, image, y, x), extra, target + x * c.pixel, mask)

        if start < stop:
            f.loop(stop - start, one)

    def inside() -> None:
        first, last = pixels.columns
        span(0, first, pixels.anywhere)
        span(first, last, pixels.inside)
        span(last, c.shape[2], pixels.anywhere)

    top, bottom = pixels.rows
    if (top, bottom) == (0, c.shape[1]):
        inside()
    elif top >= bottom:
        span(0, c.shape[2], pixels.anywhere)
    else:
        f.when(f.compare("ult", y - top, bottom - top), inside)
        f.when(f.compare("uge", y - top, bottom - top), lambda: span(0, c.shape[2], pixels.anywhere))


def _inside(form: Pool, axis: int, a: Layout, c: Layout) -> tuple[int, int]:
    """The output rows or columns, as [start, stop), whose windows lie inside the image; 0 <= start <= stop."""
    stride, padding, kernel = form.stride[axis], form.padding[2 * axis], form.kernel[axis]
    start = min(-(-padding // stride), c.shape[1 + axis])
    stop = min((a.shape[1 + axis] - kernel + padding) // stride + 1, c.shape[1 + axis])
    return start, max(start, stop)


def _whole_pool_pixel(
    f: Function, fold: Fold, form: Pool, layout: Layout, lanes: int, image: Value, y: Value, x: Value
) -> Value:
    """The pixel of a window that lies inside the image."""
    top, left = y * form.stride[0] - form.padding[0], x * form.stride[1] - form.padding[2]
    start = image + (top * layout.row + left * layout.pixel)
    sums, count = fold.sums(form.kernel[0] * form.kernel[1]), form.kernel[0] * form.kernel[1]
    total = sums.start(f, lanes)
    for i in range(form.kernel[0]):
        for j in range(form.kernel[1]):
            total = sums.combine(f, total, sums.load(f, start + (i * layout.row + j * layout.pixel), lanes))
    return fold.finished(f, cast(f, total, sums.result, fold.result), count, count)


def _pool_pixel(
    f: Function, fold: Fold, form: Pool, layout: Layout, lanes: int, image: Value, y: Value, x: Value
) -> Value:
    top, rows = _clip(f, y, form.stride[0], form.padding[0], form.kernel[0], layout.shape[1])
    left, columns = _clip(f, x, form.stride[1], form.padding[2], form.kernel[1], layout.shape[2])
    start, most = image + (top * layout.row + left * layout.pixel), form.kernel[0] * form.kernel[1]
    sums = fold.sums(most)

    def row(i: Value, total: Value) -> list[Value]:
        line = start + i * layout.row

        def column(j: Value, total: Value) -> list[Value]:
            return [sums.combine(f, total, sums.load(f, line + j * layout.pixel, lanes))]

        return f.loop(columns, column, total)

    (total,) = f.loop(rows, row, sums.start(f, lanes))
    if not fold.combiner.mean_of:
        return total
    return fold.finished(f, cast(f, total, sums.result, fold.result), rows * columns, most)


def _clip(f: Function, index: Value, stride: int, padding: int, kernel: int, size: int) -> tuple[Value, Value]:
    """(first source index of a window, number of its taps inside the image)."""
    first = index * stride - padding
    low = f.select(f.compare("slt", first, 0), f.index(0), first)
    end = first + kernel
    high = f.select(f.compare("slt", end, size), end, f.index(size))
    return low, high - low


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


def _resize_pixel(
    f: Function,
    form: Resize,
    dtype: str,
    lanes: int,
    image: Value,
    rows: tuple[Value, Value],
    columns: tuple[Value, Value],
) -> Value:
    calculated = "float32" if form.weights == "float32" else ("int64" if dtype == "int16" else "int32")
    weight = FLOAT if calculated == "float32" else register(calculated)
    (y_low, y_high, dy), (x_low, x_high, dx) = (_entry(f, weight, *axis) for axis in (rows, columns))

    def pixel(y: Value, x: Value) -> Value:
        return load(f, dtype, image + y + x, lanes, ELEMENT_TYPES[dtype].nbytes)

    if form.kind == "nearest":
        return pixel(y_low, x_low)
    corners = [pixel(y, x) for y, x in ((y_low, x_low), (y_high, x_low), (y_low, x_high), (y_high, x_high))]
    corners = [cast(f, corner, dtype, calculated) for corner in corners]
    dy, dx = f.splat(dy, lanes), f.splat(dx, lanes)
    if form.weights == "float32":
        mixed = _mixed(f, corners, dy, dx)
        return mixed if dtype == "float32" else cast(f, mixed + 0.5, calculated, dtype)
    bits = int(form.weights.removeprefix("fixed"))
    left, right = (low * ((1 << bits) - dy) + high * dy for low, high in (corners[:2], corners[2:]))
    total = left * ((1 << bits) - dx) + right * dx
    half = 1 << 2 * bits - 1
    if form.weights == "fixed11":
        return cast(f, f.ashr(total + half, 2 * bits), calculated, dtype)
    moved = total + f.select(f.compare("slt", total, 0), f.like(-half, total), half)
    return cast(f, f.sdiv(moved, f.like(1 << 2 * bits, moved)), calculated, dtype)


def _mixed(f: Function, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
    """Floats in the order of operations of TFLite's reference kernel."""
    one = f.literal(dy.type, 1.0)
    return (
        corners[0] * (one - dy) * (one - dx)
        + corners[1] * dy * (one - dx)
        + corners[2] * (one - dy) * dx
        + corners[3] * dy * dx
    )


def _entry(f: Function, weight: str, table: Value, index: Value) -> tuple[Value, Value, Value]:
    """The entry of a table, with a weight of type `weight`."""
    at = table + index * 24
    return f.load(INDEX, at, 8), f.load(INDEX, at + 8, 8), f.load(weight, at + 16, 4)
