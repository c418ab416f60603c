"""Reduce over any axes, and Softmax over the last one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from operator import add

from jitdelegate.ir.forms import Pool, Reduce, Softmax
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.epilogue import Epilogue, Stream
from jitdelegate.targets.cpu.code.fold import Fold, pieces
from jitdelegate.targets.cpu.code.kernel import Axis, Generator, Job, Kernel, Memory, axes_of, divisor, offset_of
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.pool import pool_jobs
from jitdelegate.targets.maths.exponential import exp

CHUNK_ELEMENTS = 16384
"""Input elements that are worth a chunk of their own."""
SHORT = 8
"""Vectors of a row of Softmax that stay in registers."""
LARGEST, TOTAL = (Fold(kind, "float32", "float32") for kind in ("max", "sum"))


def write_reduce(writer: Writer, node: Node, form: Reduce) -> list[Job]:
    """The jobs of a Reduce node; a chunk is one or more kept elements, or vectors of them."""
    (a, c), shape, epilogue = writer.ends(node), writer.shape(node.inputs[0]), writer.epilogue(node)
    if form.reads_images(shape, writer.shape(node.outputs[0])):
        window = shape[1], shape[2]
        pool = Pool(kernel=window, stride=window, kind=form.kind)
        return pool_jobs(writer.generator, pool, a, c, epilogue)
    axes, fold = axes_of(a, shape), Fold(form.kind, a.layout.dtype, epilogue.source)
    kept = [axis for d, axis in enumerate(axes) if d not in form.axes]
    reduced = [axis for d, axis in enumerate(axes) if d in form.axes]
    write_job = _along_lanes if len(shape) - 1 in form.axes else _across_lanes
    return [write_job(writer.generator, fold, a, kept, reduced, c, epilogue)]


def _along_lanes(
    generator: Generator, fold: Fold, a: Memory, kept: list[Axis], reduced: list[Axis], c: Memory, epilogue: Epilogue
) -> Job:
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
            value = fold.finished(f, _folded(f, fold, start, reduced), total, total)
            extra = [_element(kernel, s, c.layout, number) for s in epilogue.streams]
            epilogue.store(f, value, extra, target + offset_of(f, number, axes_of(c, c.layout.shape)), None)

        f.loop(at_once, one)

    key = "reduce", fold, a, *kept, None, *reduced, c, epilogue
    return generator.once_for(key, lambda: generator.job("reduce", count // at_once, body, worth=count / at_once))


def _across_lanes(
    generator: Generator, fold: Fold, a: Memory, kept: list[Axis], reduced: list[Axis], c: Memory, epilogue: Epilogue
) -> Job:
    """The last axis is kept: each lane reduces its own element."""
    lanes = generator.vector_bytes // a.layout.element
    *outer, last = kept
    total = prod(axis.size for axis in reduced)
    rows = prod(axis.size for axis in outer)
    vectors, left = divmod(last.size, lanes)
    at_once = vectors if left else divisor(vectors, CHUNK_ELEMENTS // (total * lanes))
    parts = 1 if left else vectors // at_once

    def body(kernel: Kernel) -> None:
        f = kernel.f
        row, part = (kernel.chunk, f.index(0)) if parts == 1 else (kernel.chunk // parts, kernel.chunk % parts)
        start = kernel.pointer(a) + offset_of(f, row, outer)
        first = row * last.size

        def block(position: Value, lanes: int = lanes, mask: Value | None = None) -> None:
            at = start + position * a.layout.element

            def load(fold: Fold, i: Value) -> Value:
                return fold.load(f, at + offset_of(f, i, reduced), lanes, mask)

            value = fold.finished(f, fold.many(f, total, load, lanes), total, total)
            number = first + position
            extra = [_element(kernel, s, c.layout, number) for s in epilogue.streams]
            target = kernel.pointer(c) + offset_of(f, number, axes_of(c, c.layout.shape))
            epilogue.store(f, value, extra, target, mask)

        if vectors:
            f.loop(at_once, lambda i: block((part * at_once + i) * lanes))
        if left and a.layout.dtype == "float32":
            mask = f.first_lanes(f.index(left), lanes)
            block(f.index(vectors) * lanes, mask=mask)
        elif left:
            for position, width in pieces(last.size, lanes):
                block(f.index(position), width)

    return generator.job("reduce", rows * parts, body, worth=rows * last.size * total / CHUNK_ELEMENTS)


def _folded(f: Function, fold: Fold, start: Value, axes: Sequence[Axis]) -> Value:
    """Reduces all elements of a row-major part, whose last axis is contiguous, to one."""
    *outer, last = axes
    element = ELEMENT_TYPES[fold.dtype].nbytes
    vector_bytes = f.module.machine.lanes * FLOAT_BYTES
    lanes = vector_bytes // element
    vectors, left = divmod(last.size, lanes)

    def row(i: Value, wide: Value, narrow: Value) -> list[Value]:
        line = start + offset_of(f, i, outer)
        if vectors:

            def whole(j: Value, wide: Value) -> list[Value]:
                return [fold.combine(f, wide, fold.load(f, line + j * vector_bytes, lanes))]

            (wide,) = f.loop(vectors, whole, wide)
        if left:
            rest = line + vectors * vector_bytes

            def single(j: Value, narrow: Value) -> list[Value]:
                return [fold.combine(f, narrow, fold.load(f, rest + j * element, 1))]

            (narrow,) = f.loop(left, single, narrow)
        return [wide, narrow]

    rows = prod(axis.size for axis in outer)
    wide, narrow = f.loop(rows, row, fold.start(f, lanes), fold.start(f, 1))
    return fold.combine(f, fold.across(f, wide), narrow)


def _element(kernel: Kernel, stream: Stream, output: Layout, number: Value) -> Value:
    """Address in a row-major stream for element `number` of the output."""
    distances = (stream.image, stream.row, stream.pixel, stream.memory.layout.element if stream.block else 0)
    axes = [Axis(*pair) for pair in zip(output.shape, distances, strict=True)]
    return kernel.pointer(stream.memory) + stream.start + offset_of(kernel.f, number, axes)


def write_softmax(writer: Writer, node: Node, form: Softmax) -> list[Job]:
    """The jobs of a Softmax node: exp(beta * (x - max)) / sum, row by row of the last axis."""
    (a, c), shape = writer.ends(node), writer.shape(node.inputs[0])
    sources, targets = axes_of(a, shape)[:-1], axes_of(c, shape)[:-1]
    rows = prod(shape[:-1])
    at_once = divisor(rows, CHUNK_ELEMENTS // shape[-1])

    def body(kernel: Kernel) -> None:
        source, target = kernel.pointer(a), kernel.pointer(c)

        def one(i: Value) -> None:
            row = kernel.chunk * at_once + i
            start, end = source + offset_of(kernel.f, row, sources), target + offset_of(kernel.f, row, targets)
            softmax_row(kernel.f, form.beta, start, end, shape[-1])

        kernel.f.loop(at_once, one)

    generator, key = writer.generator, ("softmax", a, c, *shape, str(form.beta))
    return [generator.once_for(key, lambda: generator.job("softmax", rows // at_once, body, worth=rows / at_once))]


def softmax_row(f: Function, beta: float, source: Value, target: Value, size: int) -> None:
    """One row of `size` elements; source and target may be the same."""
    lanes = f.module.machine.lanes
    if size <= SHORT * lanes:
        _short_softmax_row(f, beta, source, target, size)
        return
    type_, step = vector(lanes), lanes * FLOAT_BYTES
    vectors, left = divmod(size, lanes)
    largest = f.splat(_folded(f, LARGEST, source, [Axis(size, FLOAT_BYTES)]), lanes)
    mask = f.first_lanes(f.index(left), lanes) if left else None
    zero = f.literal(type_, 0.0)

    def power(at: Value, mask: Value | None) -> Value:
        return exp(f, (f.load_masked(type_, at, mask) - largest) * beta)

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
    scale = f.splat(f.literal(FLOAT, 1.0) / TOTAL.across(f, total), lanes)
    if vectors:
        f.loop(vectors, lambda i: f.store(f.load(type_, target + i * step) * scale, target + i * step))
    if mask is not None:
        at = target + vectors * step
        f.store_masked(f.load_masked(type_, at, mask) * scale, at, mask)


def _short_softmax_row(f: Function, beta: float, source: Value, target: Value, size: int) -> None:
    """One row whose elements stay in registers: what takes long, one after the other, is to fold their lanes."""
    lanes, fold = f.module.machine.lanes, LARGEST
    vectors, left = divmod(size, lanes)
    masks = [None] * vectors + [f.first_lanes(f.index(left), lanes)] * (left > 0)

    def kept(value: Value, mask: Value | None, otherwise: Value) -> Value:
        return value if mask is None else f.select(mask, value, otherwise)

    offsets = [number * lanes * FLOAT_BYTES for number in range(len(masks))]
    loaded = [fold.load(f, source + offset, lanes, mask) for offset, mask in zip(offsets, masks, strict=True)]
    low, zero = fold.start(f, lanes), f.literal(vector(lanes), 0.0)
    compared = (kept(value, mask, low) for value, mask in zip(loaded, masks, strict=True))
    largest = f.splat(fold.across(f, reduce(partial(fold.combine, f), compared)), lanes)
    powers = [exp(f, (value - largest) * beta) for value in loaded]
    total = reduce(add, (kept(value, mask, zero) for value, mask in zip(powers, masks, strict=True)))
    scale = f.splat(f.literal(FLOAT, 1.0) / TOTAL.across(f, total), lanes)
    for offset, power, mask in zip(offsets, powers, masks, strict=True):
        f.store_masked(power * scale, target + offset, mask)
