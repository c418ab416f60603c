"""Row-major tensors as rows, for the writers of `ir.index_forms`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import IndexedForm, Scatter
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.element import load
from jitdelegate.targets.cpu.code.kernel import Axis, Generator, Job, Kernel, Memory, axes_of, offset_of
from jitdelegate.targets.cpu.code.vector_ir import Function, Value, vector
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

CHUNK_WORK = 16384
"""Elements that are worth a chunk of their own."""


@dataclass(frozen=True)
class Placed:
    """A row-major tensor: its memory and its logical shape."""

    memory: Memory
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.memory.layout.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return self.memory.layout.element

    @property
    def axes(self) -> list[Axis]:
        return axes_of(self.memory, self.shape)


def placed(writer: Writer, node: Node) -> list[Placed]:
    """The node's operands, then its results."""
    return [Placed(writer.memory(index), writer.shape(index)) for index in (*node.inputs, *node.outputs)]


def size_of(axes: Sequence[Axis]) -> int:
    """Number of elements of all axes together."""
    return prod(axis.size for axis in axes)


def is_dense(axes: Sequence[Axis], nbytes: int) -> bool:
    """True if the elements of the axes are contiguous."""
    for axis in reversed(axes):
        if axis.size > 1 and axis.distance != nbytes:
            return False
        nbytes *= axis.size
    return True


