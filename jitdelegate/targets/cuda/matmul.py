"""MatMul: products of two runtime matrices, with the tile that suits their sizes.

Precision "float32" multiplies with float32 multiply-adds, all others on tensor cores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeVar

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.cost import COPIED
from jitdelegate.targets.cuda.device_code import Code
from jitdelegate.targets.cuda.element import Element, common_width
from jitdelegate.targets.cuda.epilogue import Epilogue
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.index_map import dense_strides
from jitdelegate.targets.cuda.matmul_kernel import (
    AXIS_SIZES,
    FLOAT,
    QUAD,
    SIZES,
    SLOTS,
    Arguments,
    FfmaKernel,
    MmaKernel,
    ProductKernel,
)
from jitdelegate.targets.cuda.matmul_share import Shares, Side
from jitdelegate.targets.cuda.template import Definition, Template
from jitdelegate.targets.cuda.tensor_core import CHUNK, STEP, Operand, WarpTile
from jitdelegate.targets.cuda.writer import Writer
from jitdelegate.targets.implicit_gemm import matrix_strides

PAIR = 2
"""Neighbouring columns that a thread has of a fragment, and the most lines of a unit that it turns into chunks."""
TURN_CYCLES = 600
"""From one tile of K to the next if nothing is in short supply: a read of memory, two passes of shared memory, the
barrier. Estimated from instruction latencies, like the next one."""
ENDS_CYCLES = 2000
"""Before the first and after the last multiplication of a block."""
FINISHED = 16
"""Sums that a multiprocessor adds up and takes through the epilogue in a cycle."""
THREADS = 512
"""Of a multiprocessor at a time, with the registers that they take."""
MOST_BLOCKS = 16
"""Of a multiprocessor at a time, on every GPU."""
MOST_THREADS = 256
"""Of a block, so that each may have as many registers as there are names for."""
SHARED_BYTES = 48 * 1024
"""Of a block: what every GPU gives without being asked."""
SLICES = (1, 2, 4)
LANES = 128
"""Float32 multiply-adds that a multiprocessor begins in a cycle, at best."""


@dataclass(frozen=True, slots=True)
class FfmaTile:
    """What a block multiplies: `rows` by `columns`, `steps` of K at a time; a thread has `height` by `width` sums."""

    rows: int
    columns: int
    height: int
    width: int
    steps: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.height * self.width)

    def pitch(self, side: int) -> int:
        """Floats from step to step in shared memory: steps of neighbouring threads begin in other banks."""
        return (self.rows, self.columns)[side] + QUAD

    def side_start(self, side: int) -> int:
        """Bytes before the rows (side 0) or the columns (side 1) of a slot."""
        return side * self.steps * self.pitch(0) * FLOAT

    @property
    def slot_bytes(self) -> int:
        return self.side_start(1) + self.steps * self.pitch(1) * FLOAT

    @property
    def products(self) -> float:
        """Multiplications that a multiprocessor begins in a cycle; the more sums, the fewer loads for each."""
        sums = self.height * self.width
        return LANES * sums / (sums + 2 * QUAD)


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


FFMA_TILES = (
    FfmaTile(128, 64, 8, 8, 8),
    FfmaTile(64, 64, 4, 8, 16),
    FfmaTile(32, 32, 4, 4, 16),
    FfmaTile(16, 32, 4, 4, 16),
)
MMA_TILES = (
    MmaTile(128, 64, (4, 1), 64),
    MmaTile(64, 64, (2, 2), 64),
    MmaTile(32, 32, (2, 1), 64),
    MmaTile(16, 32, (1, 1), 64),
)
"""Large ones first: of equals the first one is taken."""


@dataclass(frozen=True, eq=False, slots=True)
class ProductTemplate(Template):
    """Products of pairs of matrices.

    Attributes:
        left, right: how the operands lie.
        output: how results are stored.
        run: neighbouring columns that are stored together.
        axes: leading axes, neighbours that go on alike joined.
        slices: groups of threads that share out K, each with a tile of its own.
    """

    tile: FfmaTile | MmaTile
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
        """Of all slots, or of the sums that later take their place."""
        tile = self.tile
        return max(self.slices * SLOTS * tile.slot_bytes, (self.slices - 1) * tile.rows * tile.columns * FLOAT)

    @property
    @abstractmethod
    def steps(self) -> int:
        """Of K in a slot of shared memory."""

    @abstractmethod
    def unit_steps(self, side: Side) -> int:
        """Of what a thread brings at once."""

    @property
    def shares(self) -> tuple[Shares, Shares]:
        """How threads share out both sides of a tile."""
        sides = (self.left, self.tile.rows), (self.right, self.tile.columns)
        left, right = (
            Shares(side, lines, self.steps, self.unit_steps(side), self.tile.threads) for side, lines in sides
        )
        return left, right

    @abstractmethod
    def kernel(self, code: Code, arguments: Arguments) -> ProductKernel:
        """What writes the kernel."""

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def product(code, output, a, b, extra, sizes):  # type: ignore[no-untyped-def]
            self.kernel(code, Arguments(output, a, b, extra, sizes)).write()

        def kernel(output, a, b, extra, sizes):  # type: ignore[no-untyped-def]
            product(output, a, b, extra, sizes)

        tuples = ("pointer", len(self.epilogue.operands)), ("int32", SIZES + AXIS_SIZES * self.axes)
        return Definition(kernel, (*("pointer",) * 3, *tuples))


@dataclass(frozen=True, eq=False, slots=True)
class FfmaProduct(ProductTemplate):
    """With float32 multiply-adds."""

    family: ClassVar[str] = "matmul_ffma"
    tile: FfmaTile

    @property
    def steps(self) -> int:
        return self.tile.steps

    def unit_steps(self, side: Side) -> int:
        return side.width if side.along_depth else 1

    def kernel(self, code: Code, arguments: Arguments) -> ProductKernel:
        return FfmaKernel(code, self, arguments)


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

    def kernel(self, code: Code, arguments: Arguments) -> ProductKernel:
        return MmaKernel(code, self, arguments)


@dataclass(frozen=True, slots=True)
class Product:
    """What a node multiplies: `count` pairs of matrices, [rows, depth] by [depth, columns].

    Attributes:
        axes: (size, elements from matrix to matrix in a, in b) of the leading axes, neighbours that go on alike joined.
    """

    rows: int
    columns: int
    depth: int
    axes: tuple[tuple[int, int, int], ...]

    @property
    def count(self) -> int:
        return prod(size for size, _, _ in self.axes)


def product_of(form: MatMul, a: tuple[int, ...], b: tuple[int, ...], output: tuple[int, ...]) -> Product:
    """What a node of these shapes multiplies."""
    *leading, rows, columns = output
    strides = [matrix_strides(shape, dense_strides(shape), len(leading)) for shape in (a, b)]
    axes: list[tuple[int, int, int]] = []
    for size, left, right in zip(leading, *strides, strict=True):
        if axes and axes[-1][1:] == (size * left, size * right):
            axes[-1] = (axes[-1][0] * size, left, right)
        elif size > 1:
            axes.append((size, left, right))
    return Product(rows, columns, a[-2 if form.adj_x else -1], tuple(axes))


def write_matmul(writer: Writer, node: Node) -> None:
    """The launch of a MatMul node.

    Raises:
        CompileError: the GPU does not have the precision.
    """
    form, (a, b), output = node.form, node.inputs[:2], node.outputs[0]
    assert isinstance(form, MatMul)
    product = product_of(form, writer.shape(a), writer.shape(b), writer.shape(output))
    epilogue, extra = writer.epilogue(node)
    template = (_ffma if writer.precision == "float32" else _mma)(writer, node, form, product, epilogue)
    down, across = -(-product.rows // template.tile.rows), -(-product.columns // template.tile.columns)
    axes = [number for axis in product.axes for number in axis]
    writer.launch(
        template,
        (product.count * down, across, 1),
        (
            writer.pointer(output),
            writer.pointer(a),
            writer.pointer(b),
            *extra,
            *(product.rows, product.columns, product.depth, down),
            *axes,
        ),
        template.shared_bytes,
        cycles=_cycles(writer.gpu, product, template),
    )


def _ffma(writer: Writer, node: Node, form: MatMul, product: Product, epilogue: Epilogue) -> FfmaProduct:
    left, right = _sides(writer, node, form, product, QUAD, QUAD)
    output, run = writer.element(node.outputs[0]), common_width((product.columns,), QUAD)
    candidates = [
        FfmaProduct(tile, slices, left, right, output, run, len(product.axes), epilogue)
        for tile in FFMA_TILES
        for slices in SLICES
    ]
    return min(_fitting(candidates), key=lambda one: _cycles(writer.gpu, product, one))


def _mma(writer: Writer, node: Node, form: MatMul, product: Product, epilogue: Epilogue) -> MmaProduct:
    operand, is_new = Operand(writer.precision), writer.gpu.has_async_copy
    if operand is not Operand.FLOAT16 and not is_new:
        raise CompileError(f"{writer.gpu.architecture} has no {operand.value} tensor cores, expected sm_80 or later")
    left, right = _sides(writer, node, form, product, CHUNK // operand.element.nbytes, PAIR)
    output, run = writer.element(node.outputs[0]), common_width((product.columns,), PAIR)
    candidates = [
        MmaProduct(tile, slices, left, right, output, run, len(product.axes), epilogue, operand, whole_steps=is_new)
        for tile in MMA_TILES
        for slices in SLICES
    ]
    return min(_fitting(candidates), key=lambda one: _cycles(writer.gpu, product, one))


Candidate = TypeVar("Candidate", bound=ProductTemplate)


def _fitting(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that every GPU has registers and shared memory for."""
    return [one for one in candidates if one.threads <= MOST_THREADS and one.shared_bytes <= SHARED_BYTES]


