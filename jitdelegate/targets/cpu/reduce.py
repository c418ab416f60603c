"""Reduce over any axes, and Softmax over the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from jitdelegate.ir.forms import Pool, Reduce, Softmax
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.element import load, store
from jitdelegate.targets.cpu.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.kernel import Job, JobWriter, Kernel, Memory, distances_along, divisor
from jitdelegate.targets.cpu.pool import ImageWriter
from jitdelegate.targets.cpu.vector_ir import FLOAT, FLOAT_BYTES, Function, Value, lanes_of
from jitdelegate.targets.cpu.writer import Writer
from jitdelegate.targets.scalar.exponential import exp
from jitdelegate.targets.scalar.functions import apply

INITIAL = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
HORIZONTAL = {"sum": "fadd", "mean": "fadd", "max": "fmax", "min": "fmin", "prod": "fmul"}
CHUNK_ELEMENTS = 16384
"""Input elements that are worth a chunk of their own."""


@dataclass(frozen=True)
class Axis:
    """One logical axis of the input: its size and the bytes between neighbours."""

    size: int
    distance: int


def write_reduce(writer: Writer, node: Node, form: Reduce) -> list[Job]:
    """The jobs of a Reduce node."""
    (a, c), shape, epilogue = writer.ends(node), writer.shape(node.inputs[0]), writer.epilogue(node)
    is_float = a.layout.dtype == c.layout.dtype == "float32"
    if is_float and form.reads_images(shape, writer.shape(node.outputs[0])):
        window = shape[1], shape[2]
        pool = Pool(kernel=window, stride=window, kind=form.kind)
        return ImageWriter(writer.generator).pool(pool, a, c, epilogue)
    return ReduceWriter(writer.generator).reduce(form, a, shape, c, epilogue)


def write_softmax(writer: Writer, node: Node, form: Softmax) -> list[Job]:
    """The jobs of a Softmax node."""
    a, c = writer.ends(node)
    return ReduceWriter(writer.generator).softmax(form, a, writer.shape(node.inputs[0]), c)


class ReduceWriter(JobWriter):
    """Writes the jobs of Reduce and Softmax nodes on row-major tensors."""

    def reduce(self, form: Reduce, a: Memory, shape: tuple[int, ...], c: Memory, epilogue: Epilogue) -> list[Job]:
        """c[kept] = epilogue(reduction of a by `kind`); a chunk is one or more kept elements, or vectors of them."""
        axes = _axes(a, shape)
        kept = [axis for d, axis in enumerate(axes) if d not in form.axes]
        reduced = [axis for d, axis in enumerate(axes) if d in form.axes]
        if a.layout.dtype != "float32":
            return self._one_by_one(form, a, kept, reduced, c)
        if len(shape) - 1 in form.axes:
            return self._along_lanes(form, a, kept, reduced, c, epilogue)
        return self._across_lanes(form, a, kept, reduced, c, epilogue)

    def _along_lanes(
        self, form: Reduce, a: Memory, kept: list[Axis], reduced: list[Axis], c: Memory, epilogue: Epilogue
    ) -> list[Job]:
        """The last axis is reduced: accumulates vectors along it, and folds their lanes at the end."""
        count = prod(axis.size for axis in kept)
        total = prod(axis.size for axis in reduced)
        at_once = divisor(count, CHUNK_ELEMENTS // total)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            source, target = kernel.pointer(a), kernel.pointer(c)

            def one(i: Value) -> None:
                number = kernel.chunk * at_once + i
                start = source + offset_of(f, number, kept)
                value = self._fold(f, form.kind, start, reduced)
                if form.kind == "mean":
                    value = value / f.literal(FLOAT, float(total))
                extra = [_element(kernel, s, c.layout, number) for s in epilogue.streams]
                epilogue.store(f, value, extra, target + offset_of(f, number, _image_axes(c.layout)), None)

            f.loop(at_once, one)

        return [self.generator.job("reduce", count // at_once, body, worth=count / at_once)]

    def _across_lanes(
        self, form: Reduce, a: Memory, kept: list[Axis], reduced: list[Axis], c: Memory, epilogue: Epilogue
    ) -> list[Job]:
        """The last axis is kept: each lane reduces its own element."""
        lanes = self.generator.lanes
        *outer, last = kept
        total = prod(axis.size for axis in reduced)
        rows = prod(axis.size for axis in outer)
        vectors, left = divmod(last.size, lanes)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            start = kernel.pointer(a) + offset_of(f, kernel.chunk, outer)
            first = kernel.chunk * last.size

            def block(i: Value, mask: Value | None = None) -> None:
                position = i * lanes
                value = self._fold_vectors(f, form.kind, start + position * a.layout.element, reduced, mask)
                if form.kind == "mean":
                    value = value / f.literal(value.type, float(total))
                number = first + position
                extra = [_element(kernel, s, c.layout, number) for s in epilogue.streams]
                target = kernel.pointer(c) + offset_of(f, number, _image_axes(c.layout))
                epilogue.store(f, value, extra, target, mask)

            if vectors:
                f.loop(vectors, block)
            if left:
                block(f.index(vectors), f.first_lanes(f.index(left), lanes))

        return [self.generator.job("reduce", rows, body, worth=rows * last.size * total / CHUNK_ELEMENTS)]

    def _one_by_one(self, form: Reduce, a: Memory, kept: list[Axis], reduced: list[Axis], c: Memory) -> list[Job]:
        """Reduces integers and bools without vectors: they are used in shape arithmetic, so tensors are small."""
        dtype = a.layout.dtype
        count = prod(axis.size for axis in kept)
        total = prod(axis.size for axis in reduced)
        at_once = divisor(count, CHUNK_ELEMENTS // total)

        def body(kernel: Kernel) -> None:
            f = kernel.f
            source, target = kernel.pointer(a), kernel.pointer(c)

            def one(i: Value) -> None:
                number = kernel.chunk * at_once + i
                start = source + offset_of(f, number, kept)

                def fold(j: Value, folded: Value) -> list[Value]:
                    loaded = load(f, dtype, start + offset_of(f, j, reduced), 1, 0)
                    return [combine_integers(f, form.kind, dtype, folded, loaded)]

                (folded,) = f.loop(total, fold, f.constant(dtype, neutral(form.kind, dtype)))
                store(f, dtype, folded, target + number * a.layout.element)

            f.loop(at_once, one)

        return [self.generator.job("reduce", count // at_once, body, worth=count / at_once)]

    def _fold(self, f: Function, kind: str, start: Value, axes: Sequence[Axis]) -> Value:
        """Reduces all elements of a row-major part, whose last axis is contiguous, to one float."""
        lanes = self.generator.lanes
        *outer, last = axes
        vectors, left = divmod(last.size, lanes)
        rows = prod(axis.size for axis in outer)

        def row(i: Value, wide: Value, narrow: Value) -> list[Value]:
            line = start + offset_of(f, i, outer)
            if vectors:

                def vector(j: Value, wide: Value) -> list[Value]:
                    loaded = f.load(self.generator.vector, line + j * self.generator.vector_bytes)
                    return [_combine(f, kind, wide, loaded)]

                (wide,) = f.loop(vectors, vector, wide)
            if left:
                rest = line + vectors * self.generator.vector_bytes

                def single(j: Value, narrow: Value) -> list[Value]:
                    return [_combine(f, kind, narrow, f.load(FLOAT, rest + j * FLOAT_BYTES))]

                (narrow,) = f.loop(left, single, narrow)
            return [wide, narrow]

        wide, narrow = f.loop(
            rows, row, f.literal(self.generator.vector, INITIAL[kind]), f.literal(FLOAT, INITIAL[kind])
        )
        return _combine(f, kind, horizontal(f, kind, wide), narrow)

    def _fold_vectors(self, f: Function, kind: str, start: Value, axes: Sequence[Axis], mask: Value | None) -> Value:
        vector = self.generator.vector

        def one(i: Value, total: Value) -> list[Value]:
            at = start + offset_of(f, i, axes)
            loaded = f.load_masked(vector, at, mask)
            return [_combine(f, kind, total, loaded)]

        (total,) = f.loop(prod(axis.size for axis in axes), one, f.literal(vector, INITIAL[kind]))
        return total

    def softmax(self, form: Softmax, a: Memory, shape: tuple[int, ...], c: Memory) -> list[Job]:
        """exp(beta * (x - max)) / sum, row by row of the last axis."""
        size = shape[-1]
        sources, targets = _axes(a, shape)[:-1], _axes(c, shape)[:-1]
        rows = prod(shape[:-1])
        at_once = divisor(rows, CHUNK_ELEMENTS // size)

        def body(kernel: Kernel) -> None:
            source, target = kernel.pointer(a), kernel.pointer(c)

            def one(i: Value) -> None:
                row = kernel.chunk * at_once + i
                start, end = source + offset_of(kernel.f, row, sources), target + offset_of(kernel.f, row, targets)
                self._softmax_row(kernel.f, form.beta, start, end, size)

            kernel.f.loop(at_once, one)

        return [self.generator.job("softmax", rows // at_once, body, worth=rows / at_once)]

    def _softmax_row(self, f: Function, beta: float, source: Value, target: Value, size: int) -> None:
        vector, step = self.generator.vector, self.generator.vector_bytes
        vectors, left = divmod(size, self.generator.lanes)
        largest = self._fold(f, "max", source, [Axis(size, FLOAT_BYTES)])
        largest_vector = f.splat(largest, self.generator.lanes)
        mask = f.first_lanes(f.index(left), self.generator.lanes) if left else None
        zero = f.literal(vector, 0.0)

        def power(at: Value, mask: Value | None) -> Value:
            x = f.load_masked(vector, at, mask)
            return exp(f, (x - largest_vector) * beta)

        def whole(i: Value, total: Value) -> list[Value]:
            value = power(source + i * step, None)
            f.store(value, target + i * step)
            return [total + value]

        total = zero
        if vectors:
            (total,) = f.loop(vectors, whole, total)
        if mask is not None:
            value = power(source + vectors * step, mask)
            f.store_masked(value, target + vectors * step, mask)
            total = total + f.select(mask, value, zero)
        scale = f.splat(f.literal(FLOAT, 1.0) / horizontal(f, "sum", total), self.generator.lanes)
        if vectors:
            f.loop(vectors, lambda i: f.store(f.load(vector, target + i * step) * scale, target + i * step))
        if mask is not None:
            at = target + vectors * step
            f.store_masked(f.load_masked(vector, at, mask) * scale, at, mask)


def horizontal(f: Function, kind: str, value: Value) -> Value:
    """Reduces all lanes to one float."""
    name = HORIZONTAL[kind]
    if name in ("fadd", "fmul"):
        start = f.literal(FLOAT, 0.0 if name == "fadd" else 1.0)
        suffix = f"v{lanes_of(value.type)}f32"
        f.module.declare(f"float @llvm.vector.reduce.{name}.{suffix}(float, {value.type})")
        # `reassoc` allows any order of the lanes: a tree instead of a chain.
        return f.emit(FLOAT, f"call reassoc float @llvm.vector.reduce.{name}.{suffix}({start}, {value})")
    return f.intrinsic(f"vector.reduce.{name}", FLOAT, value)


def neutral(kind: str, dtype: str) -> int:
    """The neutral element of a reduction of integers or bools."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype == "bool":
        return int(kind == "min")
    limits = np.iinfo(dtype)
    return int(limits.min if kind == "max" else limits.max)


