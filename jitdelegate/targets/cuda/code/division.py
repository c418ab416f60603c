"""Division of indices by sizes that are known when a launch is written, but not when its kernel is compiled."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.targets.cuda.code.device_code import I32, I64, Code, Value

DIVISOR_SIZES = 3
"""Number of int32 arguments per divisor."""


def divisor(size: int) -> tuple[int, int, int]:
    """A positive size as arguments of a launch: (size, multiplier, shift) with n // size == n * multiplier >> shift.

    The multiplier is 2**shift / size rounded up, an unsigned 32-bit number whose top bit is set, here as int32. The
    quotient is exact for 0 <= n < 2**31: it is too large by n * remainder / (size * 2**shift), less than 1 / size.
    """
    bits = (size - 1).bit_length()
    multiplier = -(-(1 << 31 + bits) // size)
    return size, multiplier - (1 << 32), 31 + bits


def divided(code: Code, index: Value, numbers: Sequence[Value]) -> tuple[Value, Value]:
    """Quotient and remainder of an index by a size, given `divisor`'s numbers: about 5 instructions instead of 20."""
    size, multiplier, shift = numbers
    builder = code.builder
    wide = [builder.zext(number.value, I64) for number in (index, multiplier, shift)]
    quotient = Value(code, builder.trunc(builder.lshr(builder.mul(wide[0], wide[1]), wide[2]), I32))
    return quotient, index - quotient * size


def divisors(sizes: Sequence[int]) -> list[int]:
    """The sizes of all axes but the first as launch arguments, for `coordinates`."""
    return [number for size in sizes[1:] for number in divisor(size)]


def divisor_kinds(axes: int) -> tuple[str, ...]:
    """The kinds of the kernel's parameters that take `divisors` of this many axes."""
    return ("int32",) * (DIVISOR_SIZES * (axes - 1))


def coordinates(code: Code, index: Value, numbers: Sequence[Value]) -> list[Value]:
    """The row-major index `index` as one index per axis; `numbers` are the numbers from `divisors`."""
    indices: list[Value] = []
    for at in reversed(range(0, len(numbers), DIVISOR_SIZES)):
        index, position = divided(code, index, numbers[at : at + DIVISOR_SIZES])
        indices.insert(0, position)
    return [index, *indices]
