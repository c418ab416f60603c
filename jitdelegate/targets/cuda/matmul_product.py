"""Shared parts of the kernels for products of two matrices computed at run time.

The kernels copy tiles of K through registers to two slots of shared memory: while one tile is multiplied, the next one
is loaded. The slices of a block, each with its own slots, split K; their sums are added up at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jitdelegate.targets.cuda.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.element import Element
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.matrix_loader import MatrixLoader, MatrixTile, Side, Units
from jitdelegate.targets.cuda.output import Output
from jitdelegate.targets.cuda.sizes import Kind, Number
from jitdelegate.targets.cuda.template import Template

FLOAT = 4
SLOTS = 2


class ProductSizes(NamedTuple):
    """Rows, columns and depth of a product, the number of tiles along its rows, and the elements between stored rows of
    a, b and the output."""

    rows: Number
    columns: Number
    depth: Number
    down: Number
    left: Number
    right: Number
    output: Number


class ProductAxis(NamedTuple):
    """A leading axis: its size, and its strides in a, b and the output, in elements."""

    size: Number
    left: Number
    right: Number
    output: Number


class ProductTile(Protocol):
    """The tile of a block: `rows` by `columns`.

    Attributes:
        slot_bytes: bytes of a slot of shared memory.
        products: multiplications that a multiprocessor begins per cycle.
    """

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def slot_bytes(self) -> int: ...

    @property
    def products(self) -> float: ...


@dataclass(frozen=True, eq=False, slots=True)
class ProductTemplate(Template):
    """Products of pairs of matrices.

    Attributes:
        left, right: memory layouts of the operands.
        output: element type of the results.
        run: neighbouring columns that are stored together.
        axes: number of leading axes, after merging as in `matmul.Product`.
        slices: groups of threads that split K, each with its own tile.
    """

    tile: ProductTile
    slices: int
    left: Side
    right: Side
    output: Element
    run: int
    axes: int
    epilogue: Epilogue

    @property
    def threads(self) -> int:
        return self.tile.threads * self.slices

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all slots, or of the sums that later take their place."""
        tile = self.tile
        return max(self.slices * SLOTS * tile.slot_bytes, (self.slices - 1) * tile.rows * tile.columns * FLOAT)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of K in a slot of shared memory."""

    @abstractmethod
    def unit_steps(self, side: Side) -> int:
        """Steps of a unit, which a thread loads at once."""

    @property
    def sides(self) -> tuple[MatrixTile, MatrixTile]:
        """How threads divide the loads of both sides of a tile."""
        sides = (self.left, self.tile.rows), (self.right, self.tile.columns)
        left, right = (
            MatrixTile(side, lines, self.steps, self.unit_steps(side), self.tile.threads) for side, lines in sides
        )
        return left, right

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra = self.epilogue.parameters
        return "pointer", ("pointer", "pointer"), extra, ProductSizes, (ProductAxis,) * self.axes


class ProductKernel(ABC):
    """Writes the kernel of one template, except the layout of shared memory and the multiplication."""

    def __init__(
        self,
        code: Code,
        template: ProductTemplate,
        output: Value,
        operands: Sequence[Value],
        extra: Sequence[Value],
        sizes: ProductSizes,
        axes: Sequence[ProductAxis],
    ) -> None:
        self.code, self.template, self.sizes = code, template, sizes
        self.output = Output(code, template.epilogue, template.output, output, extra, sizes.columns)
        tile = template.tile
        self.thread, self.slice = code.special("tid.x") % tile.threads, code.special("tid.x") // tile.threads
        block = code.special("ctaid.x")
        self.number = block // sizes.down
        self.first_row = block % sizes.down * tile.rows
        self.first_column = code.special("ctaid.y") * tile.columns
        steps = template.steps * template.slices
        self.tiles = (sizes.depth + (steps - 1)) // steps
        self.first_tile = self.slice * self.tiles
        self.shared = code.dynamic_shared() + self.slice * (SLOTS * tile.slot_bytes)
        *starts, self.start = self._starts(axes)
        limits = (self.first_row, sizes.rows, sizes.left), (self.first_column, sizes.columns, sizes.right)
        self.loaders = [
            MatrixLoader(code, side, self.thread, data, start, first, count, sizes.depth, pitch)
            for side, data, start, (first, count, pitch) in zip(template.sides, operands, starts, limits, strict=True)
        ]

    def _starts(self, axes: Sequence[ProductAxis]) -> list[Value]:
        """The first elements of this block's matrices: a, b and the output."""
        rest, starts = self.number, [self.code.integer(0)] * 3
        for at, axis in reversed(list(enumerate(axes))):
            index, rest = (rest, rest) if at == 0 else (rest % axis.size, rest // axis.size)
            starts = [start + index * pitch for start, pitch in zip(starts, axis[1:], strict=True)]
        return starts

    def write(self) -> None:
        """Writes the whole kernel."""
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

    def _fetch(self, tile: Value) -> list[Units]:
        """Loads this thread's units of a tile of its slice; elements past the last tile read as zero."""
        return [loader.fetch(self.first_tile + tile) for loader in self.loaders]

    def _meet(self, sums: Sequence[Value]) -> None:
        """Adds the sums of the other slices to those of the first slice, which finishes them."""
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
    def _put(self, fetched: list[Units], slot: Value) -> None:
        """Stores the fetched units of both sides to a slot."""

    @abstractmethod
    def _nothing(self) -> list[Value]:
        """This thread's sums before the first tile: zeros."""

    @abstractmethod
    def _accumulate(self, sums: Sequence[Value], slot: Value) -> list[Value]:
        """The sums after the tile at the shared address `slot`."""

    @abstractmethod
    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums."""

    def _store(self, results: Sequence[Value], row: Value, column: Value, run: int) -> None:
        """Stores neighbouring columns of one row, in runs that lie completely inside or outside the product."""
        pixel, start = self.number * self.sizes.rows + row, self.start + row * self.sizes.output
        for at in range(0, len(results), run):
            with self.code.when((row < self.sizes.rows) & (column + at < self.sizes.columns)):
                self.output.store(results[at : at + run], pixel, column, at, start)
