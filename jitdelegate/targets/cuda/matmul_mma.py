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
"""Neighbouring columns that a thread has of a fragment, and the most lines of a unit that it turns into chunks."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """What a block multiplies: `rows` by `columns`, `row_bytes` of K at a time, shared out to `warps` down and
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
        """Multiplications that a multiprocessor begins in a cycle; matrices from shared memory are what is short."""
        rows, columns = self.rows // self.warps[0], self.columns // self.warps[1]
        return 16 * rows * columns / (rows + columns)


MMA_TILES = (
    MmaTile(128, 64, (4, 1), 64),
    MmaTile(64, 64, (2, 2), 64),
    MmaTile(32, 32, (2, 1), 64),
    MmaTile(16, 32, (1, 1), 64),
)
"""Large ones first: of equals the first one is taken."""


@dataclass(frozen=True, eq=False, slots=True)
class MmaProduct(ProductTemplate):
    """On tensor cores.

    Attributes:
        whole_steps: as `WarpTile` has it.
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
        """The part of one warp."""
        rows, columns = self.tile.rows // self.tile.warps[0], self.tile.columns // self.tile.warps[1]
        row_bytes = self.tile.row_bytes
        return WarpTile(self.operand, rows, columns, row_bytes // STEP, row_bytes, self.whole_steps)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaProductKernel(code, self, *arguments).write()


class MmaProductKernel(ProductKernel):
    """Tensor cores. In a slot, rows and then columns lie as lines of chunks of K, swizzled."""

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
        """A chunk as tensor cores read it; of tf32 the left side is rounded on its way to them."""
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
        """Two neighbouring columns at a time, as a thread has them."""
        across = self.shape.columns // 8
        first_row = self.first_row + self.row + (self.lane >> 2)
        first_column = self.first_column + self.column + ((self.lane & 3) << 1)
        for at in range(0, len(sums), 2):
            fragment, half = at // 4, at % 4 // 2
            row = first_row + (fragment // across * 16 + half * 8)
            self._store(sums[at : at + 2], row, first_column + fragment % across * 8, self.run)
