"""Scan: running sums, element by element along their axis; vectors along the last axis if that is another axis."""

from __future__ import annotations

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scan
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.axes import Axis, offset_of
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Job, JobWriter, Kernel
from jitdelegate.targets.cpu.code.rows import Placed, along_row, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import Function, Value
from jitdelegate.targets.cpu.code.writer import Writer


def write_scan(writer: Writer, node: Node, form: Scan) -> list[Job]:
    """The jobs of a Scan node."""
    return ScanWriter(writer.generator).jobs(form, *placed(writer, node))


class ScanWriter(JobWriter):
    """Writes the jobs of Scan nodes."""

    def jobs(self, form: Scan, data: Placed, out: Placed) -> list[Job]:
        """One row per position on all axes except the scanned axis and the last."""
        last = len(data.shape) - 1
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

            def column(first: Value, mask: Value | None) -> list[Value]:
                lanes = 1 if columns == 1 else self.generator.lanes
                at = [start + first * data.nbytes for start in starts]
                _sums(f, form, data.dtype, at[0], at[1], along, lanes, mask)
                return []

            if columns == 1:
                column(f.index(0), None)
            else:
                along_row(f, columns, self.generator.lanes, column)

        work = columns * along[0].size
        return [job_of_rows(self.generator, "scan", size_of(sides[0]), work, row)]


def _sums(
    f: Function,
    form: Scan,
    dtype: str,
    source: Value,
    target: Value,
    along: list[Axis],
    lanes: int,
    mask: Value | None,
) -> None:
    """The running sums of `lanes` neighbouring columns."""
    size = along[0].size

    def step(i: Value, total: Value) -> list[Value]:
        place = f.index(size - 1) - i if form.reverse else i
        at = source + place * along[0].distance
        following = total + load(f, dtype, at, lanes, ELEMENT_TYPES[dtype].nbytes, mask)
        store(f, dtype, total if form.exclusive else following, target + place * along[1].distance, mask)
        return [following]

    f.loop(size, step, f.constant(dtype, 0, lanes))
