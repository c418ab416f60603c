"""What products of rows and panels do with a chunk: they walk along the panels, and cut the rows into tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.epilogue import Epilogue, numbers_pointer
from jitdelegate.targets.cpu.code.kernel import Generator, Kernel, split
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.sources.panels import PanelGroup, Panels


@dataclass(frozen=True, kw_only=True)
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
    geometry: str = ""

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
        numbers = numbers_pointer(kernel, product.epilogue.numbers)
        for size, count in split(self.rows, product.tile_rows(group)):
            name = product.tile(kernel.generator, group, size)
            f.call(name, *pointers[:3], *geometry, first, f.index(count), *pointers[3:], *numbers)
            first = first + size * count
