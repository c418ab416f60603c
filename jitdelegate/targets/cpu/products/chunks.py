"""How products are cut into chunks, which threads share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.kernel import Kernel
from jitdelegate.targets.cpu.code.vector_ir import Value

CHUNK_WORK = 4_000_000
"""Floating-point operations that are worth a chunk of their own."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large product, so that threads end at about the same time."""
SMALL_WORK = 400_000
"""Floating-point operations below which a product is not cut: threads would cost more than they save."""


def chunks_wanted(work: int, images: int = 1) -> int:
    """Chunks into which each of `images` equal products of so much work should be cut."""
    return 1 if work * images < SMALL_WORK else max(-(-FEWEST_CHUNKS // images), work // CHUNK_WORK)


def worth(work: int) -> float:
    """So much work in chunks of a few microseconds, as `Job.worth` has it."""
    return work / SMALL_WORK


@dataclass(frozen=True)
class Chunks:
    """Chunks are (image, one of `panels`, one of `parts` parts of the rows).

    Attributes:
        rows: of a part.
        last: rows of the last part.
    """

    images: int
    panels: int
    parts: int
    rows: int
    last: int

    @classmethod
    def of(cls, images: int, panels: int, total: int, rows: int) -> Chunks:
        """Parts of so many of all `total` rows; the last one may have fewer."""
        parts = -(-total // rows)
        return cls(images, panels, parts, rows, total - (parts - 1) * rows)

    @property
    def count(self) -> int:
        return self.images * self.panels * self.parts

    def numbers(self, kernel: Kernel) -> tuple[Value, Value, Value]:
        """(image, panel, part) of a chunk."""
        part, rest = kernel.chunk % self.parts, kernel.chunk // self.parts
        panel, image = rest % self.panels, rest // self.panels
        return image, panel, part

    def run(self, kernel: Kernel, part: Value, body: Callable[[int], None]) -> None:
        """Writes the `body` for the number of rows of a part."""
        if self.rows == self.last:
            body(self.rows)
        else:
            kernel.f.when_last(part, self.parts, lambda: body(self.rows), lambda: body(self.last))
