"""A few rows times a transposed b: sums along the rows of both, four columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.code.shuffles import transposed
from jitdelegate.targets.cpu.code.vector_ir import FLOAT_BYTES, POINTER, Value
from jitdelegate.targets.cpu.multiply.products import QUAD


@dataclass(frozen=True)
class DotShape:
    """A function that computes some rows and columns of a product; distances between rows are in bytes."""

    rows: int
    columns: int
    depth: int
    a_row: int
    b_row: int
    c_row: int
    epilogue: Epilogue

    @property
    def key(self) -> str:
        """A text that is equal for functions with the same code."""
        distances = [(s.pixel, s.block) for s in self.epilogue.streams]
        sizes = (self.rows, self.columns, self.depth, self.a_row, self.b_row, self.c_row)
        return f"{sizes} {distances} {self.epilogue.key}"


def dot_function(generator: Generator, shape: DotShape) -> str:
    """The name of `void dot(a, b, c, stream pointers ...)`, which is written on first use."""
    return generator.once(f"dot_{shape.rows}", shape.key, lambda name: Dot(generator, shape, name).write())


class Dot:
    """A dot function that is being written."""

    def __init__(self, generator: Generator, shape: DotShape, name: str) -> None:
        parameters = [("a", POINTER), ("b", POINTER), ("c", POINTER)]
        parameters += [(f"s{k}", POINTER) for k in range(len(shape.epilogue.streams))]
        self.shape = shape
        self.lanes, self.vector, self.vector_bytes = generator.lanes, generator.vector, generator.vector_bytes
        self.f = generator.module.function(name, parameters)

    def write(self) -> None:
        """Writes the function: four columns at a time; the last group may have fewer."""
        f, shape = self.f, self.shape
        quads, left = divmod(shape.columns, QUAD)

        def quad(i: Value, b: Value, c: Value) -> list[Value]:
            self._quad(i, b, c, QUAD)
            return [b + QUAD * shape.b_row, c + QUAD * FLOAT_BYTES]

        b, c = f.loop(quads, quad, *f.parameters[1:3]) if quads else f.parameters[1:3]
        if left:
            self._quad(f.index(quads), b, c, left)
        f.finish()

    def _quad(self, number: Value, b: Value, c: Value, columns: int) -> None:
        f, shape = self.f, self.shape
        sums = self._sum(b, columns)
        mask = f.first_lanes(f.index(columns), QUAD) if columns < QUAD else None
        for row in range(shape.rows):
            result = self._folded(sums[row * QUAD : (row + 1) * QUAD])
            shape.epilogue.store(f, result, self._streams(number, row), c + row * shape.c_row, mask)

    def _streams(self, number: Value, row: int) -> list[Value]:
        """Pointers to the streams at quad `number` of a row."""
        quads = self.lanes // QUAD
        pairs = zip(self.f.parameters[3:], self.shape.epilogue.streams, strict=True)
        return [
            s + row * stream.pixel + (number // quads * stream.block + number % quads * _quad_bytes(stream.block))
            for s, stream in pairs
        ]

    def _sum(self, b: Value, columns: int) -> list[Value]:
        """A vector of partial sums for each row and each of four columns; absent columns repeat the last column."""
        f, shape = self.f, self.shape
        full, left = divmod(shape.depth, self.lanes)
        sums = [f.literal(self.vector, 0.0)] * (shape.rows * QUAD)

        def step(_: Value, a: Value, b: Value, *sums: Value, mask: Value | None = None) -> list[Value]:
            rights = [self._load(b + min(n, columns - 1) * shape.b_row, mask) for n in range(QUAD)]
            lefts = [self._load(a + row * shape.a_row, mask) for row in range(shape.rows)]
            pairs = [(left, right) for left in lefts for right in rights]
            products = [f.fma(left, right, total) for (left, right), total in zip(pairs, sums, strict=True)]
            return [a + self.vector_bytes, b + self.vector_bytes, *products]

        a = f.parameters[0]
        if full:
            a, b, *sums = f.loop(full, step, a, b, *sums)
        if left:
            sums = step(f.index(0), a, b, *sums, mask=f.first_lanes(f.index(left), self.lanes))[2:]
        return sums

    def _load(self, at: Value, mask: Value | None) -> Value:
        return self.f.load_masked(self.vector, at, mask)

    def _folded(self, sums: Sequence[Value]) -> Value:
        """The sums of the lanes of four vectors, as one vector of four."""
        f, parts = self.f, list(sums)
        while parts[0].lanes > QUAD:
            half = parts[0].lanes // 2
            parts = [f.shuffle(p, p, range(half)) + f.shuffle(p, p, range(half, 2 * half)) for p in parts]
        a, b, c, d = transposed(f, parts)
        return (a + b) + (c + d)


def _quad_bytes(block: int) -> int:
    """Bytes to the next four channels of a stream that has channels."""
    return QUAD * FLOAT_BYTES if block else 0
