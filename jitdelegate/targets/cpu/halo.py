"""Clears the halos of images. Every run does so again, since several tensors use the same arena memory in turn."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.vector_ir import FLOAT, FLOAT_BYTES, Value


def halo_jobs(generator: Generator, memory: Memory) -> list[Job]:
    """A job whose chunks each clear the halo of one image; none if the layout has no halo."""
    layout = memory.layout
    if not any(layout.halo):
        return []

    def body(kernel: Kernel) -> None:
        origin = kernel.pointer(memory) + (kernel.chunk * layout.image - layout.base)
        for start, size in _bands(layout):
            _clear(kernel, origin + start, size)

        def row(y: Value) -> None:
            start = origin + (y + layout.halo[0]) * layout.row

            def block(b: Value) -> None:
                for offset, size in _sides(layout):
                    _clear(kernel, start + b * layout.block + offset, size)

            kernel.f.loop(layout.blocks if layout.blocked else 1, block)

        if any(layout.halo[2:]):
            kernel.f.loop(layout.shape[1], row)

    return [generator.job("halo", layout.shape[0], body)]


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


def _clear(kernel: Kernel, start: Value, size: int) -> None:
    f, generator = kernel.f, kernel.generator
    vectors, left = divmod(size, generator.vector_bytes)
    if vectors:
        zero = f.literal(generator.vector, 0.0)
        f.loop(vectors, lambda i: f.store(zero, start + i * generator.vector_bytes))
    rest = start + vectors * generator.vector_bytes
    if left:
        f.loop(left // FLOAT_BYTES, lambda i: f.store(f.literal(FLOAT, 0.0), rest + i * FLOAT_BYTES))
