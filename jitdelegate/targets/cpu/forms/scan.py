"""Scan: running sums, element by element along their axis; vectors along the last axis if that is another axis."""

from __future__ import annotations

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scan
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import along_row, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.code.writer import Writer


def write_scan(writer: Writer, node: Node, form: Scan) -> list[Job]:
    """The jobs of a Scan node: one row per position on all axes except the scanned axis and the last."""
    data, out = placed(writer, node)
    last, lanes = len(data.shape) - 1, writer.generator.lanes
    kept = [axis for axis in range(len(data.shape)) if axis not in (form.axis, last)]
    sides = [[side.axes[axis] for axis in kept] for side in (data, out)]
    along = [side.axes[form.axis] for side in (data, out)]
    columns = 1 if form.axis == last else data.shape[last]

    def row(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        starts = [
            kernel.pointer(side.memory) + offset_of(f, number, axes)
            for side, axes in zip((data, out), sides, strict=True)
        ]

        def sums(first: Value, lanes: int, mask: Value | None) -> None:
            """The running sums of `lanes` neighbouring columns."""
            source, target = (start + first * data.nbytes for start in starts)

            def step(i: Value, total: Value) -> list[Value]:
                index = f.index(along[0].size - 1) - i if form.reverse else i
                loaded = load(f, data.dtype, source + index * along[0].distance, lanes, data.nbytes, mask)
                following = total + loaded
                at = target + index * along[1].distance
                store(f, data.dtype, total if form.exclusive else following, at, mask)
                return [following]

            f.loop(along[0].size, step, f.constant(data.dtype, 0, lanes))

        if columns == 1:
            sums(f.index(0), 1, None)
        else:
            along_row(f, columns, lanes, lambda first, mask: sums(first, lanes, mask))

    work = columns * along[0].size
    return [job_of_rows(writer.generator, "scan", size_of(sides[0]), work, row)]
