"""Pool and Resize, pixel by pixel. Windows are clipped to the image and need no halo.

The channels of a pixel follow each other in row-major images, and are computed together. In blocked ones they are far
apart, and one block is computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

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
from jitdelegate.targets.cpu.code.nest import moved
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, INDEX, POINTER, Function, Value, register
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

CHUNK_ELEMENTS = 8192
"""Output elements that are worth a chunk of their own."""
UNROLLED_TAPS = 16
"""Windows with more taps than this are computed in loops, even where they lie inside the image."""

Sample = Callable[[Value, int, "Value | None"], Value]
"""(pointer to an image at some channels, number of lanes, mask of those to load) -> these channels of one output pixel.
"""
Line = Callable[[Value], Sample]
"""x -> the output pixel in this column of a row."""
Row = Callable[[Value], Line]
"""y -> this row of output pixels."""


@dataclass(frozen=True)
class Pixels:
    """How the pixels of an image are computed.

    Attributes:
        anywhere: computes any pixel.
        inside: computes pixels whose row and column lie in the ranges [start, stop) of `rows` and `columns`.
    """

    anywhere: Row
    inside: Row
    rows: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Part:
    """Channels that are computed by the same code: `count` vectors of `lanes`, from channel `first` on.

    Attributes:
        used: lanes that are channels, where a vector is not full; then there is one vector.
    """

    first: int
    count: int
    lanes: int
    used: int


def write_pool(writer: Writer, node: Node, form: Pool) -> list[Job]:
    """The jobs of a Pool node."""
    return pool_jobs(writer.generator, form, *writer.ends(node), writer.epilogue(node))


def pool_jobs(generator: Generator, form: Pool, a: Memory, c: Memory, epilogue: Epilogue) -> list[Job]:
    """Mean or maximum over the part of each window that lies inside the image."""
    fold = Fold(form.kind, a.layout.dtype, epilogue.source)
    rows, columns = (_inside(form, axis, a.layout, c.layout) for axis in (0, 1))

    def pixels(kernel: Kernel) -> Pixels:
        anywhere, inside = (partial(pixel, kernel.f, fold, form, a.layout) for pixel in (_pool_row, _whole_pool_row))
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

    def sampler(kernel: Kernel) -> Pixels:
        rows, columns = (Value(kernel.f, POINTER, table) for table in tables)
        row = partial(_resize_row, kernel.f, form, a.layout.dtype, rows, columns)
        return Pixels(row, row)

    return _jobs(writer.generator, "resize", a, c, writer.epilogue(node), sampler)


def _jobs(
    generator: Generator,
    name: str,
    a: Memory,
    c: Memory,
    epilogue: Epilogue,
    pixels_of: Callable[[Kernel], Pixels],
) -> list[Job]:
    """Chunks are rows of the output."""
    images, rows, columns, channels = c.layout.shape
    at_once = divisor(rows, CHUNK_ELEMENTS // (columns * channels))
    moving = [a, c, *(s.memory for s in epilogue.streams if s.block)]
    is_blocked = any(memory.layout.blocked and memory.layout.width > 1 for memory in moving)
    parts = _parts(generator, a, c, epilogue, is_blocked=is_blocked)

    def body(kernel: Kernel) -> None:
        f, pixels = kernel.f, pixels_of(kernel)
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

        def each_vector(part: Part, at: Sequence[Value], compute: Callable[[Sequence[Value]], None]) -> None:
            start = moved(at, part.first, [move // generator.lanes for move in moves])
            steps = [move * part.lanes // generator.lanes for move in moves]
            f.loop(part.count, lambda number: compute(moved(start, number, steps)))

        def store(part: Part, sample: Sample, at: Sequence[Value]) -> None:
            source, target, *streams = at
            mask = f.first_lanes(f.index(part.used), part.lanes) if part.used < part.lanes else None
            result = sample(source, part.lanes, mask if a.exact else None)
            epilogue.store(f, result, streams, target, mask)

        def all_rows(at: Sequence[Value], compute: Callable[[Sample, Sequence[Value]], None]) -> None:
            f.loop(at_once, lambda i: _row(f, pixels, at, first + i, c.layout, epilogue, compute))

        def all_parts(sample: Sample, at: Sequence[Value]) -> None:
            for part in parts:
                each_vector(part, at, partial(store, part, sample))

        if not is_blocked:
            all_rows(bases, all_parts)
            return
        for part in parts:
            each_vector(part, bases, partial(all_rows, compute=partial(store, part)))

    return [generator.job(name, images * rows // at_once, body, worth=images * rows / at_once)]


def _parts(generator: Generator, a: Memory, c: Memory, epilogue: Epilogue, *, is_blocked: bool) -> list[Part]:
    """All channels: whole vectors of the elements as they are stored, or blocks if there are blocks."""
    lanes, channels = generator.lanes, c.layout.shape[3]
    width = lanes if is_blocked else max(lanes, generator.vector_bytes // a.layout.element)
    if width == lanes:
        left = c.layout.tail if a.exact else epilogue.lanes_to_mask(c.layout)
        whole = c.layout.blocks - (1 if left else 0)
        rest = [Part(whole * lanes, 1, lanes, left)] if left else []
    else:
        whole, left = divmod(channels, width)
        if left and generator.machine.avx512_lanes:
            rest = [Part(channels - left, 1, 1 << (left - 1).bit_length(), left)]
        else:
            rest = [Part(first, 1, size, size) for first, size in pieces(channels, width)]
    return [Part(0, whole, width, width), *rest] if whole else rest


def _row(
    f: Function,
    pixels: Pixels,
    at: Sequence[Value],
    y: Value,
    c: Layout,
    epilogue: Epilogue,
    compute: Callable[[Sample, Sequence[Value]], None],
) -> None:
    """Computes each pixel of an output row, with pointers to the image, and to the output and the streams there."""
    image, target, *streams = at
    line = [target + y * c.row, *(p + y * s.row for p, s in zip(streams, epilogue.streams, strict=True))]
    steps = [c.pixel, *(s.pixel for s in epilogue.streams)]

    def span(start: int, stop: int, row: Row) -> None:
        if start < stop:
            sample = row(y)
            f.loop(stop - start, lambda i: compute(sample(i + start), [image, *moved(line, i + start, steps)]))

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


def _whole_pool_row(f: Function, fold: Fold, form: Pool, layout: Layout, y: Value) -> Line:
    """The pixels whose windows lie inside the image."""
    count = form.kernel[0] * form.kernel[1]
    sums = fold.sums(count)
    top = (y * form.stride[0] - form.padding[0]) * layout.row
    taps = [i * layout.row + j * layout.pixel for i in range(form.kernel[0]) for j in range(form.kernel[1])]

    def pixel(x: Value) -> Sample:
        start = top + (x * form.stride[1] - form.padding[2]) * layout.pixel

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            loaded = (sums.load(f, image + start + tap, lanes, mask) for tap in taps)
            total = reduce(partial(sums.combine, f), loaded, sums.start(f, lanes))
            return fold.finished(f, cast(f, total, sums.result, fold.result), count, count)

        return sample

    return pixel


def _pool_row(f: Function, fold: Fold, form: Pool, layout: Layout, y: Value) -> Line:
    top, rows = _clip(f, y, form.stride[0], form.padding[0], form.kernel[0], layout.shape[1])
    most = form.kernel[0] * form.kernel[1]
    sums = fold.sums(most)

    def pixel(x: Value) -> Sample:
        left, columns = _clip(f, x, form.stride[1], form.padding[2], form.kernel[1], layout.shape[2])
        start = top * layout.row + left * layout.pixel

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            first = image + start

            def row(i: Value, total: Value) -> list[Value]:
                line = first + i * layout.row

                def column(j: Value, total: Value) -> list[Value]:
                    return [sums.combine(f, total, sums.load(f, line + j * layout.pixel, lanes, mask))]

                return f.loop(columns, column, total)

            (total,) = f.loop(rows, row, sums.start(f, lanes))
            if not fold.combiner.mean_of:
                return total
            return fold.finished(f, cast(f, total, sums.result, fold.result), rows * columns, most)

        return sample

    return pixel


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


def _resize_row(f: Function, form: Resize, dtype: str, rows: Value, columns: Value, y: Value) -> Line:
    """The pixels of a row, of which the tables `rows` and `columns` say where they lie between the image's."""
    calculated = "float32" if form.weights == "float32" else ("int64" if dtype == "int16" else "int32")
    weight = FLOAT if calculated == "float32" else register(calculated)
    y_low, y_high, dy = _entry(f, weight, rows, y)

    def pixel(x: Value) -> Sample:
        x_low, x_high, dx = _entry(f, weight, columns, x)

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            def corner(y: Value, x: Value) -> Value:
                return load(f, dtype, image + (y + x), lanes, ELEMENT_TYPES[dtype].nbytes, mask)

            if form.kind == "nearest":
                return corner(y_low, x_low)
            corners = [cast(f, corner(y, x), dtype, calculated) for x in (x_low, x_high) for y in (y_low, y_high)]
            parts = f.splat(dy, lanes), f.splat(dx, lanes)
            if dtype == "float32":
                return _mixed_floats(f, corners, *parts)
            if form.weights == "float32":
                return cast(f, _mixed_as_reference(f, corners, *parts) + 0.5, calculated, dtype)
            bits = int(form.weights.removeprefix("fixed"))
            return cast(f, _mixed_integers(f, bits, corners, *parts), calculated, dtype)

        return sample

    return pixel


def _mixed_floats(f: Function, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
    """Floats in the order of operations of XNNPACK."""
    left, right = (f.fma(high - low, dy, low) for low, high in (corners[:2], corners[2:]))
    return f.fma(right - left, dx, left)


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


def _mixed_integers(f: Function, bits: int, corners: Sequence[Value], dy: Value, dx: Value) -> Value:
    """Integers by weights of so many bits; of 10 bits rounded half away from zero, of 11 bits half up."""
    left, right = ((high - low) * dy + (low << bits) for low, high in (corners[:2], corners[2:]))
    total = (right - left) * dx + (left << bits)
    sign = f.ashr(total, total.bits - 1) if bits == 10 else 0
    return f.ashr(total + (1 << 2 * bits - 1) + sign, 2 * bits)


def _entry(f: Function, weight: str, table: Value, index: Value) -> tuple[Value, Value, Value]:
    """The entry of a table, with a weight of type `weight`."""
    at = table + index * 24
    return f.load(INDEX, at, 8), f.load(INDEX, at + 8, 8), f.load(weight, at + 16, 4)
