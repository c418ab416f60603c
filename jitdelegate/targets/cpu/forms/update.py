"""Update: writes a window into a copy of the data, or into the data itself. Also copies of inputs to outputs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from jitdelegate.ir.forms import Map
from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Update
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Axis, Job, Kernel, offset_of
from jitdelegate.targets.cpu.code.rows import Placed, is_dense, look_up, placed, size_of
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

CHUNK_BYTES = 1 << 16
"""Bytes of a chunk of a copy."""
UNROLLED = 4
"""Vectors that are copied in one turn of a loop."""


@dataclass(frozen=True)
class Box:
    """Elements of a row-major tensor along some of its axes: their sizes, and the bytes of one element."""

    axes: list[Axis]
    nbytes: int

    @staticmethod
    def of(tensor: Placed, first: int = 0) -> Box:
        """The box along the tensor's axes from `first` on."""
        return Box(tensor.axes[first:], tensor.nbytes)


def write_update(writer: Writer, node: Node, form: Update) -> list[Job]:
    """The jobs of an Update node: one chunk, because the windows are written after the rest. The rest is not copied
    where it lies already; the caller's memory may be the same for an input and an output."""
    data, update, start, out = placed(writer, node)
    several = len(start.shape) == 2
    window, nbytes = Box.of(update, several), start.shape[-1] * start.nbytes

    def body(kernel: Kernel) -> None:
        f, source, target = kernel.f, kernel.pointer(data.memory), kernel.pointer(out.memory)
        if data.memory != out.memory:
            f.when(f.compare("ne", source, target), lambda: _copy(kernel, Box.of(data), out, source, target))
        first, at = kernel.pointer(update.memory), kernel.pointer(start.memory)
        if not several:
            _write_window(kernel, form, window, (first, at), start.dtype, out)
            return
        step = update.axes[0].distance
        f.loop(
            start.shape[0],
            lambda i: _write_window(kernel, form, window, (first + i * step, at + i * nbytes), start.dtype, out),
        )

    key = "update", form.clamps, data, update, start, out
    return [writer.generator.once_for(key, lambda: writer.generator.job("update", 1, body, worth=0))]


def _write_window(
    kernel: Kernel, form: Update, window: Box, ends: tuple[Value, Value], dtype: str, out: Placed
) -> None:
    """Copies a window, which lies at the first of `ends`, to where the indices at the second say."""
    f, target, (first, at) = kernel.f, kernel.pointer(out.memory), ends
    if form.clamps:
        _copy(kernel, window, out, first, target + _distance(f, window, at, dtype, out))
        return
    rooms = [Axis(axis.size - own.size + 1, axis.distance) for axis, own in zip(out.axes, window.axes, strict=True)]
    distance, is_inside = look_up(f, dtype, at, rooms)
    f.when(is_inside, lambda: _copy(kernel, window, out, first, target + distance))


def is_port_copy(writer: Writer, node: Node, form: Map) -> bool:
    """Whether a Map copies one of the caller's tensors to another as it is."""
    if not form.moves_only or len(node.inputs) != 1 or not form.operands[0].is_identity():
        return False
    source, target = writer.ends(node)
    return source.exact and target.exact and source.layout == target.layout and source.layout.plain


def write_port_copy(writer: Writer, node: Node) -> list[Job]:
    """The jobs of a copy between the caller's tensors. Nothing is copied where they are the same memory."""
    (source, target), jobs = writer.ends(node), list[Job]()
    nbytes = target.layout.element * prod(target.layout.shape)
    for first, chunks, size in (
        (0, nbytes // CHUNK_BYTES, CHUNK_BYTES),
        (nbytes // CHUNK_BYTES * CHUNK_BYTES, 1, nbytes % CHUNK_BYTES),
    ):
        if chunks and size:

            def body(kernel: Kernel, first: int = first, size: int = size) -> None:
                f, at, to = kernel.f, kernel.pointer(source, first), kernel.pointer(target, first)
                moved = kernel.chunk * size
                f.when(f.compare("ne", at, to), lambda: _copy_bytes(kernel, size, at + moved, to + moved))

            jobs.append(writer.generator.job("copy", chunks, body, worth=chunks * size / CHUNK_BYTES))
    return jobs


def _copy(kernel: Kernel, source: Box, target: Placed, start: Value, end: Value) -> None:
    """Copies all of `source`, which lies at `start`, to a box of `target` that begins at `end`."""
    f, box = kernel.f, [Axis(own.size, axis.distance) for own, axis in zip(source.axes, target.axes, strict=True)]
    outer = next(
        count
        for count in range(len(box))
        if is_dense(box[count:], target.nbytes) and is_dense(source.axes[count:], source.nbytes)
    )
    nbytes = size_of(box[outer:]) * source.nbytes

    def piece(i: Value) -> None:
        at, to = offset_of(f, i, source.axes[:outer]), offset_of(f, i, box[:outer])
        _copy_bytes(kernel, nbytes, start + at, end + to)

    f.loop(size_of(box[:outer]), piece)


def _copy_bytes(kernel: Kernel, nbytes: int, source: Value, target: Value) -> None:
    """Copies neighbouring bytes: several vectors at a time, then single ones, then ever smaller ones."""
    width, done = kernel.generator.vector_bytes, 0
    for together in (UNROLLED, 1):
        turns = (nbytes - done) // (width * together)
        if turns:
            _copy_vectors(kernel.f, turns, width, together, source + done, target + done)
            done += turns * width * together
    while width := width // 2:
        if (nbytes - done) & width:
            _copy_vectors(kernel.f, 1, width, 1, source + done, target + done)
            done += width


def _copy_vectors(f: Function, turns: int, width: int, together: int, source: Value, target: Value) -> None:
    def turn(i: Value) -> None:
        offsets = [i * (width * together) + number * width for number in range(together)]
        loaded = [f.load(vector(width, "i8"), source + offset, 1) for offset in offsets]
        for value, offset in zip(loaded, offsets, strict=True):
            f.store(value, target + offset, 1)

    f.loop(turns, turn)


def _distance(f: Function, window: Box, at: Value, dtype: str, out: Placed) -> Value:
    """Bytes from the first element of the output to that of the window, which is moved to lie within the output."""
    distance, nbytes = f.index(0), ELEMENT_TYPES[dtype].nbytes
    for number, (axis, own) in enumerate(zip(out.axes, window.axes, strict=True)):
        if room := axis.size - own.size:
            index = cast(f, load(f, dtype, at + number * nbytes, 1, 0), dtype, "int64")
            distance = f.minimum(f.maximum(index, 0), room) * axis.distance + distance
    return distance
