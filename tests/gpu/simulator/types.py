"""The types of PTX: how wide they are, and how register bits become numbers and back.

Registers hold raw bits as unsigned integers (predicates as booleans), one element a lane, or one element for all lanes
where the value is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
SIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("i1"), 2: np.dtype("i2"), 4: np.dtype("i4"), 8: np.dtype("i8")}


@dataclass(frozen=True)
class Type:
    """`size` in bytes; `decode` takes raw bits to numbers to compute with, `encode` rounds them back to raw bits."""

    name: str
    size: int
    raw: np.dtype[Any]
    decode: Callable[[Array], Array]
    encode: Callable[[Array], Array]

    @property
    def is_float(self) -> bool:
        """Whether the arithmetic rounds."""
        return "f" in self.name

    @property
    def is_signed(self) -> bool:
        """Whether a narrow value is sign extended in a wide register."""
        return self.name[0] == "s"

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 8 * self.size


def bf16_bits(values: Array) -> Array:
    """float32 -> bfloat16 bits, to the nearest, ties to even; NaN stays NaN (0x7FFF, as on hardware)."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


def bf16_values(bits: Array) -> Array:
    """bfloat16 bits -> float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _plain(name: str, number: str) -> Type:
    dtype = np.dtype(number)
    raw = UNSIGNED[dtype.itemsize]

    def decode(bits: Array) -> Array:
        return bits.view(dtype)

    def encode(values: Array) -> Array:
        return values.astype(dtype, copy=False).view(raw)

    return Type(name, dtype.itemsize, raw, decode, encode)


def _half_decode(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float32)


def _half_encode(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16)


def _same(bits: Array) -> Array:
    return bits


TYPES = {
    **{f"{kind}{8 * size}": _plain(f"{kind}{8 * size}", f"u{size}") for kind in "ub" for size in UNSIGNED},
    **{f"s{8 * size}": _plain(f"s{8 * size}", f"i{size}") for size in SIGNED},
    "f32": _plain("f32", "f4"),
    "f64": _plain("f64", "f8"),
    "f16": Type("f16", 2, UNSIGNED[2], _half_decode, _half_encode),
    "bf16": Type("bf16", 2, UNSIGNED[2], bf16_values, bf16_bits),
    "tf32": _plain("tf32", "f4"),
    "pred": Type("pred", 1, np.dtype(np.bool_), _same, _same),
}
REGISTER_DTYPES = {name: kind.raw for name, kind in TYPES.items()}