def _sides(
    writer: Writer, node: Node, form: MatMul, product: Product, most_steps: int, most_lines: int
) -> tuple[Side, Side]:
    """How both operands lie, with accesses of at most so many steps, or lines where those are neighbours."""

    def side(index: int, lines: int, *, along_depth: bool) -> Side:
        element = writer.element(index)
        size, most = (product.depth, most_steps) if along_depth else (lines, most_lines)
        return Side(element, along_depth, common_width((size,), min(most, element.widest)))

    a, b = node.inputs[:2]
    return side(a, product.rows, along_depth=not form.adj_x), side(b, product.columns, along_depth=form.adj_y)


def _cycles(gpu: Gpu, product: Product, template: ProductTemplate) -> float:
    """An estimate of how long all blocks of a product take; good for comparing tiles and slices."""
    tile, slices = template.tile, template.slices
    blocks = product.count * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    turns = -(-product.depth // (template.steps * slices))
    sides = (template.left, tile.rows), (template.right, tile.columns)
    copied = sum(side.element.nbytes * lines for side, lines in sides) / COPIED
    turn = slices * template.steps * max(tile.rows * tile.columns / tile.products, copied)
    end = slices * tile.rows * tile.columns / FINISHED
    resident = gpu.multiprocessors * min(THREADS // template.threads, MOST_BLOCKS)
    waiting = turns * (TURN_CYCLES + turn) + ENDS_CYCLES + end
    return max(-(-blocks // gpu.multiprocessors) * (turns * turn + end), -(-blocks // resident) * waiting)