def job_of_rows(
    generator: Generator,
    name: str,
    rows: int,
    work: int,
    body: Callable[[Kernel, Value], None],
    begin: Callable[[Kernel, int], None] | None = None,
) -> Job:
    """A job that runs `body` for each of `rows` rows; a chunk is several rows, and `work` is the elements per row.

    Args:
        begin: called with the number of chunks; what every chunk does first.
    """
    at_once = min(rows, max(1, CHUNK_WORK // work))
    chunks = -(-rows // at_once)

    def chunk(kernel: Kernel) -> None:
        if begin:
            begin(kernel, chunks)
        first, count = kernel.span(rows, at_once)
        kernel.f.loop(count, lambda i: body(kernel, first + i))

    return generator.job(name, chunks, chunk, worth=rows * work / CHUNK_WORK)


def along_row(
    f: Function,
    size: int,
    lanes: int,
    body: Callable[..., Sequence[Value] | None],
    *carried: Value,
    whole: Value | int = 0,
) -> list[Value]:
    """Loops over vectors along a row of `size` elements: body(first element, mask, *values) returns the next values.

    Args:
        body: its mask is None, except for the elements after the last whole vector.
        whole: number of whole vectors to visit, at least one; 0 visits all.
    """
    values = list(carried)
    vectors, left = divmod(size, lanes)
    if vectors:
        count = whole or vectors
        values = f.loop(count, lambda i, *now: body(i * lanes, None, *now), *values)
    if left:
        values = list(body(f.index(vectors * lanes), f.first_lanes(f.index(left), lanes), *values) or ())
    return values


def look_up(f: Function, dtype: str, at: Value, indexed: Sequence[Axis]) -> tuple[Value, Value]:
    """(offset in bytes of the slice for the indices at `at`, whether all indices are in range); offset 0 if not."""
    nbytes = ELEMENT_TYPES[dtype].nbytes
    start, is_inside = f.index(0), f.literal("i1", 1)
    for number, axis in enumerate(indexed):
        index = cast(f, load(f, dtype, at + number * nbytes, 1, 0), dtype, "int64")
        is_inside = f.emit("i1", f"and {is_inside}, {f.compare('ult', index, axis.size).text}")
        start = index * axis.distance + start
    return f.select(is_inside, start, f.index(0)), is_inside


@dataclass(frozen=True)
class Refusal:
    """What a node says of an index outside.

    Attributes:
        number: of the refusal in the program.
        indices: tuples of one index for each of `indexed`, along the last axis.
        indexed: the axes that are indexed.
        skips_negative: as for a Scatter.
    """

    number: int
    indices: Placed
    indexed: Sequence[Axis]
    skips_negative: bool

    def check(self, kernel: Kernel, chunks: int) -> None:
        """Refuses the run if an index of this chunk's part of them is outside. Whole vectors are compared before
        the chunk's own work, so that its loops stay as they are."""
        f, total = kernel.f, size_of(self.indices.axes[:-1])
        part = -(-total // chunks)
        first = f.minimum(kernel.chunk * part, total - part)
        step = next((count for count in self._steps(kernel) if count <= part), 0)
        if step:
            is_refused = self._are_outside(kernel, first, part, step)
        else:
            (is_refused,) = f.loop(
                part,
                lambda i, so_far: [f.bitwise("or", so_far, self._is_outside(kernel, first + i))],
                f.literal("i1", 0),
            )
        f.when(is_refused, lambda: self._refuse_first(kernel, total))

    def _steps(self, kernel: Kernel) -> Sequence[int]:
        """Tuples that may be compared at once, most first."""
        lanes, is_plain = kernel.generator.lanes, is_dense(self.indices.axes, self.indices.nbytes)
        return ([4 * lanes, lanes] if len(self.indexed) == 1 else [lanes]) if is_plain else []

    def _at(self, kernel: Kernel, number: Value) -> Value:
        """The address of tuple `number`."""
        return kernel.pointer(self.indices.memory) + offset_of(kernel.f, number, self.indices.axes[:-1])

    def _is_outside(self, kernel: Kernel, number: Value) -> Value:
        """Whether one of the indices of tuple `number` is outside."""
        f, at, is_outside = kernel.f, self._at(kernel, number), kernel.f.literal("i1", 0)
        for axis_number, axis in enumerate(self.indexed):
            index = load(f, self.indices.dtype, at + axis_number * self.indices.nbytes, 1, 0)
            is_outside = f.bitwise("or", is_outside, f.compare(self._condition, index, axis.size))
        return is_outside

    def _are_outside(self, kernel: Kernel, first: Value, count: int, step: int) -> Value:
        """Whether an index of `count` tuples from `first` on is outside, `step` tuples in a turn: the largest of every
        lane are compared with the sizes at the end. The last turn may begin before the end of the one before."""
        f, lanes, nbytes = kernel.f, kernel.generator.lanes, self.indices.nbytes
        sizes, total = [axis.size for axis in self.indexed], size_of(self.indices.axes[:-1])
        element, larger = f"i{8 * nbytes}", "smax" if self.skips_negative else "umax"
        type_, vectors = vector(lanes, element), range(step // lanes * len(sizes))

        def turn(i: Value, *largest: Value) -> list[Value]:
            at = self._at(kernel, f.minimum(first + i * step, total - step))
            indices = [f.load(type_, at + number * lanes * nbytes, nbytes) for number in vectors]
            return [f.intrinsic(larger, type_, *pair) for pair in zip(largest, indices, strict=True)]

        every_largest = f.loop(-(-count // step), turn, *(f.literal(type_, 0) for _ in vectors))
        is_outside = f.literal("i1", 0)
        for number, largest in enumerate(every_largest):
            limits = [sizes[(number * lanes + lane) % len(sizes)] for lane in range(lanes)]
            outside = f.compare(self._condition, largest, f.numbers(limits, element))
            is_outside = f.bitwise("or", is_outside, f.compare("ne", f.cast("bitcast", outside, f"i{lanes}"), 0))
        return is_outside

    @property
    def _condition(self) -> str:
        return "sge" if self.skips_negative else "uge"

    def _refuse_first(self, kernel: Kernel, total: int) -> None:
        """Refuses the run for the first index that is outside."""
        f, nbytes = kernel.f, self.indices.nbytes

        def refuse(number: Value) -> None:
            at = self._at(kernel, number)

            def index() -> Value:
                outside = f.index(0)
                for axis_number, axis in reversed(list(enumerate(self.indexed))):
                    loaded = load(f, self.indices.dtype, at + axis_number * nbytes, 1, 0)
                    own = cast(f, loaded, self.indices.dtype, "int64")
                    outside = f.select(f.compare(self._condition, own, axis.size), own, outside)
                return outside

            kernel.refuse(self.number, self._is_outside(kernel, number), index)

        f.loop(total, refuse)


def refusal_check(
    writer: Writer, node: Node, form: IndexedForm, indices: Placed, indexed: Sequence[Axis]
) -> Callable[[Kernel, int], None] | None:
    """What the node's chunks do first, as `job_of_rows` takes it; None where an index outside is no error."""
    if not form.refusal:
        return None
    number = writer.generator.refusals.number(node, form.refusal)
    return Refusal(number, indices, indexed, isinstance(form, Scatter) and form.skips_negative).check
