"""MatMul on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.multiply.fragments import WIDTH, Fragments
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, Operand
from jitdelegate.targets.cuda.walks.matmul_product import ProductKernel, ProductTemplate


@dataclass(frozen=True, slots=True)
class MmaTile:
    """The tile of a block: `rows` by `columns`, `row_bytes` of K at a time, divided among `warps` down and
    across."""

    rows: int
    columns: int
    warps: tuple[int, int]
    row_bytes: int

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps)

    @property
    def products(self) -> float:
        """Multiplications that a multiprocessor begins per cycle; loads of matrices from shared memory limit it."""
        rows, columns = self.rows // self.warps[0], self.columns // self.warps[1]
        return 16 * rows * columns / (rows + columns)


MMA_TILES = (
    MmaTile(128, 64, (4, 1), 64),
    MmaTile(64, 64, (2, 2), 64),
    MmaTile(32, 64, (2, 2), 64),
    MmaTile(32, 32, (2, 1), 64),
    MmaTile(16, 32, (1, 1), 64),
)
"""Large tiles first: of equally good tiles the first is chosen."""


@dataclass(frozen=True, eq=False, slots=True)
class MmaProduct(ProductTemplate):
    """A product on tensor cores."""

    family: ClassVar[str] = "matmul_mma"
    uses_tensor_cores: ClassVar[bool] = True
    tile: MmaTile
    operand: Operand

    @property
    def steps(self) -> int:
        return self.tile.row_bytes // self.operand.element.nbytes

    @property
    def stored(self) -> Element:
        return self.operand.element

    @property
    def slots(self) -> int:
        return 3 if any(tile.copies for tile in self.tiles) else 2

    @property
    def is_asynchronous(self) -> bool:
        return all(tile.copies for tile in self.tiles)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaProductKernel(code, self, *arguments).write()


class MmaProductKernel(ProductKernel):
    """Writes the kernel for tensor cores."""

    def __init__(self, code: Code, template: MmaProduct, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        tile, warp = template.tile, self.thread >> 5
        self.rows, self.columns = tile.rows // tile.warps[0], tile.columns // tile.warps[1]
        self.row, self.column = warp // tile.warps[1] * self.rows, warp % tile.warps[1] * self.columns
        self.fragments = Fragments(code, template.operand, self.thread & 31, template.has_async_copy)
        self.held = self.fragments.held(self.row, self.column, self.rows, self.columns)

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        totals, fragments = list(sums), self.fragments
        tiles = self._tiles(slot)
        left, right = (
            tile.from_line(at, fragments.item) for tile, at in zip(tiles, (self.row, self.column), strict=True)
        )
        for number in range(0, self.template.steps, STEP // fragments.item):
            rows = [fragments.left(left, row, number) for row in range(0, self.rows, WIDTH)]
            columns = [fragments.right(right, column, number) for column in range(0, self.columns, WIDTH)]
            fragments.add(totals, rows, columns)
        return totals
