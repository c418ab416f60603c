"""Words of int8, or of int4 that lie two to a byte: how these are packed, and their numbers as floats.

Of eight neighbouring int4, byte k has number k in its low half and number 4 + k in its high one; of four, number 2 + k.
"""

from __future__ import annotations

import numpy as np

from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.element import resized

WORD, HALF_WORD = 4, 16
"""Bytes of a word, and bits of half of one."""
MAGIC = 0x4B000000
"""Bits of 2**23 as float32: below 2**23, an integer in the low bits is added to it."""


def are_int4(numbers: np.ndarray) -> bool:
    """Whether int8 numbers fit in four bits."""
    return numbers.dtype == np.int8 and numbers.size > 0 and bool(numbers.min() >= -8 and numbers.max() < 8)


def pairs_of_int4(numbers: np.ndarray, count: int) -> np.ndarray:
    """uint8[..., K / 2]: int8[..., K] of 4 bits, of which `count` neighbours are read together; `count` divides K."""
    groups = numbers.reshape(*numbers.shape[:-1], -1, 2, count // 2).view(np.uint8)
    packed: np.ndarray = groups[..., 0, :] & 15 | groups[..., 1, :] << 4
    return packed.reshape(*numbers.shape[:-1], -1)


def floats_of_bytes(code: Code, word: Value) -> list[Value]:
    """The int8 of a word as floats; a conversion of integers would take as long as four other instructions."""
    return _floats(code, word ^ 0x80808080 - (1 << 32), 0x80)


def floats_of_nibbles(code: Code, word: Value) -> list[Value]:
    """The int4 of a word, or of half a word, as floats."""
    if word.bits == HALF_WORD:
        offset = resized(code, word, I32) ^ 0x8888
        return _floats(code, offset & 0x0F0F | (offset & 0xF0F0) << 12, 8)
    offset = word ^ 0x88888888 - (1 << 32)
    return [one for half in (offset, offset >> 4) for one in _floats(code, half & 0x0F0F0F0F, 8)]


def _floats(code: Code, word: Value, zero: int) -> list[Value]:
    """The bytes of a word, less `zero`, as floats."""
    bits = [code.ptx(f"prmt.b32 $0, $1, {MAGIC}, {0x7650 + byte};", "r", [word])[0] for byte in range(WORD)]
    return [code.from_bits(one) - float((1 << 23) + zero) for one in bits]
