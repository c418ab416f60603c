"""Scan: running sums, element by element along their axis; vectors along the last axis if that is another axis.

Totals of rows are summed for as many rows at once as a vector has elements, whose blocks are transposed in registers.
"""

from __future__ import annotations

from math import prod

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scan
from jitdelegate.targets.cpu.code.element import load, store
from jitdelegate.targets.cpu.code.kernel import Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, along_row, is_dense, job_of_rows, placed, size_of
from jitdelegate.targets.cpu.code.shuffles import transposed
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
    are_dense = all(is_dense(side.axes, side.nbytes) for side in (data, out))
    if form.total and form.axis == last and are_dense and size_of(sides[0]) >= lanes:
        return [_totals(writer, data, out)]

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
                if not form.total:
                    at = target + index * along[1].distance
                    store(f, data.dtype, total if form.exclusive else following, at, mask)
                return [following]

            (total,) = f.loop(along[0].size, step, f.constant(data.dtype, 0, lanes))
            if form.total:
                store(f, data.dtype, total, target, mask)

        if columns == 1:
            sums(f.index(0), 1, None)
        else:
            along_row(f, columns, lanes, lambda first, mask: sums(first, lanes, mask))

    work = columns * along[0].size
    return [job_of_rows(writer.generator, "scan", size_of(sides[0]), work, row)]


def _totals(writer: Writer, data: Placed, out: Placed) -> Job:
    """The job of the totals of dense rows; a unit is a vector of neighbouring rows, the last one overlaps the one
    before it."""
    lanes, size, rows = writer.generator.lanes, data.shape[-1], prod(data.shape[:-1])
    row_bytes, block_bytes = size * data.nbytes, lanes * data.nbytes
    blocks, left = divmod(size, lanes)

    def unit(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        first = f.select(f.compare("ult", number, rows // lanes), number * lanes, f.index(rows - lanes))

        def block(_: Value, source: Value, total: Value, count: int = lanes) -> list[Value]:
            mask = f.first_lanes(f.index(count), lanes) if count < lanes else None
            loaded = [load(f, data.dtype, source + row * row_bytes, lanes, data.nbytes, mask) for row in range(lanes)]
            for column in transposed(f, loaded)[:count]:
                total = total + column
            return [source + block_bytes, total]

        source, total = kernel.pointer(data.memory) + first * row_bytes, f.constant(data.dtype, 0, lanes)
        if blocks:
            source, total = f.loop(blocks, block, source, total)
        if left:
            _, total = block(f.index(0), source, total, left)
        store(f, data.dtype, total, kernel.pointer(out.memory) + first * out.nbytes, None)

    return job_of_rows(writer.generator, "scan", -(-rows // lanes), size * lanes, unit)
