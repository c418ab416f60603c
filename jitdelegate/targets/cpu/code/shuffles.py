"""Shuffles that turn vectors in registers: join, transpose, interleave and separate them."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.targets.cpu.code.vector_ir import Function, Value


def joined(f: Function, pieces: Sequence[Value]) -> Value:
    """The vectors concatenated into one; they have equal types, and their number is a power of two."""
    while len(pieces) > 1:
        pieces = [f.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Transposes square blocks that lie side by side: vector k of the operand holds the rows k of all blocks, vector k
    of the result their columns k.

    Each of log2(rows) rounds interleaves the first half of the vectors with the second. In blocks of 16 bytes, that
    is one unpacking instruction per vector, the cheapest shuffle.
    """
    size, half = len(rows), len(rows) // 2
    starts = range(0, rows[0].lanes, size)
    low, high = (
        [start + first + at // 2 + (rows[0].lanes if at % 2 else 0) for start in starts for at in range(size)]
        for first in (0, half)
    )
    for _ in range(half.bit_length()):
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [f.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
    return list(rows)


def interleaved(f: Function, parts: Sequence[Value]) -> list[Value]:
    """Vectors a, b, ... as a0 b0 ... a1 b1 ..., in as many vectors."""
    lanes, count = parts[0].lanes, len(parts)
    return [_picked(f, parts, [divmod(at + v * lanes, count)[::-1] for at in range(lanes)]) for v in range(count)]


def separated(f: Function, parts: Sequence[Value]) -> list[Value]:
    """The inverse of `interleaved`."""
    lanes, count = parts[0].lanes, len(parts)
    return [_picked(f, parts, [divmod(at * count + v, lanes) for at in range(lanes)]) for v in range(count)]


def _picked(f: Function, parts: Sequence[Value], places: Sequence[tuple[int, int]]) -> Value:
    """A vector whose lanes are given as (part, lane)."""
    lanes, value = len(places), parts[0]
    for number, part in enumerate(parts[1:], 1):
        first = number == 1
        order = [
            lanes + lane if source == number else (lane if first and source == 0 else at)
            for at, (source, lane) in enumerate(places)
        ]
        value = f.shuffle(value, part, order)
    return value
