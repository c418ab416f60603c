"""MatMul: products of row-major matrices that are known only at run time, cut into chunks of rows or of columns.

The columns of a product are divided into panels of a few vectors. A panel's part of b is read in place, or first packed
into the thread's scratch memory if it must be transposed, if its rows would compete for the same cache sets, or if it
is long. A few rows times a transposed b need no panels: the sums run along the rows of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import prod

from jitdelegate.base.targets import EXACT, Level
from jitdelegate.ir.expr import RESULT, Arg, substitute
from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.element import store
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.code.kernel import (
    Axis,
    Generator,
    Job,
    Kernel,
    Memory,
    distances_along,
    divisor,
    odd_lines,
    offset_of,
    split,
)
from jitdelegate.targets.cpu.code.vector_ir import Value, register
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.multiply.bfloat_pairs import BfloatPairs
from jitdelegate.targets.cpu.multiply.choose import products_of
from jitdelegate.targets.cpu.multiply.half_products import HalfSums
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.products.chunks import FEWEST_CHUNKS, Chunks, PanelProduct, PanelWalk, chunks_wanted
from jitdelegate.targets.cpu.sources.converted import Conversion
from jitdelegate.targets.cpu.sources.panels import InPlace, Packed, Packing, PanelGroup, panel_groups
from jitdelegate.targets.cpu.walks.matmul_dot import DotShape, dot_function
from jitdelegate.targets.cpu.walks.tile import MatrixTileShape, matrix_tile_function
from jitdelegate.targets.planning.implicit_gemm import matrix_strides, permuted

MOST_DOT_ROWS = 3
"""Most rows of a for which sums along the rows of b cost less than transposing b."""
FEW_ROWS = 2
"""Most rows of a for which a panel has twice the vectors, so that sums do not wait for each other."""
FAR_ROWS = 2048
"""Bytes between rows of b from which on a panel's rows may compete for too few sets of the first-level cache."""
CACHE_BYTES = 32 * 1024
FEWEST_COPIED_ROWS = 24
"""Fewest rows of a for which copying a panel of b costs little compared with multiplying."""


@dataclass(frozen=True)
class Matrix:
    """The matrices of one row-major tensor.

    Attributes:
        shape: rows and columns in memory.
        outer: the leading axes of the product; distance 0 where this operand is repeated.
        row: bytes between rows.
    """

    memory: Memory
    shape: tuple[int, int]
    outer: tuple[Axis, ...]
    row: int

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return self.memory.layout.element


def matrix(memory: Memory, shape: tuple[int, ...], order: tuple[int, ...], leading: tuple[int, ...]) -> Matrix:
    """A tensor of `shape`, its axes in `order`, as matrices, one for each index of the product's `leading` axes."""
    *distances, row, _ = permuted(distances_along(memory, shape), order)
    shape = permuted(shape, order)
    strides = matrix_strides(shape, distances, len(leading))
    return Matrix(memory, (shape[-2], shape[-1]), tuple(map(Axis, leading, strides)), row)


