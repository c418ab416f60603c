"""bfloat16, which numpy has no type for: its bits, and the float32 numbers that they stand for."""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 20
"""Numbers that are converted together: weights may be larger than all else that a compilation holds."""


def bfloat16_bits(data: np.ndarray) -> np.ndarray:
    """uint16 of the shape of float32 `data`: the bits of the nearest bfloat16, of two the even one. NaN stays NaN."""
    bits, found = np.ascontiguousarray(data).reshape(-1).view(np.uint32), np.empty(data.size, np.uint16)
    for first in range(0, data.size, AT_ONCE):
        some = bits[first : first + AT_ONCE]
        nearest, is_nan = some + np.uint32(0x7FFF) + (some >> 16 & 1), some & 0x7FFFFFFF > 0x7F800000
        found[first : first + AT_ONCE] = np.where(is_nan, some | 0x400000, nearest) >> 16
    return found.reshape(data.shape)


def bfloat16_numbers(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers that the bits of bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
