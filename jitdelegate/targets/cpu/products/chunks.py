"""Chunks of products, which threads share: how many there are, and how one walks along panels and cuts its rows into
tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.epilogue import Epilogue, numbers_pointer
from jitdelegate.targets.cpu.code.kernel import Generator, Kernel, split
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.sources.panels import PanelGroup, Panels

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
        panels: 0 if a chunk has all panels.
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
        return self.images * max(1, self.panels) * self.parts

    def numbers(self, kernel: Kernel) -> tuple[Value, Value | None, Value]:
        """(image, panel, part) of a chunk."""
        part, rest = kernel.chunk % self.parts, kernel.chunk // self.parts
        panel, image = rest % max(1, self.panels), rest // max(1, self.panels)
        return image, panel if self.panels else None, part

    def run(self, kernel: Kernel, part: Value, body: Callable[[int], None]) -> None:
        """Writes the `body` for the number of rows of a part."""
        if self.rows == self.last:
            body(self.rows)
        else:
            kernel.f.when_last(part, self.parts, lambda: body(self.rows), lambda: body(self.last))


@dataclass(frozen=True)
class PanelProduct:
    """Rows of data times panels.

    Attributes:
        products: how tiles multiply.
        epilogue: with its streams as the results see them.
        block: bytes from one vector of results to the next one.
        geometry: the constant that tile functions take; "" where they take none.
    """

    products: Products
    epilogue: Epilogue
    block: int
    geometry: str

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for the same code, as `Generator.once_for` needs it."""
        epilogue = self.epilogue
        return self.products, epilogue.key, epilogue.streams, str(epilogue.numbers), self.block, self.geometry

    def geometry_moves(self, group: PanelGroup) -> tuple[int, int]:
        """Bytes from the geometry to that of a group's first panel, and between those of its panels."""
        return 0, 0

    def tile_rows(self, group: PanelGroup) -> int:
        """Most rows of a tile."""
        return self.products.rows[group.vectors - 1]

    def tile(self, generator: Generator, group: PanelGroup, rows: int) -> str:
        """The function `void tile(a, panel, c, geometry, first row, tiles, streams ..., numbers)`."""
        raise NotImplementedError


@dataclass(frozen=True)
class PanelWalk:
    """`rows` rows from `first` on times panels. Pointers are to the data, a panel, the results and the streams, each at
    row 0."""

    kernel: Kernel
    product: PanelProduct
    panels: Panels
    first: Value
    rows: int

    def along(self, groups: Sequence[PanelGroup], pointers: Sequence[Value], number: Value | None = None) -> None:
        """The rows times each panel of some groups, or only times panel `number` of one group. There is no pointer to a
        panel."""
        (a, *others), streams = pointers, self.product.epilogue.streams
        blocks = [self.product.block, *(stream.block for stream in streams)]
        for group in groups:
            moves = [self.panels.apart(group), *(group.vectors * block for block in blocks)]
            at = [self.panels.first(self.kernel, group)]
            at += [p + group.start * block for p, block in zip(others, blocks, strict=True)]
            start, apart = self.product.geometry_moves(group)
            if apart:
                at.append(Value(self.kernel.f, POINTER, self.product.geometry) + start)
                moves.append(apart)
            if number is not None:
                at = [p + number * move for p, move in zip(at, moves, strict=True)]

            def one(_: Value, *at: Value, group: PanelGroup = group, moves: Sequence[int] = moves) -> list[Value]:
                self.meet(group, [a, *at])
                return [p + move for p, move in zip(at, moves, strict=True)]

            self.kernel.f.loop(1 if number is not None else group.count, one, *at)

    def meet(self, group: PanelGroup, pointers: Sequence[Value]) -> None:
        """The rows times one panel."""
        a, panel, *others = pointers
        self.multiply(self.product, group, [a, self.panels.at(self.kernel, group, panel), *others])

    def multiply(self, product: PanelProduct, group: PanelGroup, pointers: Sequence[Value]) -> None:
        """The rows times one panel that is as tiles read it."""
        kernel, f, first = self.kernel, self.kernel.f, self.first
        geometry = [Value(f, POINTER, product.geometry)] if product.geometry else []
        if any(product.geometry_moves(group)):
            *pointers, geometry[0] = pointers
        numbers = numbers_pointer(kernel, product.epilogue.numbers)
        for size, count in split(self.rows, product.tile_rows(group)):
            name = product.tile(kernel.generator, group, size)
            f.call(name, *pointers[:3], *geometry, first, f.index(count), *pointers[3:], *numbers)
            first = first + size * count
