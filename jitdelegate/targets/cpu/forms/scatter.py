"""Scatter: combines slices, one after another, at indices that are known at run time; vectors along the slices."""

from __future__ import annotations

from collections.abc import Callable

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.axes import Axis, offset_of
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, look_up, placed, refusal_check, size_of
from jitdelegate.targets.cpu.code.vector_ir import Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.expression import emit


def write_scatter(writer: Writer, node: Node, form: Scatter) -> list[Job]:
    """The jobs of a Scatter node."""
    updates, places, out = placed(writer, node)
    check = refusal_check(writer, node, form, places, out.axes[: places.shape[-1]])
    return ScatterWriter(writer.generator).jobs(form, check, updates, places, out)


class ScatterWriter(JobWriter):
    """Writes the jobs of Scatter nodes."""

    def jobs(
        self, form: Scatter, check: Callable[[Kernel, int], None] | None, updates: Placed, places: Placed, out: Placed
    ) -> list[Job]:
        """One job row per row of a slice, for all slices: one thread combines all updates of an element, in order."""
        depth, count = places.shape[-1], len(places.shape) - 1
        inner = [side.axes[start:] or [Axis(1, side.nbytes)] for side, start in ((updates, count), (out, depth))]
        columns = inner[0][-1].size
        lanes = self.generator.lanes if columns > 1 else 1

        def row(kernel: Kernel, number: Value) -> None:
            f = kernel.f
            source, target = (
                kernel.pointer(side.memory) + offset_of(f, number, axes[:-1])
                for side, axes in zip((updates, out), inner, strict=True)
            )

            def column(first: Value, mask: Value | None) -> list[Value]:
                at = first * out.nbytes
                self._fill(f, form, out.dtype, target + at, out.axes[:depth], lanes, mask)
                ends = source + at, target + at
                self._combine(kernel, form, (updates, places, out), ends, lanes, mask)
                return []

            along_row(f, columns, lanes, column)

        work = columns * (size_of(places.axes[:-1]) + size_of(out.axes[:depth]))
        return [job_of_rows(self.generator, "scatter", size_of(inner[0][:-1]), work, row, check)]

    @staticmethod
    def _fill(
        f: Function, form: Scatter, dtype: str, target: Value, axes: list[Axis], lanes: int, mask: Value | None
    ) -> None:
        initial = f.constant(dtype, form.initial, lanes)
        f.loop(size_of(axes), lambda i: store(f, dtype, initial, target + offset_of(f, i, axes), mask))

    @staticmethod
    def _combine(
        kernel: Kernel,
        form: Scatter,
        tensors: tuple[Placed, Placed, Placed],
        ends: tuple[Value, Value],
        lanes: int,
        mask: Value | None,
    ) -> None:
        f, (updates, places, out), (source, target) = kernel.f, tensors, ends
        start, count = kernel.pointer(places.memory), len(places.shape) - 1
        step, combined = ELEMENT_TYPES[out.dtype].nbytes, COMBINERS[form.kind].step

        def one(i: Value) -> None:
            place, indexed = start + offset_of(f, i, places.axes[:-1]), out.axes[: places.shape[-1]]
            distance, is_inside = look_up(f, places.dtype, place, indexed)

            def combine() -> None:
                at = target + distance
                update = load(f, out.dtype, source + offset_of(f, i, updates.axes[:count]), lanes, step, mask)
                old = load(f, out.dtype, at, lanes, step, mask)
                store(f, out.dtype, emit(f, combined, (old, update), (out.dtype, out.dtype)), at, mask)

            f.when(is_inside, combine)

        f.loop(size_of(places.axes[:-1]), one)
