"""MatMul with multiply-adds: of float32, or of integers as int32, which any GPU has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import Code, Value, register
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import REGISTERS
from jitdelegate.targets.cuda.multiply.quads import QUAD, Quads, add, held
from jitdelegate.targets.cuda.walks.matmul_product import ProductKernel, ProductTemplate

LANES = 128
"""Most float32 multiply-adds that a multiprocessor begins per cycle."""


@dataclass(frozen=True, slots=True)
class FfmaTile:
    """The tile of a block: `rows` by `columns`, `steps` of K at a time; a thread has `height` by `width` sums."""

    rows: int
    columns: int
    height: int
    width: int
    steps: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.height * self.width)

    @property
    def products(self) -> float:
        """Multiplications that a multiprocessor begins per cycle; with more sums there are fewer loads per
        multiplication."""
        sums = self.height * self.width
        return LANES * sums / (sums + 2 * QUAD)


FFMA_TILES = (
    FfmaTile(128, 64, 8, 8, 8),
    FfmaTile(64, 64, 4, 8, 16),
    FfmaTile(32, 32, 4, 4, 16),
    FfmaTile(16, 32, 4, 4, 16),
)
"""Large tiles first: of equally good tiles the first is chosen."""


@dataclass(frozen=True, eq=False, slots=True)
class FfmaProduct(ProductTemplate):
    """A product by multiply-adds."""

    family: ClassVar[str] = "matmul_ffma"
    slots: ClassVar[int] = 2
    tile: FfmaTile

    @property
    def stored(self) -> Element:
        return Element(self.epilogue.dtype)

    @property
    def steps(self) -> int:
        return self.tile.steps

    @property
    def min_blocks(self) -> int:
        """Resident blocks that 128 registers of a thread suffice for, where this limit causes no spills: numbers of
        lines along K are read by fours, and integers are converted."""
        are_along = self.left.along_depth and self.right.along_depth
        return 1 if are_along or self.is_integer else REGISTERS // (128 * self.threads)

    def write(self, code: Code, *arguments: Any) -> None:
        FfmaProductKernel(code, self, *arguments).write()


class FfmaProductKernel(ProductKernel):
    """Writes the kernel with multiply-adds."""

    def __init__(self, code: Code, template: FfmaProduct, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        tile, (left, right) = template.tile, template.tiles
        down, across = tile.rows // tile.height, tile.columns // tile.width
        row, column = self.thread // across, self.thread % across
        turned, kind = (not template.left.along_depth, not template.right.along_depth), register(template.stored.dtype)
        self.left = Quads.of(code, row, down, tile.height, left.pitch, turned=turned[0], kind=kind)
        self.right = Quads.of(code, column, across, tile.width, right.pitch, turned=turned[1], kind=kind)
        self.held = held(self.left, self.right)

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        tiles = self.addresses[0] + slot, self.addresses[1] + slot
        return add(sums, self.left, self.right, tiles, range(0, self.template.steps, QUAD))
