"""MatMul: products of row-major matrices that are known only at run time, cut into chunks of rows or of columns.

The columns of a product are divided into panels of a few vectors. A panel's part of b is read in place, or first copied
to the thread's scratch memory if it must be transposed, if its rows would compete for the same cache sets, or if it is
long. A few rows times a transposed b need no panels: the sums run along the rows of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from jitdelegate.ir.expr import RESULT, Arg, substitute
from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.code.kernel import (
    Axis,
    Job,
    JobWriter,
    Kernel,
    Memory,
    distances_along,
    divisor,
    offset_of,
    split,
)
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.sources.matmul_pack import PackedPanel, pack_function
from jitdelegate.targets.cpu.walks.matmul_dot import DotShape, dot_function
from jitdelegate.targets.cpu.walks.matmul_tile import SEGMENT, ProductShape, product_function
from jitdelegate.targets.planning.implicit_gemm import matrix_strides, permuted

Part = tuple[int, int, Epilogue, tuple[Value, ...]]
"""Parts of a sum: steps, number of such parts, what is stored of it, and pointers to its streams."""

CHUNK_WORK = 4_000_000
"""Floating-point operations that are worth a chunk of their own."""
FEWEST_CHUNKS = 16
"""Fewest chunks of a large product, so that threads end at about the same time."""
SMALL_WORK = 400_000
"""Floating-point operations below which a product is not cut: threads would cost more than they save."""
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
class Product:
    """One node with all that chunk functions need to compute parts of it."""

    form: MatMul
    a: Matrix
    b: Matrix
    c: Matrix
    epilogue: Epilogue

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
    def depth(self) -> int:
        return self.a.shape[0 if self.form.adj_x else 1]

    @property
    def work(self) -> int:
        """Floating-point operations."""
        return 2 * self.count * self.rows * self.columns * self.depth

    @property
    def a_steps(self) -> tuple[int, int]:
        """Bytes in a (between rows of the product, between steps of its sums)."""
        return (self.a.element, self.a.row) if self.form.adj_x else (self.a.row, self.a.element)

    @property
    def is_dot(self) -> bool:
        """Whether sums run along the rows of both operands."""
        contiguous = not self.form.adj_x or self.a.row == self.a.element
        return self.form.adj_y and contiguous and self.rows <= MOST_DOT_ROWS

    @property
    def is_packed(self) -> bool:
        """Whether panels of b are copied to scratch memory."""
        is_crowded = self.b.row >= FAR_ROWS and self.b.row * self.depth > CACHE_BYTES
        return self.form.adj_y or ((is_crowded or self.depth > SEGMENT) and self.rows >= FEWEST_COPIED_ROWS)

    def stream_axes(self, stream: Stream) -> list[Axis]:
        """The axes along which a stream advances from product to product."""
        if len(self.c.outer) == 2:
            image, row = self.c.outer
            return [Axis(image.size, stream.image), Axis(row.size, stream.row)]
        return [Axis(self.count, self.rows * stream.pixel)]


@dataclass(frozen=True)
class Panels:
    """Panels of equal width and code, one after another, from column `start` on.

    Attributes:
        tail: columns in a panel's last vector if that is not full, else 0.
    """

    start: int
    vectors: int
    count: int
    tail: int

    def columns(self, lanes: int) -> int:
        """Number of columns of b in one panel."""
        return (self.vectors - 1) * lanes + self.tail if self.tail else self.vectors * lanes


@dataclass(frozen=True)
class Place:
    """The start of a chunk: pointers into a, b, c and the streams of the epilogue."""

    a: Value
    b: Value
    c: Value
    streams: tuple[Value, ...]

    def moved(self, a: Value | int, b: Value | int, c: Value | int, streams: Sequence[Value | int]) -> Place:
        """Each pointer advanced by its number of bytes."""
        moved = tuple(pointer + far for pointer, far in zip(self.streams, streams, strict=True))
        return Place(self.a + a, self.b + b, self.c + c, moved)


def write_matmul(writer: Writer, node: Node, form: MatMul) -> list[Job]:
    """The jobs of a MatMul node."""
    leading = permuted(writer.shape(node.outputs[0]), form.order)[:-2]
    sides = zip((*node.inputs[:2], *node.outputs), (form.a_order, form.b_order, form.order), strict=True)
    a, b, c = (matrix(writer.memory(index), writer.shape(index), order, leading) for index, order in sides)
    return MatMulWriter(writer.generator).jobs(form, a, b, c, writer.epilogue(node))


class MatMulWriter(JobWriter):
    """Writes the jobs of MatMul nodes.

    Attributes:
        panel_start: bytes of scratch memory that are in use; packed panels lie behind them.
    """

    panel_start = 0

    def jobs(self, form: MatMul, a: Matrix, b: Matrix, c: Matrix, epilogue: Epilogue) -> list[Job]:
        """The jobs of a node.

        If there are too few products for enough chunks, products are cut too: by columns if there are more columns than
        rows, or if chunks of rows would each copy the same columns of b to scratch memory; else by rows.
        """
        product = Product(form, a, b, c, epilogue)
        panels = list(self._panels(product))
        wanted = 1 if product.work < SMALL_WORK else max(FEWEST_CHUNKS, product.work // CHUNK_WORK)
        if product.count >= wanted:
            return [self._job(product, panels, divisor(product.count, product.count // wanted), product.rows)]
        by_panel = product.columns > product.rows or (product.is_packed and not product.is_dot)
        pieces = product.count * (sum(group.count for group in panels) if by_panel else 1)
        rows = max(-(-product.rows // -(-wanted // pieces)), self._fewest_rows(product, panels))
        if by_panel:
            return [self._job(product, [group], 1, min(rows, product.rows), group.count) for group in panels]
        return [self._job(product, panels, 1, min(rows, product.rows))]

    def _panels(self, product: Product) -> Iterator[Panels]:
        """All columns as panels of nearly equal widths."""
        lanes, widest = self.generator.lanes, len(self.generator.machine.tiles)
        widest *= 2 if product.rows <= FEW_ROWS else 1
        start, tail = 0, product.columns % lanes
        for vectors, count in split(-(-product.columns // lanes), widest):
            last = start + vectors * count * lanes >= product.columns and tail > 0
            if count > last:
                yield Panels(start, vectors, count - last, 0)
            start += vectors * count * lanes
            if last:
                yield Panels(start - vectors * lanes, vectors, 1, tail)

    # chunks

    def _job(self, product: Product, panels: Sequence[Panels], at_once: int, rows: int, among: int = 1) -> Job:
        """Chunks are (`at_once` products, one of `among` equal panels, `rows` rows); the last may have fewer rows."""
        parts = -(-product.rows // rows)
        last = product.rows - (parts - 1) * rows
        chosen = panels if among == 1 else [replace(panels[0], count=1)]

        def body(kernel: Kernel) -> None:
            f = kernel.f
            part, rest = kernel.chunk % parts, kernel.chunk // parts
            number, group = rest % among, rest // among
            column = number * (panels[0].vectors * self.generator.lanes)

            def one(i: Value) -> None:
                place = self._place(kernel, product, group * at_once + i)
                place = self._across(product, self._down(product, place, part * rows), column)

                def run(rows: int) -> None:
                    self._walk_all(kernel, product, chosen, place, rows)

                f.when_last(part, parts if last != rows else 1, lambda: run(rows), lambda: run(last))

            f.loop(at_once, one)

        return self.generator.job("matmul", product.count // at_once * among * parts, body)

    def _fewest_rows(self, product: Product, panels: Sequence[Panels]) -> int:
        """Fewest rows that are worth a chunk: copying b to scratch memory costs as much as several rows of a."""
        return 2 * FEWEST_COPIED_ROWS if product.is_packed else self._tile_rows(panels[0])

    def _tile_rows(self, panels: Panels) -> int:
        tiles = self.generator.machine.tiles
        return tiles[panels.vectors - 1] if panels.vectors <= len(tiles) else FEW_ROWS

    # places

    def _place(self, kernel: Kernel, product: Product, index: Value) -> Place:
        """The start of product number `index`."""
        f = kernel.f
        a, b, c = (
            kernel.pointer(side.memory) + offset_of(f, index, side.outer) for side in (product.a, product.b, product.c)
        )
        streams = tuple(
            kernel.pointer(stream.memory) + stream.start + offset_of(f, index, product.stream_axes(stream))
            for stream in product.epilogue.streams
        )
        return Place(a, b, c, streams)

    def _down(self, product: Product, place: Place, row: Value | int) -> Place:
        """The place `row` rows further down."""
        streams = [row * stream.pixel for stream in product.epilogue.streams]
        return place.moved(row * product.a_steps[0], 0, row * product.c.row, streams)

    def _across(self, product: Product, place: Place, column: Value | int) -> Place:
        """The place `column` columns further right; `column` is a multiple of the lanes."""
        lanes = self.generator.lanes
        blocks = column // lanes
        streams = [blocks * stream.block for stream in product.epilogue.streams]
        b = column * (product.b.row if product.form.adj_y else product.b.element)
        return place.moved(0, b, column * product.c.element, streams)

    # one chunk

    def _walk_all(self, kernel: Kernel, product: Product, panels: Sequence[Panels], place: Place, rows: int) -> None:
        for group in panels:
            self._walk(kernel, product, group, self._across(product, place, group.start), rows)

    def _walk(self, kernel: Kernel, product: Product, panels: Panels, place: Place, rows: int) -> None:
        """`rows` rows, starting at `place`, times each of the panels."""

        def one(_: Value, b: Value, c: Value, *streams: Value) -> list[Value]:
            here = Place(place.a, b, c, streams)
            self._multiply(kernel, product, panels, here, rows)
            there = self._across(product, here, panels.vectors * self.generator.lanes)
            return [there.b, there.c, *there.streams]

        kernel.f.loop(panels.count, one, place.b, place.c, *place.streams)

    def _multiply(self, kernel: Kernel, product: Product, panels: Panels, place: Place, rows: int) -> None:
        if product.is_dot:
            self._dot(kernel, product, panels, place, rows)
            return
        if product.is_packed:
            self._multiply_packed(kernel, product, panels, place, rows)
        else:
            self._tiles(kernel, product, panels, place, rows, product.b.row, product.depth)

    def _multiply_packed(self, kernel: Kernel, product: Product, panels: Panels, place: Place, rows: int) -> None:
        """Copies a panel to scratch memory, and a long one part by part, so that it stays in the cache."""
        moves = product.a_steps[1], product.b.element if product.form.adj_y else product.b.row
        a, b = place.a, place.b
        for part in self._parts(product, place):

            def one(_: Value, a: Value, b: Value, part: Part = part) -> list[Value]:
                depth, _count, epilogue, streams = part
                here = Place(a, self._pack(kernel, product, panels, b, depth), place.c, streams)
                some, row = replace(product, epilogue=epilogue), panels.vectors * self.generator.vector_bytes
                self._tiles(kernel, some, panels, here, rows, row, depth)
                return [a + depth * moves[0], b + depth * moves[1]]

            a, b = kernel.f.loop(part[1], one, a, b)

    def _parts(self, product: Product, place: Place) -> Iterator[Part]:
        """The parts of a sum, one after another; c has the sum of those before."""
        epilogue, sizes = product.epilogue, split(product.depth, SEGMENT)
        first, *rest = [size for size, count in sizes for _ in range(count)]
        if not rest:
            yield first, 1, epilogue, place.streams
            return
        before = Stream(product.c.memory, 0, 0, 0, product.c.row, self.generator.vector_bytes, splat=False)
        yield first, 1, Epilogue(), ()
        for size, equal in groupby(rest[:-1]):
            yield size, len(list(equal)), Epilogue(RESULT + Arg(1), (before,)), (place.c,)
        streams = range(1, len(epilogue.streams) + 1)
        expr = substitute(epilogue.expr, [RESULT + Arg(streams.stop), *map(Arg, streams)])
        yield rest[-1], 1, replace(epilogue, expr=expr, streams=(*epilogue.streams, before)), (*place.streams, place.c)

    def _tiles(
        self, kernel: Kernel, product: Product, panels: Panels, place: Place, rows: int, b_row: int, depth: int
    ) -> None:
        """`rows` rows times one panel, whose rows are `b_row` bytes apart."""
        for height, count in split(rows, self._tile_rows(panels)):
            shape = ProductShape(
                rows=height,
                vectors=panels.vectors,
                depth=depth,
                a_steps=product.a_steps,
                b_row=b_row,
                c_row=product.c.row,
                tail=panels.tail,
                is_exact=product.b.memory.exact and not product.is_packed,
                epilogue=product.epilogue,
            )
            kernel.f.call(
                product_function(self.generator, shape),
                place.a,
                place.b,
                place.c,
                kernel.f.index(count),
                *place.streams,
            )
            place = self._down(product, place, height * count)

    def _pack(self, kernel: Kernel, product: Product, panels: Panels, b: Value, depth: int) -> Value:
        """Copies `depth` steps of a panel of b to scratch memory; returns their address."""
        columns, is_transposed = panels.columns(self.generator.lanes), product.form.adj_y
        panel = PackedPanel(panels.vectors, depth, columns, product.b.row, is_transposed)
        self.generator.reserve_scratch(self.panel_start + depth * panels.vectors * self.generator.vector_bytes)
        start = kernel.scratch + self.panel_start
        kernel.f.call(pack_function(self.generator, panel), b, start)
        return start

    def _dot(self, kernel: Kernel, product: Product, panels: Panels, place: Place, rows: int) -> None:
        columns, a_row = panels.columns(self.generator.lanes), product.a_steps[0]
        shape = DotShape(rows, columns, product.depth, a_row, product.b.row, product.c.row, product.epilogue)
        kernel.f.call(dot_function(self.generator, shape), place.a, place.b, place.c, *place.streams)
