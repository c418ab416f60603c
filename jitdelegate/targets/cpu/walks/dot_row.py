"""A row of a Contract of few output channels: vectors of data times vectors of weights, whose lanes are added up last.

Tiles are a few pixels. Their sums of all lanes are folded to neighbouring results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Value, vector

MOST_PIXELS = 8
"""Pixels of a tile: a core multiplies for as many at once."""


@dataclass(frozen=True)
class DotShape:
    """The facts that are fixed in the code of a row function.

    Attributes:
        outputs: channels of results.
        phases: for each of the results that belong to a pixel of the data, one after another: vectors of data that are
            multiplied, and those of which only the first lanes are.
        tail: these lanes.
        a_pixel: bytes from the data of a pixel to those of the next one.
        columns: pixels.
    """

    outputs: int
    phases: tuple[tuple[int, int], ...]
    tail: int
    a_pixel: int
    columns: int
    epilogue: Epilogue

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for functions with the same code."""
        streams = tuple(stream.pixel for stream in self.epilogue.streams)
        return self.outputs, self.phases, self.tail, self.a_pixel, self.columns, streams, self.epilogue.key

    @property
    def results(self) -> int:
        """Those of a pixel."""
        return len(self.phases) * self.outputs


def dot_row_function(generator: Generator, shape: DotShape) -> str:
    """The name of `void row(a, weights, c, offsets, streams ...)`, which is written on first use. The weights are
    [bias of each output, repeated for all lanes][step][output][lane], the offsets those of each step from the data of a
    pixel."""
    return generator.once("dot_row", shape.key, lambda name: _DotRow(generator, shape, name).write())


class _DotRow:
    """A row function that is being written."""

    def __init__(self, generator: Generator, shape: DotShape, name: str) -> None:
        parameters = [("a", POINTER), ("w", POINTER), ("c", POINTER), ("offsets", POINTER)]
        parameters += [(f"s{k}", POINTER) for k in range(len(shape.epilogue.streams))]
        self.f = generator.module.function(name, parameters)
        self.shape, self.lanes, self.line = shape, generator.lanes, generator.vector_bytes
        self.weights = self.f.parameters[1] + self.line

    def write(self) -> None:
        f, shape = self.f, self.shape
        a, w, c, _, *streams = f.parameters
        moves = [shape.a_pixel, shape.results * ELEMENT_TYPES[shape.epilogue.dtype].nbytes]
        moves += [stream.pixel for stream in shape.epilogue.streams]
        bias = f.load(vector(self.lanes), w)
        pointers = [a, c, *streams]
        for size, count in split(shape.columns, min(MOST_PIXELS, self.lanes // shape.results)):

            def tile(_: Value, *pointers: Value, size: int = size) -> list[Value]:
                self._tile(pointers, bias, size)
                return [p + size * move for p, move in zip(pointers, moves, strict=True)]

            pointers = f.loop(count, tile, *pointers)
        f.finish()

    def _tile(self, pointers: Sequence[Value], bias: Value, size: int) -> None:
        """Stores the results of `size` pixels."""
        f, shape, (a, c, *streams) = self.f, self.shape, pointers
        count = size * shape.results
        total = folded(f, self._sums(a, size))
        mask = f.first_lanes(f.index(count), total.lanes) if count < total.lanes else None
        shape.epilogue.store(f, total + f.part(bias, 0, total.lanes), streams, c, mask)

    def _sums(self, a: Value, size: int) -> list[Value]:
        """The sums of each pixel, phase and output."""
        f, shape, type_, found = self.f, self.shape, vector(self.lanes), list[list[Value]]()
        position, zeros = [f.parameters[3], self.weights], [f.literal(type_, 0)] * (size * shape.outputs)

        def step(_: Value, offsets: Value, w: Value, *sums: Value, mask: Value | None = None) -> list[Value]:
            at, after = a + f.load(INDEX, offsets, 8), list[Value]()
            factors = [f.load(type_, w + output * self.line, self.line) for output in range(shape.outputs)]
            for pixel in range(size):
                data = f.load_masked(type_, at + pixel * shape.a_pixel, mask)
                after += [f.fma(data, each, sums[len(after) + k]) for k, each in enumerate(factors)]
            return [offsets + 8, w + shape.outputs * self.line, *after]

        mask = f.first_lanes(f.index(shape.tail), self.lanes)
        for whole, parts in shape.phases:
            state = [*position, *zeros]
            state = f.loop(whole, step, *state) if whole else state
            state = f.loop(parts, partial(step, mask=mask), *state) if parts else state
            position, sums = state[:2], state[2:]
            found.append(sums)
        pixels = range(0, len(zeros), shape.outputs)
        return [each for pixel in pixels for sums in found for each in sums[pixel : pixel + shape.outputs]]


def folded(f: Function, sums: Sequence[Value]) -> Value:
    """The sum of the lanes of each vector, in a vector of as many lanes as there are vectors, or of the next power of
    two; there are no more vectors than lanes."""
    parts, apart = list(sums), 1
    while len(parts) > 1:
        last = parts[-1:] * (len(parts) % 2)
        parts = [_pair(f, a, b, apart) for a, b in zip(parts[::2], [*parts[1::2], *last], strict=True)]
        apart *= 2
    total = parts[0]
    while total.lanes > apart:
        half = total.lanes // 2
        total = f.part(total, 0, half) + f.part(total, half, half)
    return total


def _pair(f: Function, a: Value, b: Value, apart: int) -> Value:
    """The sums of lanes that are `apart`: those of a where its bit is not set in a lane's number, else those of b."""
    lanes = range(a.lanes)
    own = [lane + a.lanes * (lane & apart > 0) for lane in lanes]
    return f.shuffle(a, b, own) + f.shuffle(a, b, [each ^ apart for each in own])
