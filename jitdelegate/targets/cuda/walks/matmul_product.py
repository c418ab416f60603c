"""Shared parts of the kernels for products of two matrices computed at run time.

The kernels copy tiles of K to slots of shared memory: while one tile is multiplied, the next ones are loaded. The
slices of a block, each with its own slots, split K; their sums are added up at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.lanes import first_slice
from jitdelegate.targets.cuda.code.output import Output
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.sources.matrix_loader import Side

FLOAT = 4


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


@dataclass(frozen=True, slots=True)
class OperandLines:
    """An operand of a block.

    Attributes:
        start: index of its matrix's first element.
        first, count: the block's first line, and how many there are: rows of a, columns of b.
        pitch: elements between lines, or between steps where lines are neighbours in memory.
    """

    data: Value
    start: Value
    first: Value
    count: Value
    pitch: Value


class ProductTile(Protocol):
    """The tile of a block: `rows` by `columns`.

    Attributes:
        products: multiplications that a multiprocessor begins per cycle.
    """

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def threads(self) -> int: ...

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

    awaits_launches: ClassVar[bool] = True
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
    @abstractmethod
    def ring_bytes(self) -> int:
        """Shared memory of a slice's slots."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether no tile goes through registers."""
        return False

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all slots, or of the sums that later take their place."""
        tile = self.tile
        return max(self.slices * self.ring_bytes, (self.slices - 1) * tile.rows * tile.columns * FLOAT)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of K in a slot of shared memory."""

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
        self.shared = code.dynamic_shared() + self.slice * template.ring_bytes
        *starts, self.start = self._starts(axes)
        firsts = (self.first_row, sizes.rows, sizes.left), (self.first_column, sizes.columns, sizes.right)
        self.operands = [
            OperandLines(data, start, *place) for data, start, place in zip(operands, starts, firsts, strict=True)
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
        self.code.await_launches()
        self._meet(self._sums())

    def _meet(self, sums: Sequence[Value]) -> None:
        """Adds the sums of the other slices to those of the first slice, which finishes them."""
        slices = self.template.slices
        if slices == 1:
            self._finish(sums)
            return
        with first_slice(self.code, sums, self.slice, self.thread, self.template.tile.threads) as other:
            others = [[other(k, at) for k in range(slices - 1)] for at in range(len(sums))]
            self._finish(
                [reduce_tree([own, *more], lambda a, b: a + b) for own, more in zip(sums, others, strict=True)]
            )

    @abstractmethod
    def _sums(self) -> list[Value]:
        """This thread's sums over the tiles of its slice."""

    @abstractmethod
    def _finish(self, sums: Sequence[Value]) -> None:
        """Stores the sums."""

    def _store(self, results: Sequence[Value], row: Value, column: Value, run: int) -> None:
        """Stores neighbouring columns of one row, in runs that lie completely inside or outside the product."""
        pixel, start = self.number * self.sizes.rows + row, self.start + row * self.sizes.output
        for at in range(0, len(results), run):
            with self.code.when((row < self.sizes.rows) & (column + at < self.sizes.columns)):
                self.output.store(results[at : at + run], pixel, column, at, start)
