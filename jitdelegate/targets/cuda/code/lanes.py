"""Combines the values of neighbouring threads, always in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree, size_of
from jitdelegate.targets.maths.expression import emit

FLOAT = 4
WARP = 32
Combine = Callable[[Code, Value, Value], Value]
"""Combines two values of one type; their order makes no difference unless one is NaN."""


def combine_of(kind: str, dtype: str) -> Combine:
    """How two values of a type are combined in a reduction of a kind of COMBINERS."""
    step = COMBINERS[kind].step
    return lambda code, a, b: emit(code, step, (a, b), (dtype, dtype))


def identity_of(code: Code, kind: str, dtype: str) -> Value:
    """The value from which a reduction starts. Minima and maxima that are combined one by one from this value on skip
    NaN, as on the CPU."""
    return code.constant(dtype, COMBINERS[kind].identity_of(dtype))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`, which is positive."""
    return 1 << (number - 1).bit_length()


def combine_lanes(code: Code, value: Value, lanes: int, combine: Combine, name: str) -> Value:
    """The values of `lanes` neighbouring threads combined, in each of them; all threads of the block take part.

    Args:
        lanes: a power of two up to a warp, or all threads of the block, which is then a whole number of warps.
        name: name of the shared memory, used by this call only.
    """
    for mask in (1, 2, 4, 8, 16):
        if mask < lanes:
            value = combine(code, value, code.shuffle_xor(value, mask))
    return value if lanes <= WARP else _combine_warps(code, value, lanes // WARP, combine, name)


def _combine_warps(code: Code, value: Value, warps: int, combine: Combine, name: str) -> Value:
    type_ = value.value.type
    nbytes = size_of(type_)
    shared, thread = code.static_shared(nbytes * warps, name), code.special("tid.x")
    with code.when((thread & (WARP - 1)).equals(0)):
        code.store([value], shared, thread // WARP * nbytes)
    code.barrier()
    values = [code.load(shared, warp * nbytes, type_)[0] for warp in range(warps)]
    return reduce_tree(values, lambda a, b: combine(code, a, b))


@contextmanager
def first_slice(
    code: Code, values: Sequence[Value], part: Value, thread: Value, threads: int
) -> Iterator[Callable[[int, int], Value]]:
    """The code written in this `with` block runs in slice 0 of a block's threads: groups of `threads` threads, each
    with so many `values` of four bytes. Yields (k, number) -> value `number` of the same thread of slice k + 1.

    Values go through dynamic shared memory, in place of whatever was there; `part` is the number of this slice.
    """
    pitch = threads * FLOAT
    base, size = code.dynamic_shared() + thread * FLOAT, len(values) * pitch
    code.barrier()
    with code.when(part > 0):
        for number, value in enumerate(values):
            code.store([value], base + (part - 1) * size, number * pitch)
    code.barrier()
    with code.when(part.equals(0)):
        yield lambda k, number: code.load(base, k * size + number * pitch, values[0].value.type)[0]


def combine_rows(
    code: Code,
    values: Sequence[Value],
    row: Value,
    column: Value,
    rows: int,
    columns: int,
    combine: Combine,
    name: str = "rows",
    *,
    everywhere: bool = False,
) -> list[Value]:
    """The combined values of the threads of a column, in the thread of row 0; all threads take part.

    Args:
        values: 1, 2, 4 or 8 float32, int32 or int64 values, equally many in each thread.
        rows: a power of two; with 1 there is nothing to combine.
        name: name of the shared memory, used by this call only.
        everywhere: gives them to all threads of the column.
    """
    if rows == 1:
        return list(values)
    type_ = values[0].value.type
    nbytes = len(values) * size_of(type_)
    pitch = columns * nbytes
    shared = code.static_shared(rows * pitch, name) + column * nbytes
    code.store(values, shared, row * pitch)
    half = rows // 2
    while half:
        code.barrier()
        with code.when(row < half):
            own, other = (code.load(shared, slot * pitch, type_, len(values)) for slot in (row, row + half))
            code.store([combine(code, a, b) for a, b in zip(own, other, strict=True)], shared, row * pitch)
        half //= 2
    if everywhere:
        code.barrier()
    return code.load(shared, 0 if everywhere else row * pitch, type_, len(values))
