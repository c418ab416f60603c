"""MatMul on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.element import pack
from jitdelegate.targets.cuda.matmul_product import ProductKernel, ProductTemplate
from jitdelegate.targets.cuda.matrix_loader import Side, Units
from jitdelegate.targets.cuda.tensor_core import CHUNK, STEP, Operand, Swizzle, WarpTile

PAIR = 2
"""Neighbouring columns of a fragment that a thread holds, and the most lines of a unit that it converts to chunks."""


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
    def slot_bytes(self) -> int:
        return (self.rows + self.columns) * self.row_bytes

    @property
    def products(self) -> float:
        """Multiplications that a multiprocessor begins per cycle; loads of matrices from shared memory limit it."""
        rows, columns = self.rows // self.warps[0], self.columns // self.warps[1]
        return 16 * rows * columns / (rows + columns)


MMA_TILES = (
    MmaTile(128, 64, (4, 1), 64),
    MmaTile(64, 64, (2, 2), 64),
    MmaTile(32, 32, (2, 1), 64),
    MmaTile(16, 32, (1, 1), 64),
)
"""Large tiles first: of equally good tiles the first is chosen."""


@dataclass(frozen=True, eq=False, slots=True)
class MmaProduct(ProductTemplate):
    """A product on tensor cores.

    Attributes:
        whole_steps: as in `WarpTile`.
    """

    family: ClassVar[str] = "matmul_mma"
    tile: MmaTile
    operand: Operand
    whole_steps: bool

    @property
    def uses_tensor_cores(self) -> bool:
        return True

    @property
    def steps(self) -> int:
        return self.tile.row_bytes // self.operand.element.nbytes

    def unit_steps(self, side: Side) -> int:
        return CHUNK // self.operand.element.nbytes

    @property
    def warp_tile(self) -> WarpTile:
        """The part of the tile that one warp multiplies."""
        rows, columns = self.tile.rows // self.tile.warps[0], self.tile.columns // self.tile.warps[1]
        row_bytes = self.tile.row_bytes
        return WarpTile(self.operand, rows, columns, row_bytes // STEP, row_bytes, self.whole_steps)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaProductKernel(code, self, *arguments).write()


class MmaProductKernel(ProductKernel):
    """Writes the kernel for tensor cores. A slot holds the rows, then the columns, as lines of swizzled chunks of K."""

    def __init__(self, code: Code, template: MmaProduct, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.operand, self.tile, self.run = template.operand, template.tile, template.run
        self.shape = template.warp_tile
        self.lane, warp = self.thread & 31, self.thread >> 5
        self.row = warp // self.tile.warps[1] * self.shape.rows
        self.column = warp % self.tile.warps[1] * self.shape.columns
        whole = code.integer(0)
        self.starts = (
            self.shape.left_start(self.lane, self.row, whole),
            self.shape.right_start(self.lane, self.column, whole),
        )

    def _put(self, fetched: list[Units], slot: Value) -> None:
        swizzle = Swizzle(self.tile.row_bytes)
        for side, (loader, units) in enumerate(zip(self.loaders, fetched, strict=True)):
            base = self.shared + slot + side * self.tile.rows * self.tile.row_bytes
            for (line, step), unit in zip(loader.places, units, strict=True):
                chunk = step // loader.shape.unit_steps
                for at, values in enumerate(unit):
                    self.code.store(self._chunk(values, side), base, swizzle.place(line + at, chunk))

    def _chunk(self, values: Sequence[Value], side: int) -> Sequence[Value]:
        """A chunk in the form that tensor cores read; the left side of tf32 is rounded later, in registers."""
        if self.operand is not Operand.TF32:
            return pack(self.code, self.operand.element, values)
        if side == 0:
            return values
        return [self.code.ptx("cvt.rna.tf32.f32 $0, $1;", "r", [value])[0] for value in values]

    def _nothing(self) -> list[Value]:
        return [self.code.real(0.0)] * self.shape.sums

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        return self.shape.accumulate(self.code, sums, slot, slot + self.tile.rows * self.tile.row_bytes, self.starts)

    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums, two neighbouring columns at a time, as a thread holds them."""
        across = self.shape.columns // 8
        first_row = self.first_row + self.row + (self.lane >> 2)
        first_column = self.first_column + self.column + ((self.lane & 3) << 1)
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            row = first_row + (fragment // across * 16 + half * 8)
            self._store(sums[at : at + 2], row, first_column + fragment % across * 8, self.run)
