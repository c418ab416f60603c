"""Fills the halos of images. Every run does so again, since several tensors use the same arena memory in turn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.element import store
from jitdelegate.targets.cpu.code.fold import pieces
from jitdelegate.targets.cpu.code.kernel import RANGES, Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, Value


def halo_jobs(generator: Generator, memory: Memory) -> list[Job]:
    """A job that fills the halos of all images; none if the layout has no halo.

    An image has as many chunks as a step has ranges, so that threads write near their own rows.
    """
    layout = memory.layout
    if not any(layout.halo):
        return []
    rows = layout.shape[1]
    parts = min(RANGES, rows)

    def body(kernel: Kernel) -> None:
        f = kernel.f
        part, image = kernel.chunk % parts, kernel.chunk // parts
        origin = kernel.pointer(memory) + (image * layout.image - layout.base)
        for owner, (start, size) in zip((0, parts - 1), _bands(layout), strict=True):
            if size:
                f.when(f.compare("eq", part, owner), partial(_fill, kernel, layout, origin + start, size))

        def row(y: Value) -> None:
            start = origin + (first + y + layout.halo[0]) * layout.row

            def block(b: Value) -> None:
                for offset, size in _sides(layout):
                    _fill(kernel, layout, start + b * layout.block + offset, size)

            f.loop(layout.blocks if layout.blocked else 1, block)

        first = part * rows // parts
        if any(layout.halo[2:]):
            f.loop((part + 1) * rows // parts - first, row)

    return [generator.job("halo", layout.shape[0] * parts, body, worth=0)]


def _bands(layout: Layout) -> Iterator[tuple[int, int]]:
    """(start, bytes) of the rows above and below an image."""
    top, bottom, _, _ = layout.halo
    yield 0, top * layout.row
    yield (top + layout.shape[1]) * layout.row, bottom * layout.row


def _sides(layout: Layout) -> Iterator[tuple[int, int]]:
    """(start, bytes) of the columns left and right of one row (of one block)."""
    _, _, left, right = layout.halo
    yield 0, left * layout.pixel
    yield (left + layout.shape[2]) * layout.pixel, right * layout.pixel


def _fill(kernel: Kernel, layout: Layout, start: Value, size: int) -> None:
    """Fills `size` bytes with elements of the halo's value."""
    f, generator = kernel.f, kernel.generator
    lanes = generator.vector_bytes // layout.element
    vectors, left = divmod(size, generator.vector_bytes)
    if vectors:
        value = f.constant(layout.dtype, layout.halo_value, lanes)
        f.loop(vectors, lambda i: store(f, layout.dtype, value, start + i * generator.vector_bytes))
    if left and layout.element < FLOAT_BYTES:
        for first, width in pieces(size // layout.element, lanes):
            value = f.constant(layout.dtype, layout.halo_value, width)
            store(f, layout.dtype, value, start + first * layout.element)
    elif left:
        rest, one = start + vectors * generator.vector_bytes, f.constant(layout.dtype, layout.halo_value)
        f.loop(left // layout.element, lambda i: store(f, layout.dtype, one, rest + i * layout.element))