def combine_integers(f: Function, kind: str, dtype: str, a: Value, b: Value) -> Value:
    """One step of a reduction; for bools, "max" is `or` and "min" is `and`."""
    names = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
    name = {"max": "or", "min": "and"}[kind] if dtype == "bool" else names[kind]
    return apply(f, name, dtype, a, b)


def _combine(f: Function, kind: str, total: Value, value: Value) -> Value:
    if kind in ("max", "min"):
        return f.maximum(total, value) if kind == "max" else f.minimum(total, value)
    return total * value if kind == "prod" else total + value


def _axes(memory: Memory, shape: tuple[int, ...]) -> list[Axis]:
    return [Axis(*pair) for pair in zip(shape, distances_along(memory, shape), strict=True)]


def _image_axes(layout: Layout) -> list[Axis]:
    """The axes of a row-major image, without the halo."""
    return [Axis(*pair) for pair in zip(layout.shape, layout.distances, strict=True)]


def _element(kernel: Kernel, stream: Stream, output: Layout, number: Value) -> Value:
    """Address in a row-major stream for element `number` of the output."""
    distances = (stream.image, stream.row, stream.pixel, stream.memory.layout.element if stream.block else 0)
    axes = [Axis(*pair) for pair in zip(output.shape, distances, strict=True)]
    return kernel.pointer(stream.memory) + stream.start + offset_of(kernel.f, number, axes)


def offset_of(f: Function, number: Value, axes: Sequence[Axis]) -> Value:
    """The byte offset of element `number`, counted row-major over `axes`."""
    total = f.index(0)
    *outer, last = _joined(axes) or [Axis(1, 0)]
    for axis in reversed(outer):
        last_index, number = number % last.size, number // last.size
        total, last = last_index * last.distance + total, axis
    return number * last.distance + total


def _joined(axes: Sequence[Axis]) -> list[Axis]:
    """The same elements with fewer axes: drops axes of size 1, and joins axes that continue each other."""
    result: list[Axis] = []
    for axis in axes:
        if axis.size > 1 and result and result[-1].distance == axis.size * axis.distance:
            result[-1] = Axis(result[-1].size * axis.size, axis.distance)
        elif axis.size > 1:
            result.append(axis)
    return result
