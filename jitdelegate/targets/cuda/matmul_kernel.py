"""The kernels of products of two runtime matrices: with float32 multiply-adds, and on tensor cores.

Both bring tiles of K through registers to two slots of shared memory: while one is multiplied, the next is on its way.
Slices of a block, each with slots of its own, share out K and meet in the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jitdelegate.targets.cuda.device_code import F32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import pack, store
from jitdelegate.targets.cuda.matmul_share import Share
from jitdelegate.targets.cuda.tensor_core import Operand, Swizzle

if TYPE_CHECKING:
    from jitdelegate.targets.cuda.matmul import FfmaProduct, MmaProduct, ProductTemplate

SIZES = 4
"""Numbers before those of the leading axes: rows, columns and depth of a product, tiles down its rows."""
AXIS_SIZES = 3
"""Numbers of a leading axis: its size, elements from matrix to matrix in a and in b."""
FLOAT = 4
QUAD = 4
SLOTS = 2


@dataclass(frozen=True, slots=True)
class Arguments:
    """A launch's arguments, in the order of the kernel's parameters; `sizes` as SIZES and AXIS_SIZES say."""

    output: Value
    a: Value
    b: Value
    extra: Sequence[Value]
    sizes: Sequence[Value]


class ProductKernel(ABC):
    """Writes the kernel of one template: all but what its shared memory looks like."""

    def __init__(self, code: Code, template: ProductTemplate, arguments: Arguments) -> None:
        self.code, self.template, self.arguments = code, template, arguments
        tile = template.tile
        self.rows, self.columns, self.depth, down, *axes = arguments.sizes
        self.thread, self.slice = code.special("tid.x") % tile.threads, code.special("tid.x") // tile.threads
        block = code.special("ctaid.x")
        self.number = block // down
        self.first_row = block % down * tile.rows
        self.first_column = code.special("ctaid.y") * tile.columns
        steps = template.steps * template.slices
        self.tiles = (self.depth + (steps - 1)) // steps
        self.first_tile = self.slice * self.tiles
        self.shared = code.dynamic_shared() + self.slice * (SLOTS * tile.slot_bytes)
        starts = self._starts(axes)
        limits = (self.first_row, self.rows), (self.first_column, self.columns)
        self.shares = [
            Share(code, shares, self.thread, data, start, first, count, self.depth)
            for shares, data, start, (first, count) in zip(
                template.shares, (arguments.a, arguments.b), starts, limits, strict=True
            )
        ]

    def _starts(self, axes: Sequence[Value]) -> list[Value]:
        """The first elements of this block's matrices."""
        rest, starts = self.number, [self.code.integer(0)] * 2
        for at in reversed(range(0, len(axes), AXIS_SIZES)):
            size, *distances = axes[at : at + AXIS_SIZES]
            index, rest = (rest, rest) if at == 0 else (rest % size, rest // size)
            starts = [start + index * distance for start, distance in zip(starts, distances, strict=True)]
        return starts

    def write(self) -> None:
        """The whole kernel."""
        code = self.code
        self._put(self._fetch(code.integer(0)), code.integer(0))
        initial = [code.integer(0), *self._nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            fetched = self._fetch(tile)
            following[1:] = self._accumulate(now[1:], self.shared + now[0])
            following[0] = self.template.tile.slot_bytes - now[0]
            self._put(fetched, following[0])
        code.barrier()
        self._meet(self._accumulate(following[1:], self.shared + following[0]))

    def _fetch(self, tile: Value) -> list[list[list[list[Value]]]]:
        """A tile of this thread's slice; what lies past the last one reads as zero."""
        return [share.fetch(self.first_tile + tile) for share in self.shares]

    def _meet(self, sums: Sequence[Value]) -> None:
        """The first slice adds what the others have, and finishes."""
        code, slices, pitch = self.code, self.template.slices, self.template.tile.threads * FLOAT
        if slices == 1:
            self._finish(sums)
            return
        base, size = code.dynamic_shared() + self.thread * FLOAT, len(sums) * pitch
        code.barrier()
        with code.when(self.slice > 0):
            for at, value in enumerate(sums):
                code.store([value], base + (self.slice - 1) * size, at * pitch)
        code.barrier()
        with code.when(self.slice.equals(0)):
            places = [range(at * pitch, (slices - 1) * size, size) for at in range(len(sums))]
            others = [[code.load(base, place)[0] for place in one] for one in places]
            self._finish(
                [reduce_tree([own, *more], lambda a, b: a + b) for own, more in zip(sums, others, strict=True)]
            )

    @abstractmethod
    def _put(self, fetched: list[list[list[list[Value]]]], slot: Value) -> None:
        """Stores what was fetched, of both sides, to a slot."""

    @abstractmethod
    def _nothing(self) -> list[Value]:
        """This thread's sums before the first tile."""

    @abstractmethod
    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after the tile at the shared address `slot`."""

    @abstractmethod
    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums."""

    def _store(self, results: Sequence[Value], row: Value, column: Value, run: int) -> None:
        """Stores neighbouring columns of one row in runs that lie whole inside the product or outside."""
        code, arguments = self.code, self.arguments
        pixel = self.number * self.rows + row
        for at in range(0, len(results), run):
            with code.when((row < self.rows) & (column + at < self.columns)):
                chosen = results[at : at + run]
                found = self.template.epilogue.apply(code, chosen, pixel, column + at, self.columns, arguments.extra)
                store(code, self.template.output, found, arguments.output, pixel * self.columns + column + at)


class FfmaKernel(ProductKernel):
    """Float32 multiply-adds. In a slot, a step's numbers for all rows, and then all columns, lie side by side."""

    def __init__(self, code: Code, template: FfmaProduct, arguments: Arguments) -> None:
        super().__init__(code, template, arguments)
        self.tile, self.run = template.tile, template.run
        across = self.tile.columns // self.tile.width
        self.down = self.tile.rows // self.tile.height
        self.row, self.column = self.thread // across * QUAD, self.thread % across * QUAD
        self.across = across

    def _put(self, fetched: list[list[list[list[Value]]]], slot: Value) -> None:
        for side, (share, units) in enumerate(zip(self.shares, fetched, strict=True)):
            base = self.shared + slot + self.tile.side_start(side)
            for (line, step), unit in zip(share.places, units, strict=True):
                self._put_unit(unit, base + (step * self.tile.pitch(side) + line) * FLOAT, self.tile.pitch(side))

    def _put_unit(self, unit: Sequence[Sequence[Value]], place: Value, pitch: int) -> None:
        """Lines of a step in one access; there is one line, or one step."""
        for step, lines in enumerate(zip(*unit, strict=True)):
            self.code.store(lines, place, step * pitch * FLOAT)

    def _nothing(self) -> list[Value]:
        return [self.code.real(0.0)] * (self.tile.height * self.tile.width)

    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
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
        """One step's numbers for this thread's lines: quads, as far apart as all threads' quads together."""
        places = [(place + at * threads) * FLOAT for at in range(0, count, QUAD)]
        return [number for at in places for number in self.code.load(base, at, F32, QUAD)]

    def _finish(self, sums: Sequence[Value]) -> None:
        height, width = self.tile.height, self.tile.width
        for at in range(0, height * width, QUAD):
            down, right = at // width, at % width
            row = self.first_row + self.row + (down // QUAD * self.down * QUAD + down % QUAD)
            column = self.first_column + self.column + right * self.across
            self._store(sums[at : at + QUAD], row, column, self.run)


class MmaKernel(ProductKernel):
    """Tensor cores. In a slot, rows and then columns lie as lines of chunks of K, swizzled."""

    def __init__(self, code: Code, template: MmaProduct, arguments: Arguments) -> None:
        super().__init__(code, template, arguments)
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

    def _put(self, fetched: list[list[list[list[Value]]]], slot: Value) -> None:
        swizzle = Swizzle(self.tile.row_bytes)
        for side, (share, units) in enumerate(zip(self.shares, fetched, strict=True)):
            base = self.shared + slot + side * self.tile.rows * self.tile.row_bytes
            for (line, step), unit in zip(share.places, units, strict=True):
                chunk = step // share.shares.unit_steps
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
