"""Fourier: one row after the other, in double precision; vectors of neighbouring frequencies.

The first stage has as many neighbours as a vector has lanes, and transposes what it stores, so that all later stages
read and write whole vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.ir.forms import Fourier
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cpu.code.kernel import ALIGN, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import DOUBLE, FLOAT, FLOAT_BYTES, Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.fourier import Complex, Stage, product, real_transform, small_transform, stages, turns

BYTES = 8
"""Of a double."""
WORK = 4
"""Time of one element of a row, in elements of a copy."""


def write_fourier(writer: Writer, node: Node, form: Fourier) -> list[Job]:
    """The jobs of a Fourier node: rows of complex numbers, half as many as a row's elements, one by one."""
    generator, (data, out), count = writer.generator, placed(writer, node), form.length // 2
    lanes = generator.lanes // 2
    while lanes * lanes > count:
        lanes //= 2
    buffer = -(-(count + lanes) * BYTES // ALIGN) * ALIGN  # no power of two: parts would share cache sets
    generator.reserve_scratch(4 * buffer)
    first, *rest = stages(count, lanes)
    tables = [generator.weights.add(_parts(first.twiddles().T))]
    tables += [generator.weights.add(stage.twiddles().view(np.float64)) for stage in rest]
    last = generator.weights.add(_parts(turns(count)))

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        source = kernel.pointer(data.memory) + offset_of(f, number, data.axes[:-1])
        target = kernel.pointer(out.memory) + number * ((count + 1) * 2 * FLOAT_BYTES)
        here, there = (Buffer(f, kernel.scratch + at, buffer, lanes) for at in (0, 2 * buffer))
        _first_stage(f, first, Signal(f, source, data.shape[-1], count, lanes), here, kernel.constants(tables[0]))
        for stage, table in zip(rest, tables[1:], strict=True):
            _stage(f, stage, here, there, kernel.constants(table))
            here, there = there, here
        _finish(f, here, count, kernel.constants(last), target)

    return [job_of_rows(generator, "fourier", size_of(data.axes[:-1]), WORK * 2 * count, row)]


def _parts(values: np.ndarray) -> np.ndarray:
    """float64[2, ...]: the real parts, then the imaginary parts."""
    return np.stack([values.real, values.imag])


@dataclass(frozen=True)
class Signal:
    """A row of real numbers, read as `count` complex ones; numbers beyond its end are 0."""

    f: Function
    start: Value
    size: int
    count: int
    lanes: int

    def load(self, first: Value) -> Complex:
        """Complex numbers from `first` on."""
        f, width = self.f, 2 * self.lanes
        mask = None
        if self.size < 2 * self.count:
            left = f.index(self.size) - first * 2
            mask = f.first_lanes(f.maximum(left, 0), width)
        both = f.load_masked(vector(width), self.start + first * (2 * FLOAT_BYTES), mask)
        halves = (f.shuffle(both, both, range(part, width, 2)) for part in (0, 1))
        real, imaginary = (f.convert("fpext", half, DOUBLE) for half in halves)
        return real, imaginary


@dataclass(frozen=True)
class Buffer:
    """Complex numbers in scratch memory: the real parts, and `pitch` bytes after each its imaginary part."""

    f: Function
    start: Value
    pitch: int
    lanes: int

    def load(self, first: Value) -> Complex:
        """A vector from `first` on."""
        return load_parts(self.f, self.start + first * BYTES, self.pitch, self.lanes)

    def store(self, value: Complex, first: Value) -> None:
        """Stores a vector from `first` on."""
        for part, numbers in enumerate(value):
            self.f.store(numbers, self.start + first * BYTES + part * self.pitch, BYTES)


def load_parts(f: Function, at: Value, pitch: int, lanes: int) -> Complex:
    """Complex numbers whose imaginary parts lie `pitch` bytes after their real parts."""
    type_ = vector(lanes, DOUBLE)
    return f.load(type_, at, BYTES), f.load(type_, at + pitch, BYTES)


def _first_stage(f: Function, stage: Stage, source: Signal, target: Buffer, table: Value) -> None:
    """The stage of stride 1: a vector holds neighbouring groups, and its results are transposed."""
    lanes, groups = source.lanes, stage.groups
    pitch = (stage.radix - 1) * groups * BYTES

    def one(i: Value) -> None:
        group = i * lanes
        values = small_transform([source.load(group + j * groups) for j in range(stage.radix)])
        for k in range(1, stage.radix):
            at = table + (group + (k - 1) * groups) * BYTES
            values[k] = product(f, values[k], load_parts(f, at, pitch, lanes))
        real, imaginary = (_transposed(f, [value[part] for value in values]) for part in (0, 1))
        for lane, value in enumerate(zip(real, imaginary, strict=True)):
            target.store(value, group * lanes + lane * lanes)

    f.loop(groups // lanes, one)


def _transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors."""
    columns, lanes = list(rows), len(rows)
    step = lanes // 2
    while step:
        low = [lane if not lane & step else lane - step + lanes for lane in range(lanes)]
        high = [lane + step if not lane & step else lane + lanes for lane in range(lanes)]
        for row in (row for row in range(lanes) if not row & step):
            pair = columns[row], columns[row + step]
            columns[row], columns[row + step] = f.shuffle(*pair, low), f.shuffle(*pair, high)
        step //= 2
    return columns


def _stage(f: Function, stage: Stage, source: Buffer, target: Buffer, table: Value) -> None:
    """A stage whose stride is at least a vector."""
    radix, stride, groups, lanes = stage.radix, stage.stride, stage.groups, source.lanes

    def group(p: Value) -> None:
        factors = table + p * ((radix - 1) * 2 * BYTES)

        def one(i: Value) -> None:
            first = p * stride + i * lanes
            values = small_transform([source.load(first + j * groups * stride) for j in range(radix)])
            for k in range(1, radix if groups > 1 else 1):
                at = factors + (k - 1) * 2 * BYTES
                real, imaginary = (f.splat(f.load(DOUBLE, at + part * BYTES, BYTES), lanes) for part in (0, 1))
                values[k] = product(f, values[k], (real, imaginary))
            for k, value in enumerate(values):
                target.store(value, p * (radix * stride) + i * lanes + k * stride)

        f.loop(stride // lanes, one)

    f.loop(groups, group)


def _finish(f: Function, source: Buffer, count: int, table: Value, target: Value) -> None:
    """The transform of the real row: pairs of float32."""
    lanes, pair = source.lanes, 2 * FLOAT_BYTES
    first = load_parts(f, source.start, source.pitch, 1)
    for part, value in enumerate(first):
        f.store(value, source.start + count * BYTES + part * source.pitch, BYTES)

    def one(i: Value) -> None:
        index = i * lanes
        back = source.load(f.index(count - lanes + 1) - index)
        real, imaginary = (f.shuffle(part, part, range(lanes - 1, -1, -1)) for part in back)
        turn = load_parts(f, table + index * BYTES, count * BYTES, lanes)
        value = real_transform(f, source.load(index), (real, imaginary), turn)
        real, imaginary = (f.convert("fptrunc", part, FLOAT) for part in value)
        both = f.shuffle(real, imaginary, [lane // 2 + lane % 2 * lanes for lane in range(2 * lanes)])
        f.store(both, target + index * pair)

    f.loop(count // lanes, one)
    f.store(f.convert("fptrunc", first[0] - first[1], FLOAT), target + count * pair)
    f.store(f.literal(FLOAT, 0), target + count * pair + FLOAT_BYTES)
