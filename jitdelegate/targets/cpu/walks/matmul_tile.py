"""The register tile of a product: some rows of a times one panel of b. The sums stay in registers during the loop.
All sizes and distances are part of the code, so an access needs no register of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Value
from jitdelegate.targets.cpu.walks.register_tile import STACK_ALIGN

UNROLLED = 4
"""Steps of the sums in one round of the loop."""
SEGMENT = 512
"""Steps in one segment of a long sum. Segments are added up separately, so that rounding errors grow with the length of
a segment."""


@dataclass(frozen=True)
class ProductShape:
    """Facts that are fixed in a tile function: distances in bytes, everything else in elements.

    Attributes:
        a_steps: distances in a (between rows of a tile, between steps of its sums).
        b_row: distance in b between steps of the sums.
        tail: columns in the last vector if that is not full, else 0.
        is_exact: b's memory may end with its last element, so a vector that is not full must be read with a mask.
    """

    rows: int
    vectors: int
    depth: int
    a_steps: tuple[int, int]
    b_row: int
    c_row: int
    tail: int
    is_exact: bool
    epilogue: Epilogue

    @property
    def key(self) -> str:
        """A text that is equal for tiles with the same code."""
        distances = [(s.pixel, s.block) for s in self.epilogue.streams]
        sizes = (self.rows, self.vectors, self.depth, self.a_steps, self.b_row, self.c_row, self.tail, self.is_exact)
        return f"{sizes} {distances} {self.epilogue.key}"


def product_function(generator: Generator, shape: ProductShape) -> str:
    """The name of `void tile(a, b, c, tiles, stream pointers ...)`, which is written on first use."""
    prefix = f"product_{shape.rows}x{shape.vectors}"
    return generator.once(prefix, shape.key, lambda name: ProductTile(generator, shape, name).write())


class ProductTile:
    """A tile function that is being written."""

    def __init__(self, generator: Generator, shape: ProductShape, name: str) -> None:
        parameters = [("a", POINTER), ("b", POINTER), ("c", POINTER), ("tiles", INDEX)]
        parameters += [(f"s{k}", POINTER) for k in range(len(shape.epilogue.streams))]
        self.shape = shape
        self.lanes, self.vector, self.vector_bytes = generator.lanes, generator.vector, generator.vector_bytes
        self.f = generator.module.function(name, parameters)

    def write(self) -> None:
        """Writes the function, which computes `tiles` tiles down the rows."""
        f, shape = self.f, self.shape
        a, b, c, tiles, *streams = f.parameters
        self.b = b
        self.mask = f.first_lanes(f.index(shape.tail), self.lanes) if shape.tail else None
        if shape.depth > SEGMENT:
            size = shape.rows * shape.vectors * self.vector_bytes
            self.totals = f.emit(POINTER, f"alloca [{size} x i8], align {STACK_ALIGN}")
        moves = [shape.a_steps[0], shape.c_row, *(s.pixel for s in shape.epilogue.streams)]

        def tile(_: Value, *pointers: Value) -> list[Value]:
            self._tile(*pointers)
            return [p + shape.rows * move for p, move in zip(pointers, moves, strict=True)]

        f.loop(tiles, tile, a, c, *streams)
        f.finish()

    def _tile(self, a: Value, c: Value, *streams: Value) -> None:
        shape = self.shape
        sums = self._sum(a)
        for row in range(shape.rows):
            at = [s + row * stream.pixel for s, stream in zip(streams, shape.epilogue.streams, strict=True)]
            self._finish_row(c + row * shape.c_row, at, sums[row * shape.vectors :][: shape.vectors])

    def _sum(self, a: Value) -> list[Value]:
        zeros = [self.f.literal(self.vector, 0.0)] * (self.shape.rows * self.shape.vectors)
        if self.shape.depth <= SEGMENT:
            return self._walk(a, self.b, zeros, self.shape.depth)[2:]
        return self._sum_segments(a, zeros)

    def _sum_segments(self, a: Value, zeros: list[Value]) -> list[Value]:
        """Sums segment by segment; the totals are kept in memory, since the registers are full."""
        f = self.f
        places = [self.totals + i * self.vector_bytes for i in range(len(zeros))]
        for place, zero in zip(places, zeros, strict=True):
            f.store(zero, place, STACK_ALIGN)
        b = self.b
        for length, count in split(self.shape.depth, SEGMENT):

            def segment(_: Value, a: Value, b: Value, length: int = length) -> list[Value]:
                a, b, *sums = self._walk(a, b, zeros, length)
                for place, part in zip(places, sums, strict=True):
                    f.store(f.load(self.vector, place, STACK_ALIGN) + part, place, STACK_ALIGN)
                return [a, b]

            a, b = f.loop(count, segment, a, b)
        return [f.load(self.vector, place, STACK_ALIGN) for place in places]

    def _walk(self, a: Value, b: Value, sums: list[Value], depth: int) -> list[Value]:
        """The pointers a and b after `depth` steps, then the sums."""
        state = [a, b, *sums]
        for steps, count in ((UNROLLED, depth // UNROLLED), (depth % UNROLLED, 1)):
            if steps and count:
                state = self.f.loop(count, lambda _, *state, steps=steps: self._multiply(state, steps), *state)
        return state

    def _multiply(self, state: Sequence[Value], steps: int) -> list[Value]:
        f, shape = self.f, self.shape
        a, b, *sums = state
        row_step, step = shape.a_steps
        for k in range(steps):
            line = [self._load(b + k * shape.b_row, v) for v in range(shape.vectors)]
            for row in range(shape.rows):
                factor = f.broadcast(a + (row * row_step + k * step), self.lanes)
                for v in range(shape.vectors):
                    sums[row * shape.vectors + v] = f.fma(factor, line[v], sums[row * shape.vectors + v])
        return [a + steps * step, b + steps * shape.b_row, *sums]

    def _load(self, line: Value, v: int) -> Value:
        at = line + v * self.vector_bytes
        if self.mask is not None and self.shape.is_exact and v == self.shape.vectors - 1:
            return self.f.load_masked(self.vector, at, self.mask)
        return self.f.load(self.vector, at)

    def _finish_row(self, c: Value, streams: Sequence[Value], results: Sequence[Value]) -> None:
        f, epilogue = self.f, self.shape.epilogue
        for v, result in enumerate(results):
            mask = self.mask if v == len(results) - 1 else None
            at = [s + v * stream.block for s, stream in zip(streams, epilogue.streams, strict=True)]
            epilogue.store(f, result, at, c + v * self.vector_bytes, mask)
