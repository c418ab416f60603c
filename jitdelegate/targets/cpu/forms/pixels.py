"""Images that are computed pixel by pixel, for the writers of Pool and Resize.

The channels of a pixel follow each other in row-major images, and are computed together. In blocked ones they are far
apart, and one block is computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.fold import pieces
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory, divisor
from jitdelegate.targets.cpu.code.nest import moved
from jitdelegate.targets.cpu.code.vector_ir import Function, Value

CHUNK_ELEMENTS = 8192
"""Output elements that are worth a chunk of their own."""

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
        prepared: (pointer to the image, y) -> pointer to what the samples of this row read; None where that is the
            image.
    """

    anywhere: Row
    inside: Row
    rows: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)
    prepared: Callable[[Value, Value], Value] | None = None


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


def pixel_jobs(
    generator: Generator,
    name: str,
    a: Memory,
    c: Memory,
    epilogue: Epilogue,
    pixels_of: Callable[[Kernel], Pixels],
    between: Memory | None = None,
) -> list[Job]:
    """Chunks are rows of the output.

    Args:
        between: what samples read, where that is not the image `a`.
    """
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
        read = between or a
        moves = [read.layout.block, *(block for _, block in memories[1:])]

        def each_vector(part: Part, at: Sequence[Value], compute: Callable[[Sequence[Value]], None]) -> None:
            start = moved(at, part.first, [move // generator.lanes for move in moves])
            steps = [move * part.lanes // generator.lanes for move in moves]
            f.loop(part.count, lambda number: compute(moved(start, number, steps)))

        def store(part: Part, sample: Sample, at: Sequence[Value]) -> None:
            source, target, *streams = at
            mask = f.first_lanes(f.index(part.used), part.lanes) if part.used < part.lanes else None
            result = sample(source, part.lanes, mask if read.exact else None)
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
    image = pixels.prepared(image, y) if pixels.prepared else image
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