@dataclass(frozen=True)
class Product(PanelProduct):
    """One node, or a part of its sums, with all that chunk functions need to compute parts of it. Rows of a are read to
    the end of their last step.

    Attributes:
        depth: elements of a sum.
        is_packed: whether panels of b are packed into scratch memory.
    """

    form: MatMul
    a: Matrix
    b: Matrix
    c: Matrix
    depth: int
    is_packed: bool

    @classmethod
    def of(cls, form: MatMul, products: Products, a: Matrix, b: Matrix, c: Matrix, epilogue: Epilogue) -> Product:
        """The product of a node."""
        depth = a.shape[0 if form.adj_x else 1]
        is_crowded = b.row >= FAR_ROWS and b.row * depth > CACHE_BYTES
        is_long = depth > products.part_steps * products.channels
        pays = (is_crowded or is_long) and c.shape[0] >= FEWEST_COPIED_ROWS
        is_packed = form.adj_y or pays or products.stored != "float32"
        return cls(products, epilogue, products.lanes * c.element, "", form, a, b, c, depth, is_packed)

    @property
    def key(self) -> tuple[object, ...]:
        form = self.form.adj_x, self.form.adj_y, self.form.input_zero
        return *super().key, *form, self.a, self.b, self.c, self.depth, self.is_packed

    @property
    def count(self) -> int:
        return prod(axis.size for axis in self.c.outer)

    @property
    def rows(self) -> int:
        return self.c.shape[0]

    @property
    def columns(self) -> int:
        return self.c.shape[1]

    @property
    def a_steps(self) -> tuple[int, int]:
        """Bytes in a (between rows of the product, between elements of its sums)."""
        return (self.a.element, self.a.row) if self.form.adj_x else (self.a.row, self.a.element)

    @property
    def b_steps(self) -> tuple[int, int]:
        """Bytes in b (between columns of the product, between elements of its sums)."""
        return (self.b.row, self.b.element) if self.form.adj_y else (self.b.element, self.b.row)

    @property
    def is_dot(self) -> bool:
        """Whether sums run along the rows of both operands."""
        contiguous = not self.form.adj_x or self.a.row == self.a.element
        is_float = self.products.stored == "float32"
        return is_float and self.form.adj_y and contiguous and self.rows <= MOST_DOT_ROWS

    @property
    def packing(self) -> Packing:
        """How a panel of one column is packed."""
        zero = self.form.input_zero
        return Packing(self.products, self.b.memory.layout.dtype, 1, self.depth, 1, self.b.row, self.form.adj_y, zero)

    @property
    def groups(self) -> tuple[PanelGroup, ...]:
        """All columns as panels. There are twice as wide ones for a few rows, so that sums do not wait for each
        other."""
        is_masked = self.columns % self.products.lanes > 0
        widest = (2 if self.rows <= FEW_ROWS else 1) * len(self.products.rows)
        return panel_groups(self.products, self.columns, masked=is_masked, widest=widest)

    def tile_rows(self, group: PanelGroup) -> int:
        rows = self.products.rows
        return rows[group.vectors - 1] if group.vectors <= len(rows) else FEW_ROWS

    def tile(self, generator: Generator, group: PanelGroup, rows: int) -> str:
        shape = MatrixTileShape(
            self.products,
            rows,
            group.vectors,
            group.masked,
            self.epilogue,
            steps=self.packing.steps,
            a_steps=(self.a_steps[0], self.a_steps[1] * self.products.channels),
            b_row=0 if self.is_packed else self.b.row,
            c_row=self.c.row,
            tail=self.columns % self.products.lanes if group.masked else 0,
            is_exact=self.b.memory.exact and not self.is_packed,
            has_bias=self.packing.has_bias,
        )
        return matrix_tile_function(generator, shape)

    def pointers(self, kernel: Kernel, index: Value) -> list[Value]:
        """Pointers to a, b, c and the streams of product number `index`."""
        f = kernel.f
        sides = [kernel.pointer(side.memory) + offset_of(f, index, side.outer) for side in (self.a, self.b, self.c)]
        return [*sides, *(self._stream(kernel, stream, index) for stream in self.epilogue.streams)]

    def down(self, pointers: Sequence[Value], row: Value) -> list[Value]:
        """These pointers `row` rows further down."""
        moves = (self.a_steps[0], 0, self.c.row, *(stream.pixel for stream in self.epilogue.streams))
        return [p + row * move for p, move in zip(pointers, moves, strict=True)]

    def walk(
        self,
        kernel: Kernel,
        pointers: Sequence[Value],
        groups: Sequence[PanelGroup],
        first: Value,
        rows: int,
        number: Value | None = None,
        scratch: int = 0,
    ) -> None:
        """Writes a `MatMulWalk`, where `scratch` bytes of scratch memory are in use."""
        (a, b, *others), column = pointers, self.b_steps[0]
        product, a, scratch = self.converted(kernel, a, first, rows, scratch)
        panels = InPlace(b, column)
        if self.is_packed and not self.is_dot:
            panels = Packed(b, column, self.packing, self.columns, scratch)
        MatMulWalk(kernel, product, panels, first, rows).along(groups, [a, *others], number)

    def converted(self, kernel: Kernel, a: Value, first: Value, rows: int, scratch: int) -> tuple[Product, Value, int]:
        """The product by rows of a in the type that they are multiplied in, the address of their row 0, and the bytes
        of scratch memory that are in use then. Converted rows end with zeros, as the panels of b do."""
        f, products, dtype = kernel.f, self.products, self.products.converted
        if dtype in ("", self.a.memory.layout.dtype):
            return self, a, scratch
        row = odd_lines(self.packing.steps * products.step_bytes)
        layout = Layout((1, 1, rows, self.depth), products.lanes, dtype=dtype)
        conversion, start = Conversion(self.a.memory.layout.dtype, dtype), kernel.scratch + scratch
        kernel.generator.reserve_scratch(scratch + rows * row)

        def one(_: Value, data: Value, to: Value) -> list[Value]:
            conversion.convert(kernel, data, to, f.index(self.depth))
            for channel in range(self.depth, self.packing.steps * products.channels):
                store(f, dtype, f.literal(register(products.stored), 0), to + channel * layout.element)
            return [data + self.a.row, to + row]

        f.loop(rows, one, a + first * self.a.row, start)
        converted = Matrix(Memory("scratch", 0, layout), (rows, self.depth), self.a.outer, row)
        return replace(self, a=converted), start + (0 - first * row), scratch + rows * row

    def dot(self, generator: Generator, group: PanelGroup, rows: int) -> str:
        """The function that sums along the rows of both operands."""
        columns = group.columns(self.columns, generator.lanes)
        shape = DotShape(rows, columns, self.depth, self.a_steps[0], self.b.row, self.c.row, self.epilogue)
        return dot_function(generator, shape)

    def _stream(self, kernel: Kernel, stream: Stream, index: Value) -> Value:
        if len(self.c.outer) == 2:
            image, row = self.c.outer
            axes = [Axis(image.size, stream.image), Axis(row.size, stream.row)]
        else:
            axes = [Axis(self.count, self.rows * stream.pixel)]
        return kernel.pointer(stream.memory) + stream.start + offset_of(kernel.f, index, axes)

    def parts(self) -> Iterator[tuple[int, Product]]:
        """The sums part by part, as products that each follow the other: (number of equal parts, one of them). The
        results have the sum of those before."""
        steps, channels = self.packing.steps, self.products.channels
        sizes = [size * channels for size, count in split(steps, self.products.part_steps) for _ in range(count)]
        sizes[-1] -= steps * channels - self.depth
        first, *rest = sizes
        if not rest:
            yield 1, self
            return
        before = Stream(self.c.memory, 0, 0, 0, self.c.row, self.block, splat=False)
        yield 1, replace(self, depth=first, epilogue=Epilogue())
        for size, equal in groupby(rest[:-1]):
            yield len(list(equal)), replace(self, depth=size, epilogue=Epilogue(RESULT + Arg(1), (before,)))
        own = range(1, len(self.epilogue.streams) + 1)
        expr = substitute(self.epilogue.expr, [RESULT + Arg(own.stop), *map(Arg, own)])
        last = replace(self.epilogue, expr=expr, streams=(*self.epilogue.streams, before))
        yield 1, replace(self, depth=rest[-1], epilogue=last)


