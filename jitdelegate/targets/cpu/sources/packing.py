"""Packs some columns of a matrix into a panel at run time, as `panels.pack` does at compile time."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import stored
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.shuffles import interleaved, joined, transposed
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value, vector
from jitdelegate.targets.cpu.multiply.products import QUAD, Products
from jitdelegate.targets.maths.cast import cast


@dataclass(frozen=True)
class Packing:
    """A packing function.

    Attributes:
        dtype: the matrix's type.
        depth: elements of a column.
        columns: number of columns; lanes after them in the last vector are arbitrary.
        row: bytes between rows of the matrix as it lies in memory.
        is_transposed: it lies as [columns, depth].
        zero: the data's zero point, as the products read it.
    """

    products: Products
    dtype: str
    vectors: int
    depth: int
    columns: int
    row: int
    is_transposed: bool
    zero: int = 0

    @property
    def steps(self) -> int:
        return -(-self.depth // self.products.channels)

    @property
    def has_bias(self) -> bool:
        """Whether the panel begins with a line of bias, which takes the zero point from the sums."""
        return self.zero + self.products.offset != 0

    @property
    def nbytes(self) -> int:
        """Bytes of the panel."""
        return self.vectors * (self.has_bias * self.products.bias_bytes + self.steps * self.products.weight_bytes)


def pack_function(generator: Generator, packing: Packing) -> str:
    """The name of `void pack(matrix, panel)`, which is written on first use."""
    return generator.once("pack", packing, lambda name: _PackFunction(generator, packing, name).write())


class _PackFunction:
    """A packing function that is being written."""

    def __init__(self, generator: Generator, packing: Packing, name: str) -> None:
        self.packing, self.products, self.lanes = packing, packing.products, generator.lanes
        self.channels, self.element = packing.products.channels, stored(packing.dtype)
        self.nbytes, self.line = ELEMENT_TYPES[packing.dtype].nbytes, packing.vectors * self.products.weight_bytes
        self.f = generator.module.function(name, [("matrix", POINTER), ("panel", POINTER)])

    def write(self) -> None:
        """Writes the whole function."""
        matrix, panel = self.f.parameters
        weights = panel + self.packing.has_bias * self.packing.vectors * self.products.bias_bytes
        (self._transpose if self.packing.is_transposed else self._copy)(matrix, weights)
        if self.packing.has_bias:
            self._write_bias(panel, weights)
        self.f.finish()

    def _store(self, step: Value, to: Value) -> None:
        """Stores a step of a vector of columns, channel by channel."""
        step = cast(self.f, step, self.packing.dtype, self.products.stored)
        self.f.store(self.products.as_stored(self.f, step), to, self.products.weight_bytes)

    def _copy(self, matrix: Value, to: Value) -> None:
        f, packing = self.f, self.packing
        tail, type_ = packing.columns % self.lanes, vector(self.lanes, self.element)
        mask = f.first_lanes(f.index(tail), self.lanes) if tail else None

        def load(at: Value, v: int) -> Value:
            is_last = v == packing.vectors - 1
            return f.load_masked(type_, at + v * self.lanes * self.nbytes, mask if is_last else None, self.nbytes)

        def step(_: Value, matrix: Value, to: Value, count: int = self.channels) -> list[Value]:
            for v in range(packing.vectors):
                rows = [load(matrix + channel * packing.row, v) for channel in range(count)]
                rows += [f.literal(type_, 0)] * (self.channels - count)
                self._store(joined(f, interleaved(f, rows)), to + v * self.products.weight_bytes)
            return [matrix + self.channels * packing.row, to + self.line]

        steps, left = divmod(packing.depth, self.channels)
        matrix, to = f.loop(steps, step, matrix, to) if steps else (matrix, to)
        if left:
            step(f.index(0), matrix, to, left)

    def _transpose(self, matrix: Value, to: Value) -> None:
        """Transposes one vector of columns at a time; the columns are rows of the matrix."""
        f, packing = self.f, self.packing
        full, tail = divmod(packing.columns, self.lanes)

        def one(_: Value, matrix: Value, to: Value) -> list[Value]:
            self._transpose_vector(matrix, to, self.lanes)
            return [matrix + self.lanes * packing.row, to + self.products.weight_bytes]

        matrix, to = f.loop(full, one, matrix, to) if full else (matrix, to)
        if tail:
            self._transpose_vector(matrix, to, tail)

    def _transpose_vector(self, matrix: Value, to: Value, rows: int) -> None:
        """Makes `rows` rows into that many lanes; the other lanes repeat the last row."""
        f, elements = self.f, QUAD * self.channels
        quads, left = divmod(self.packing.depth, elements)

        def quad(_: Value, matrix: Value, to: Value, count: int = elements) -> list[Value]:
            for k, step in enumerate(self._quad(matrix, rows, count)[: -(-count // self.channels)]):
                self._store(step, to + k * self.line)
            return [matrix + elements * self.nbytes, to + QUAD * self.line]

        matrix, to = f.loop(quads, quad, matrix, to) if quads else (matrix, to)
        if left:
            quad(f.index(0), matrix, to, left)

    def _quad(self, matrix: Value, rows: int, count: int) -> list[Value]:
        """`count` elements of all rows as steps, one vector for each."""
        parts, pieces = self.lanes // QUAD, []
        for first in range(QUAD):
            distances = [min(first + QUAD * part, rows - 1) * self.packing.row for part in range(parts)]
            pieces.append(joined(self.f, [self._piece(matrix + distance, count) for distance in distances]))
        steps, type_ = transposed(self.f, pieces), vector(self.lanes * self.channels, self.element)
        return [step if step.type == type_ else self.f.cast("bitcast", step, type_) for step in steps]

    def _piece(self, at: Value, count: int) -> Value:
        """Four steps of a row, of which `count` elements are read; all channels of a step are one number."""
        f, elements = self.f, QUAD * self.channels
        mask = f.first_lanes(f.index(count), elements) if count < elements else None
        piece = f.load_masked(vector(elements, self.element), at, mask, self.nbytes)
        if self.channels == 1:
            return piece
        return f.cast("bitcast", piece, vector(QUAD, f"i{8 * self.channels * self.nbytes}"))

    def _write_bias(self, panel: Value, weights: Value) -> None:
        """Minus the products of the weights and a row of zero points."""
        f, packing, products = self.f, self.packing, self.products
        bits, lines = 8 * products.step_bytes // self.channels, packing.vectors
        word = sum((packing.zero & ((1 << bits) - 1)) << (bits * channel) for channel in range(self.channels))
        row = Value(f, POINTER, f.module.table([word]))

        def step(_: Value, at: Value, *sums: Value) -> list[Value]:
            data, (line,) = products.data(f, row), products.lines(f, at, lines, 1)
            return [at + self.line, *(products.add(f, data, *pair) for pair in zip(line, sums, strict=True))]

        _, *sums = f.loop(packing.steps, step, weights, *[f.literal(products.sum_type, 0)] * lines)
        for number, total in enumerate(sums):
            bias = f.literal(products.result_type, 0) - products.widened(f, total)
            f.store(bias, panel + number * products.bias_bytes, products.bias_bytes)
