"""Row-major tensors as rows, for the writers of `ir.index_forms`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import IndexedForm, Scatter
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.element import load
from jitdelegate.targets.cpu.kernel import Generator, Job, Kernel, Memory, distances_along
from jitdelegate.targets.cpu.reduce import Axis
from jitdelegate.targets.cpu.vector_ir import Function, Value
from jitdelegate.targets.cpu.writer import Writer
from jitdelegate.targets.scalar.cast import cast

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
        return [Axis(*pair) for pair in zip(self.shape, distances_along(self.memory, self.shape), strict=True)]


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


def job_of_rows(generator: Generator, name: str, rows: int, work: int, body: Callable[[Kernel, Value], None]) -> Job:
    """A job that runs `body` for each of `rows` rows; a chunk is several rows, and `work` is the elements per row."""
    at_once = min(rows, max(1, CHUNK_WORK // work))
    chunks = -(-rows // at_once)

    def chunk(kernel: Kernel) -> None:
        f = kernel.f
        first = kernel.chunk * at_once
        count: Value | int = at_once
        if at_once * chunks != rows:
            left = f.index(rows) - first
            count = f.select(f.compare("ult", left, at_once), left, f.index(at_once))
        f.loop(count, lambda i: body(kernel, first + i))

    return generator.job(name, chunks, chunk, worth=rows * work / CHUNK_WORK)


def along_row(
    f: Function,
    size: int,
    lanes: int,
    body: Callable[..., Sequence[Value]],
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
        values = list(body(f.index(vectors * lanes), f.first_lanes(f.index(left), lanes), *values))
    return values


def look_up(f: Function, dtype: str, at: Value, indexed: Sequence[Axis]) -> tuple[Value, Value]:
    """(offset in bytes of the slice for the indices at `at`, whether all indices are in range); offset 0 if not."""
    nbytes = ELEMENT_TYPES[dtype].nbytes
    start, is_inside = f.index(0), f.literal("i1", 1)
    for number, axis in enumerate(indexed):
        place = cast(f, load(f, dtype, at + number * nbytes, 1, 0), dtype, "int64")
        is_inside = f.emit("i1", f"and {is_inside}, {f.compare('ult', place, axis.size).text}")
        start = place * axis.distance + start
    return f.select(is_inside, start, f.index(0)), is_inside


@dataclass(frozen=True)
class Refusal:
    """What a node says of an index outside: its number in the program; `skips_negative` as for a Scatter."""

    number: int
    skips_negative: bool = False

    def write(self, kernel: Kernel, dtype: str, at: Value, indexed: Sequence[Axis], is_inside: Value) -> None:
        """Refuses the run, unless the indices at `at` are inside, as `look_up` has found."""
        f, nbytes = kernel.f, ELEMENT_TYPES[dtype].nbytes
        is_outside = f.emit("i1", f"xor {is_inside}, true")
        if self.skips_negative:
            is_positive = f.compare("sge", load(f, dtype, at, 1, 0), 0)
            is_outside = f.emit("i1", f"and {is_outside}, {is_positive.text}")

        def first() -> Value:
            found = f.index(0)
            for number, axis in reversed(list(enumerate(indexed))):
                place = cast(f, load(f, dtype, at + number * nbytes, 1, 0), dtype, "int64")
                found = f.select(f.compare("uge", place, axis.size), place, found)
            return found

        kernel.refuse(self.number, is_outside, first)


def refusal_of(writer: Writer, node: Node, form: IndexedForm) -> Refusal | None:
    """What the node says of an index outside; None where that is no error."""
    if not form.refusal:
        return None
    number = writer.generator.refusals.number(node, form.refusal)
    return Refusal(number, isinstance(form, Scatter) and form.skips_negative)