def products_by_rows(machine: Level, form: MatMul, a: Matrix, rows: int) -> Products:
    """How so many rows of a are multiplied."""
    if machine.multiplies_bfloats and form.accumulator == EXACT and not form.adj_x and rows >= FEWEST_COPIED_ROWS:
        return BfloatPairs(machine)
    if machine.multiplies_halves and form.accumulator == EXACT and not form.adj_x and rows >= FEWEST_COPIED_ROWS:
        return HalfSums(machine)
    return products_of(machine, form, a.memory.layout.dtype)


def write_matmul(writer: Writer, node: Node, form: MatMul) -> list[Job]:
    """The jobs of a MatMul node."""
    leading = permuted(writer.shape(node.outputs[0]), form.order)[:-2]
    sides = zip((*node.inputs[:2], *node.outputs), (form.a_order, form.b_order, form.order), strict=True)
    a, b, c = (matrix(writer.memory(index), writer.shape(index), order, leading) for index, order in sides)
    products = products_by_rows(writer.generator.machine, form, a, c.shape[0])
    return matmul_jobs(writer.generator, Product.of(form, products, a, b, c, writer.epilogue(node)))


def matmul_jobs(generator: Generator, product: Product) -> list[Job]:
    """The jobs of a node.

    If there are too few products for enough chunks, products are cut too: by columns if there are more columns than
    rows, or if chunks of rows would each pack the same columns of b; else by rows.
    """
    groups, total = product.groups, product.rows
    wanted = chunks_wanted(2 * product.count * total * product.columns * product.depth)
    if product.count >= wanted:
        at_once = divisor(product.count, product.count // wanted)
        return [_job(generator, product, groups, Chunks.of(product.count // at_once, 0, total, total), at_once)]
    by_panel = product.columns > total or (product.is_packed and not product.is_dot)
    pieces = product.count * (sum(group.count for group in groups) if by_panel else 1)
    tile = product.tile_rows(groups[0])
    rows = min(total, max(-(-total // -(-wanted // pieces)), tile))
    if product.is_packed:  # packing a panel costs as much as several rows of a
        most = total // -(-FEWEST_CHUNKS // pieces)
        rows = max(rows, min(most, 8 * FEWEST_COPIED_ROWS), min(total, 2 * FEWEST_COPIED_ROWS))
        rows = -(-total // max(1, (total + rows // 2) // rows) // tile) * tile
    if not by_panel:
        return [_job(generator, product, groups, Chunks.of(product.count, 0, total, rows))]
    return [_job(generator, product, [group], Chunks.of(product.count, group.count, total, rows)) for group in groups]


def _job(generator: Generator, product: Product, groups: Sequence[PanelGroup], chunks: Chunks, at_once: int = 1) -> Job:
    """Chunks have `at_once` products instead of images."""

    def body(kernel: Kernel) -> None:
        group, panel, part = chunks.numbers(kernel)

        def one(i: Value) -> None:
            pointers, first = product.pointers(kernel, group * at_once + i), part * chunks.rows

            def run(rows: int) -> None:
                product.walk(kernel, pointers, groups, first, rows, panel)

            chunks.run(kernel, part, run)

        kernel.f.loop(at_once, one)

    key = "matmul", *product.key, *groups, chunks, at_once
    return generator.once_for(key, lambda: generator.job("matmul", chunks.count, body))


@dataclass(frozen=True)
class MatMulWalk(PanelWalk):
    """As `PanelWalk`. A long panel is packed and multiplied part by part, so that it stays in the cache."""

    product: Product

    def meet(self, group: PanelGroup, pointers: Sequence[Value]) -> None:
        product, kernel, panels = self.product, self.kernel, self.panels
        if product.is_dot:
            kernel.f.call(product.dot(kernel.generator, group, self.rows), *product.down(pointers, self.first))
            return
        if not isinstance(panels, Packed) or product.products.accumulator != "float32":
            super().meet(group, pointers)
            return
        (a, b, c, *streams), parts = pointers, list(product.parts())
        for number, (count, part) in enumerate(parts):
            ends = [c, *(streams if number == len(parts) - 1 else ()), *([c] if number else ())]
            a, b = kernel.f.loop(count, partial(self._part, part, group, ends), a, b)

    def _part(
        self, part: Product, group: PanelGroup, ends: Sequence[Value], _: Value, a: Value, b: Value
    ) -> list[Value]:
        assert isinstance(self.panels, Packed)
        panels = replace(self.panels, packing=part.packing)
        self.multiply(part, group, [a, panels.at(self.kernel, group, b), *ends])
        return [a + part.depth * part.a_steps[1], b + part.depth * part.b_steps[1]]
