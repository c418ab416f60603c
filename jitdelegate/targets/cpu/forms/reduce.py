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
from jitdelegate.targets.cpu.code.kernel import (
    Axis,
    Generator,
    Job,
    Kernel,
    Memory,
    axes_of,
    divisor,
    joined,
    offset_of,
    split,
)
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, FLOAT_BYTES, Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.pool import pool_jobs
from jitdelegate.targets.maths.exponential import exp

CHUNK_ELEMENTS = 16384
"""Input elements that are worth a chunk of their own."""
SINGLE = 4
"""Elements that are reduced one by one in less time than as a vector."""
SHORT = 8
"""Vectors of a row of Softmax that stay in registers."""
LARGEST, TOTAL = (Fold(kind, "float32", "float32") for kind in ("max", "sum"))


def write_reduce(writer: Writer, node: Node, form: Reduce) -> list[Job]:
    """The jobs of a Reduce node; a chunk is one or more kept elements, or vectors of them."""
    (a, c), shape, epilogue = writer.ends(node), writer.shape(node.inputs[0]), writer.epilogue(node)
    if a.layout.blocked or c.layout.blocked:
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
    """The last axis is kept: each lane reduces its own element. Neighbouring vectors are reduced together, so that
    memory is read in the order in which it lies, as far as registers suffice."""
    lanes = generator.vector_bytes // a.layout.element
    if c.layout.plain and not epilogue.streams:
        whole = joined(kept)
        kept = whole if whole and whole[-1].distance == a.layout.element else kept
    *outer, last = kept
    total = prod(axis.size for axis in reduced)
    rows = prod(axis.size for axis in outer)
    vectors, left = divmod(last.size, lanes)
    groups = split(vectors, fold.vectors_at_once(total, lanes, generator.machine)) if vectors else []
    parts = 1
    if len(groups) == 1 and not left:
        size, count = groups[0]
        at_once = divisor(count, CHUNK_ELEMENTS // (total * lanes * size))
        groups, parts = [(size, at_once)], count // at_once

    def body(kernel: Kernel) -> None:
        f = kernel.f
        row, part = (kernel.chunk, f.index(0)) if parts == 1 else (kernel.chunk // parts, kernel.chunk % parts)
        start = kernel.pointer(a) + offset_of(f, row, outer)
        first = row * last.size

        def block(position: Value, count: int = 1, lanes: int = lanes, mask: Value | None = None) -> None:
            at = start + position * a.layout.element

            def load(fold: Fold, i: Value, number: int) -> Value:
                here = at + offset_of(f, i, reduced) + number * lanes * a.layout.element
                return fold.load(f, here, lanes, mask)

            for k, result in enumerate(fold.many(f, total, load, lanes, count)):
                number = first + position + k * lanes
                extra = [_element(kernel, s, c.layout, number) for s in epilogue.streams]
                target = kernel.pointer(c) + offset_of(f, number, axes_of(c, c.layout.shape))
                epilogue.store(f, fold.finished(f, result, total, total), extra, target, mask)

        done = part * (vectors // parts * lanes)
        for size, count in groups:

            def group(i: Value, done: Value = done, size: int = size) -> None:
                block(done + i * (size * lanes), size)

            f.loop(count, group)
            done = done + size * count * lanes
        if left and a.layout.dtype == "float32":
            mask = f.first_lanes(f.index(left), lanes)
            block(f.index(vectors) * lanes, mask=mask)
        elif left:
            for position, width in pieces(last.size, lanes):
                block(f.index(position), lanes=width)

    return generator.job("reduce", rows * parts, body, worth=rows * last.size * total / CHUNK_ELEMENTS)


def _folded(f: Function, fold: Fold, start: Value, axes: Sequence[Axis]) -> Value:
    """Reduces all elements of a row-major part, whose last axis is contiguous, to one."""
    *outer, last = axes
    rows = prod(axis.size for axis in outer)
    if rows == 1:
        return _folded_row(f, fold, start, last.size)

    def row(i: Value, total: Value) -> list[Value]:
        return [fold.combine(f, total, _folded_row(f, fold, start + offset_of(f, i, outer), last.size))]

    (total,) = f.loop(rows, row, fold.start(f, 1))
    return total


def _folded_row(f: Function, fold: Fold, start: Value, size: int) -> Value:
    """Reduces `size` neighbouring elements to one."""
    machine, element = f.module.machine, ELEMENT_TYPES[fold.dtype].nbytes
    vector_bytes = machine.lanes * FLOAT_BYTES
    lanes = vector_bytes // element
    vectors, left = divmod(size, lanes)
    rest = start + vectors * vector_bytes
    total = None
    if vectors:
        (total,) = fold.many(f, vectors, lambda fold, i, _: fold.load(f, start + i * vector_bytes, lanes), lanes)
    if left > SINGLE and (machine.avx512_lanes or element == FLOAT_BYTES):
        wide = lanes if total else 1 << (left - 1).bit_length()
        mask, identity = f.first_lanes(f.index(left), wide), fold.start(f, wide)
        value = f.select(mask, fold.load(f, rest, wide, mask), identity)
        total, left = fold.combine(f, total, value) if total else value, 0
    parts = [total] if total else []
    while left:
        size = 1 << left.bit_length() - 1 if left > SINGLE else 1
        parts.append(fold.load(f, rest, size))
        rest, left = rest + size * element, left - size
    return reduce(partial(fold.combine, f), (fold.across(f, part) for part in parts))


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
