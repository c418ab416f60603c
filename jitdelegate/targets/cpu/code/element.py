"""Loads and stores vectors of a tensor's elements."""

from __future__ import annotations

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.code.vector_ir import FLOAT, Function, Value, lanes_of, vector


def load(f: Function, dtype: str, at: Value, lanes: int, step: int, mask: Value | None = None) -> Value:
    """`lanes` elements that are `step` bytes apart, in their register type.

    Args:
        mask: for neighbouring elements, the lanes to read; other lanes are zero.
    """
    nbytes, element = ELEMENT_TYPES[dtype].nbytes, stored(dtype)
    type_ = vector(lanes, element)
    if lanes == 1 or step == 0:
        value = f.splat(f.load(element, at, nbytes), lanes)
    elif step == 2 * nbytes:
        value = _every_other(f, type_, at, lanes, nbytes)
    elif step != nbytes:
        value = f.literal(type_, 0)
        for lane in range(lanes):
            one = f.load(element, at + lane * step, nbytes)
            value = f.emit(type_, f"insertelement {value}, {one}, i64 {lane}")
    elif mask is None:
        value = f.load(type_, at, nbytes)
    else:
        value = f.load_masked(type_, at, mask, nbytes)
    return f.compare("ne", value, 0) if dtype == "bool" else value


def _every_other(f: Function, type_: str, at: Value, lanes: int, nbytes: int) -> Value:
    """`lanes` elements with one element between neighbours, from two vectors that end with the last one."""
    first, second = (f.load(type_, at + place * nbytes, nbytes) for place in (0, lanes - 1))
    return f.shuffle(first, second, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])


def store(f: Function, dtype: str, value: Value, at: Value, mask: Value | None = None) -> None:
    """Stores neighbouring elements, starting at `at`; lanes outside `mask` are not written."""
    nbytes = ELEMENT_TYPES[dtype].nbytes
    if dtype == "bool":
        value = f.cast("zext", value, vector(lanes_of(value.type), stored(dtype)))
    if mask is None:
        f.store(value, at, nbytes)
    else:
        f.store_masked(value, at, mask, nbytes)


def store_first(f: Function, dtype: str, value: Value, count: int, at: Value) -> None:
    """Stores the first `count` lanes of a vector: by a mask where that is one instruction, else in pieces."""
    lanes = value.lanes
    if count < lanes and f.module.machine.avx512_lanes and count.bit_count() > 1:
        store(f, dtype, value, at, f.first_lanes(f.index(count), lanes))
        return
    done = 0
    while done < count:
        size = 1 << (count - done).bit_length() - 1
        piece = value if size == lanes else f.part(value, done, size)
        store(f, dtype, piece, at + done * ELEMENT_TYPES[dtype].nbytes)
        done += size


def stored(dtype: str) -> str:
    """The type of one element in memory, where a bool is a byte, 0 or 1."""
    return FLOAT if dtype == "float32" else f"i{ELEMENT_TYPES[dtype].bits}"
