"""Scatter: combines slices, one after another, at indices that are known at run time; vectors along the slices."""

from __future__ import annotations

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Axis, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, look_up, placed, refusal_check, size_of
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.expression import emit


def write_scatter(writer: Writer, node: Node, form: Scatter) -> list[Job]:
    """The jobs of a Scatter node: one row per row of a slice, for all slices, so that one thread combines all updates
    of an element, in order."""
    updates, indices, out = placed(writer, node)
    depth, count = indices.shape[-1], len(indices.shape) - 1
    inner = [side.axes[start:] or [Axis(1, side.nbytes)] for side, start in ((updates, count), (out, depth))]
    columns, outer = inner[0][-1].size, out.axes[:depth]
    lanes = writer.generator.lanes if columns > 1 else 1

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        source, target = (
            kernel.pointer(side.memory) + offset_of(f, number, axes[:-1])
            for side, axes in zip((updates, out), inner, strict=True)
        )

        def column(first: Value, mask: Value | None) -> None:
            at = first * out.nbytes
            start, initial = target + at, f.constant(out.dtype, form.initial, lanes)
            f.loop(size_of(outer), lambda i: store(f, out.dtype, initial, start + offset_of(f, i, outer), mask))
            _combine(kernel, form, (updates, indices, out), (source + at, target + at), lanes, mask)

        along_row(f, columns, lanes, column)

    work = columns * (size_of(indices.axes[:-1]) + size_of(outer))
    check = refusal_check(writer, node, form, indices, outer)
    return [job_of_rows(writer.generator, "scatter", size_of(inner[0][:-1]), work, row, check)]


def _combine(
    kernel: Kernel,
    form: Scatter,
    tensors: tuple[Placed, Placed, Placed],
    ends: tuple[Value, Value],
    lanes: int,
    mask: Value | None,
) -> None:
    """All updates of `lanes` neighbouring columns."""
    f, (updates, indices, out), (source, target) = kernel.f, tensors, ends
    start, count, step = kernel.pointer(indices.memory), len(indices.shape) - 1, COMBINERS[form.kind].step

    def one(i: Value) -> None:
        begin = start + offset_of(f, i, indices.axes[:-1])
        distance, is_inside = look_up(f, indices.dtype, begin, out.axes[: indices.shape[-1]])

        def combine() -> None:
            at = target + distance
            update = load(f, out.dtype, source + offset_of(f, i, updates.axes[:count]), lanes, out.nbytes, mask)
            old = load(f, out.dtype, at, lanes, out.nbytes, mask)
            store(f, out.dtype, emit(f, step, (old, update), (out.dtype, out.dtype)), at, mask)

        f.when(is_inside, combine)

    f.loop(size_of(indices.axes[:-1]), one)
