"""MatMul with float32 multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.sources.matrix_loader import MatrixLoader, MatrixTile, Units
from jitdelegate.targets.cuda.walks.matmul_product import FLOAT, ProductKernel, ProductTemplate

QUAD = 4
"""Neighbouring numbers in one access to shared memory."""
SLOTS = 2
"""Tiles in shared memory: one is multiplied, the next one is stored."""
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

    def pitch(self, side: int) -> int:
        """Distance between steps in shared memory, in floats: the steps of neighbouring threads begin in different
        banks."""
        return (self.rows, self.columns)[side] + QUAD

    def side_start(self, side: int) -> int:
        """Offset of the rows (side 0) or the columns (side 1) in a slot, in bytes."""
        return side * self.steps * self.pitch(0) * FLOAT

    @property
    def slot_bytes(self) -> int:
        return self.side_start(1) + self.steps * self.pitch(1) * FLOAT

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
    """A product by float32 multiply-adds."""

    family: ClassVar[str] = "matmul_ffma"
    tile: FfmaTile

    @property
    def steps(self) -> int:
        return self.tile.steps

    @property
    def ring_bytes(self) -> int:
        return SLOTS * self.tile.slot_bytes

    @property
    def sides(self) -> tuple[MatrixTile, MatrixTile]:
        """How threads divide the loads of both sides of a tile."""
        sides = (self.left, self.tile.rows), (self.right, self.tile.columns)
        left, right = (
            MatrixTile(side, lines, self.steps, side.width if side.along_depth else 1, self.tile.threads)
            for side, lines in sides
        )
        return left, right

    def write(self, code: Code, *arguments: Any) -> None:
        FfmaProductKernel(code, self, *arguments).write()


class FfmaProductKernel(ProductKernel):
    """Writes the kernel with float32 multiply-adds. A slot holds the rows, then the columns; in both, the numbers of
    one step are contiguous."""

    def __init__(self, code: Code, template: FfmaProduct, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.tile, self.run = template.tile, template.run
        across = self.tile.columns // self.tile.width
        self.down = self.tile.rows // self.tile.height
        self.row, self.column = self.thread // across * QUAD, self.thread % across * QUAD
        self.across = across
        self.loaders = [
            MatrixLoader(
                code, side, self.thread, one.data, one.start, one.first, one.count, self.sizes.depth, one.pitch
            )
            for side, one in zip(template.sides, self.operands, strict=True)
        ]

    def _sums(self) -> list[Value]:
        code = self.code
        self._put(self._fetch(code.integer(0)), code.integer(0))
        initial = [code.integer(0), *self._nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(tile)
            following[1:] = self._accumulate(now[1:], self.shared + now[0])
            following[0] = self.tile.slot_bytes - now[0]
            self._put(fetched, following[0])
        code.barrier()
        return self._accumulate(following[1:], self.shared + following[0])

    def _fetch(self, tile: Value) -> list[Units]:
        """Loads this thread's units of a tile of its slice; elements past the last tile read as zero."""
        return [loader.fetch(self.first_tile + tile) for loader in self.loaders]

    def _put(self, fetched: list[Units], slot: Value) -> None:
        """Stores the fetched units of both sides to a slot."""
        for side, (loader, units) in enumerate(zip(self.loaders, fetched, strict=True)):
            base = self.shared + slot + self.tile.side_start(side)
            for (line, step), unit in zip(loader.places, units, strict=True):
                self._put_unit(unit, base + (step * self.tile.pitch(side) + line) * FLOAT, self.tile.pitch(side))

    def _put_unit(self, unit: Sequence[Sequence[Value]], place: Value, pitch: int) -> None:
        """Stores the lines of each step in one access; a unit has one line or one step."""
        for step, lines in enumerate(zip(*unit, strict=True)):
            self.code.store(lines, place, step * pitch * FLOAT)

    def _nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""
        return [self.code.real(0.0)] * (self.tile.height * self.tile.width)

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after the tile at the shared address `slot`."""
        sums = list(sums)
        rows = slot + self.row * FLOAT
        columns = slot + self.tile.side_start(1) + self.column * FLOAT
        for step in range(self.tile.steps):
            left = self._numbers(rows, step * self.tile.pitch(0), self.down, self.tile.height)
            right = self._numbers(columns, step * self.tile.pitch(1), self.across, self.tile.width)
            products = [(a, b) for a in left for b in right]
            sums = [self.code.fma(a, b, c) for (a, b), c in zip(products, sums, strict=True)]
        return sums

    def _numbers(self, base: Value, place: int, threads: int, count: int) -> list[Value]:
        """One step's numbers for this thread's lines: quads, which alternate with the quads of all other threads."""
        places = [(place + at * threads) * FLOAT for at in range(0, count, QUAD)]
        return [number for at in places for number in self.code.load(base, at, F32, QUAD)]

    def _finish(self, sums: Sequence[Value]) -> None:
        height, width = self.tile.height, self.tile.width
        for at in range(0, height * width, QUAD):
            down, right = at // width, at % width
            row = self.first_row + self.row + (down // QUAD * self.down * QUAD + down % QUAD)
            column = self.first_column + self.column + right * self.across
            self._store(sums[at : at + QUAD], row, column, self.run)
