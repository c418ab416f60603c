"""Gather: copies slices whose indices are known at run time, as bytes, for all element types."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cpu.code.kernel import Axis, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, is_dense, job_of_rows, look_up, placed, refusal_check, size_of
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.gather_panels import gather_from_panels, reader_of_table


@dataclass(frozen=True)
class Slices:
    """Memory layout of the slices of one Gather.

    Attributes:
        source, places, target: the axes that count slices, in data, indices and output; distance 0 where an operand is
            repeated.
        indexed: the axes of the data that are indexed.
        inner: axes of the data and of the output along which the pieces of a slice lie.
        piece: number of elements that are contiguous in both.
    """

    source: list[Axis]
    places: list[Axis]
    target: list[Axis]
    indexed: list[Axis]
    inner: tuple[list[Axis], list[Axis]]
    piece: int


def slices_of(form: Gather, data: Placed, places: Placed, out: Placed) -> Slices:
    """The slices of a Gather."""
    batch, axis, count = form.batch, form.axis, places.shape[-1]
    between = len(places.shape) - 1 - batch
    outer, index = data.axes[batch:axis], places.axes[batch:-1]
    inner = data.axes[axis + count :], out.axes[axis + between :]
    dense = all(is_dense(axes, data.nbytes) for axes in inner)
    return Slices(
        source=data.axes[:axis] + [Axis(each.size, 0) for each in index],
        places=places.axes[:batch] + [Axis(each.size, 0) for each in outer] + index,
        target=out.axes[: axis + between],
        indexed=data.axes[axis : axis + count],
        inner=([], []) if dense else (inner[0][:-1], inner[1][:-1]),
        piece=size_of(inner[0]) if dense else inner[0][-1].size,
    )


def write_gather(writer: Writer, node: Node, form: Gather) -> list[Job]:
    """The jobs of a Gather node."""
    reader = reader_of_table(writer, node, form)
    if reader is not None:
        return gather_from_panels(writer, node, form, reader)
    data, places, out = placed(writer, node)
    slices = slices_of(form, data, places, out)
    pieces = size_of(slices.inner[0])

    def one(kernel: Kernel, number: Value) -> None:
        f = kernel.f
        at = kernel.pointer(places.memory) + offset_of(f, number, slices.places)
        start, is_inside = look_up(f, places.dtype, at, slices.indexed)
        source = kernel.pointer(data.memory) + offset_of(f, number, slices.source) + start
        target = kernel.pointer(out.memory) + offset_of(f, number, slices.target)

        def piece(i: Value) -> None:
            start, end = source + offset_of(f, i, slices.inner[0]), target + offset_of(f, i, slices.inner[1])
            _copy(f, writer.generator.vector_bytes, data.nbytes, slices.piece, start, end, is_inside)

        f.loop(pieces, piece)

    check, work = refusal_check(writer, node, form, places, slices.indexed), slices.piece * pieces
    return [job_of_rows(writer.generator, "gather", size_of(slices.target), work, one, check)]


def _copy(
    f: Function, vector_bytes: int, nbytes: int, count: int, source: Value, target: Value, is_inside: Value
) -> None:
    """Copies `count` elements, or writes zeros if not `is_inside`: whole vectors, then ever smaller ones."""
    lanes = vector_bytes // nbytes
    vectors, left = divmod(count, lanes)

    def move(width: int, at: Value) -> None:
        type_ = vector(width, f"i{8 * nbytes}")
        loaded = f.load(type_, source + at, nbytes)
        f.store(f.select(is_inside, loaded, f.literal(type_, 0)), target + at, nbytes)

    if vectors:
        f.loop(vectors, lambda i: move(lanes, i * vector_bytes))
    done, width = vectors * lanes, lanes
    while width := width // 2:
        if left & width:
            move(width, f.index(done * nbytes))
            done += width
