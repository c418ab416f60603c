"""Expressions of quantized models: Rescale and Table, after TOSA's operators of these names, and Quantize.

Source: https://www.mlplatform.org/tosa/tosa_spec.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from jitdelegate.ir.expr import Apply, Cast, Const, Expr, result_type
from jitdelegate.ir.types import ELEMENT_TYPES

ROUNDINGS = {"single": (0, 0), "double": (1 << 30, -(1 << 30)), "double_up": (1 << 30, 1 << 30)}
"""Rounding of a Rescale -> the numbers added to products besides half of the last kept bit: from 0 on, and below 0.

They are added for shifts by more than 31, which round twice: first by 31 bits, halves up, then by the rest. "single"
rounds once, halves up. "double" rounds halves away from zero the second time: TOSA's DOUBLE_ROUND, and what LiteRT's
reference kernels do. "double_up" rounds halves up again, as LiteRT's optimized kernels do.
"""
HIGHEST_SHIFT = 62
DIGITS = 7
"""Bits of an int16 that interpolate between neighbouring entries of a Table."""
SIZES = {"int8": 256, "uint8": 256, "int16": (1 << 16 - DIGITS) + 1}
"""Entries of a Table, by the type of the value."""


@dataclass(frozen=True, slots=True)
class Rescale(Expr):
    """clamp(round((value - input_zero) * multiplier / 2**shift) + output_zero, low, high), an integer of type `dtype`.

    Attributes:
        value: an integer; an int64 has to fit in 48 bits.
        multiplier: from 0 to 2**31 - 1, or to 2**15 - 1 for values of int64; a constant or, by channel, an int32.
        shift: from 2 to 62; a constant or, by channel, an int32.
        input_zero: the value's zero point; 0 for values of more than 16 bits.
        output_zero: the result's zero point; 0 for results of more than 16 bits.
        low, high: limits, within the range of `dtype`.
        rounding: a name of ROUNDINGS.
    """

    part_names: ClassVar[tuple[str, ...]] = ("value", "multiplier", "shift")
    value: Expr
    multiplier: Expr
    shift: Expr
    dtype: str
    input_zero: int
    output_zero: int
    low: int
    high: int
    rounding: str

    def __str__(self) -> str:
        arguments = f"{self.value}, {self.multiplier}, {self.shift}"
        zeros = f"{self.input_zero} -> {self.output_zero}"
        return f"{self.dtype}.rescale({arguments}, {zeros}, {self.low} ... {self.high}, {self.rounding})"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        """Constants take the type of the calculation, int64."""
        return tuple(dtype or "int64" for dtype in found)

    def type_of(self, part_types: Sequence[str]) -> str:
        return self.dtype

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        value, multiplier, shift = (part.astype(np.int64) for part in parts)
        centred = value - self.input_zero
        not_negative, negative = ROUNDINGS[self.rounding]
        twice = np.where(shift > 31, np.where(centred < 0, negative, not_negative), 0)
        rounded = (centred * multiplier + np.left_shift(1, shift - 1) + twice) >> shift
        return np.clip(rounded + self.output_zero, self.low, self.high)

    def largest(self, types: Sequence[str]) -> int | None:
        """A bound of the results' magnitude before the zero point is added, for Args of these types; None where
        multiplier or shift is not a constant."""
        if not isinstance(self.multiplier, Const) or not isinstance(self.shift, Const):
            return None
        return (self.centred(types) * int(self.multiplier.value) >> int(self.shift.value)) + 1

    def centred(self, types: Sequence[str]) -> int:
        """A bound of the magnitude of value - input_zero."""
        return largest(self.value, types) + abs(self.input_zero)


def largest(expr: Expr, types: Sequence[str]) -> int:
    """A bound of the magnitude of an integer expression, for Args of these types. Numbers without a sign may wrap."""
    element = ELEMENT_TYPES[result_type(expr, types) or "int64"]
    limit = max(element.maximum, -element.minimum)
    match expr:
        case Const(value):
            return abs(int(value))
        case _ if not element.is_signed:
            return limit
        case Cast(value) if not ELEMENT_TYPES[result_type(value, types) or "float32"].is_float:
            bound = largest(value, types)
        case Apply("add" | "sub", (a, b)):
            bound = largest(a, types) + largest(b, types)
        case Apply("mul", (a, b)):
            bound = largest(a, types) * largest(b, types)
        case Apply("max" | "min" | "neg" | "abs", parts) | Apply("select", (_, *parts)):
            bound = max(largest(part, types) for part in parts)
        case _:
            return limit
    return min(bound, limit)


def rescale(
    value: Expr,
    multiplier: Expr | int,
    shift: Expr | int,
    dtype: str,
    *,
    input_zero: int = 0,
    output_zero: int = 0,
    low: int | None = None,
    high: int | None = None,
    rounding: str = "double",
) -> Rescale:
    """A Rescale; the limits are by default those of `dtype`."""
    element = ELEMENT_TYPES[dtype]
    low, high = element.minimum if low is None else low, element.maximum if high is None else high
    multiplier, shift = (part if isinstance(part, Expr) else Const(part) for part in (multiplier, shift))
    return Rescale(value, multiplier, shift, dtype, input_zero, output_zero, low, high, rounding)


@dataclass(frozen=True, slots=True)
class Quantize(Expr):
    """round(clamp(value, low, high)) + zero, an integer of type `dtype`; some number between the limits for NaN.

    Attributes:
        value: a float32 or a float64.
        low, high: limits in the type of the value, whole numbers below 2**22: those of the result without `zero`.
        zero: the result's zero point, an int32.
        rounding: "even" takes halves to the even number, "away" away from zero.
    """

    part_names: ClassVar[tuple[str, ...]] = ("value", "low", "high", "zero")
    value: Expr
    low: Expr
    high: Expr
    zero: Expr
    dtype: str
    rounding: str

    def __str__(self) -> str:
        return f"{self.dtype}.quantize({self.value}, {self.low} ... {self.high}, {self.zero}, {self.rounding})"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        value = found[0] or "float32"
        return (value, value, value, "int32")

    def type_of(self, part_types: Sequence[str]) -> str:
        return self.dtype

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        value, low, high, zero = parts
        limited = np.clip(np.nan_to_num(value), low, high)
        whole = half_away(limited) if self.rounding == "away" else np.rint(limited)
        return whole.astype(np.int64) + zero


def half_away(value: np.ndarray | np.float32) -> np.ndarray:
    """The nearest whole numbers; halves are rounded away from zero."""
    whole = np.trunc(value)
    return np.asarray(whole + np.where(np.abs(value - whole) >= 0.5, np.sign(value), 0))


def quantize(
    value: Expr, dtype: str, zero: int = 0, low: int | None = None, high: int | None = None, rounding: str = "even"
) -> Quantize:
    """A Quantize with results from `low` to `high`, by default the limits of `dtype`."""
    element = ELEMENT_TYPES[dtype]
    low, high = element.minimum if low is None else low, element.maximum if high is None else high
    return Quantize(value, Const(float(low - zero)), Const(float(high - zero)), Const(zero), dtype, rounding)


@dataclass(frozen=True, slots=True)
class Table(Expr):
    """A function of an int8, uint8 or int16, given by its values.

    Every 8-bit value has its own entry: entries[value - smallest value], of type `dtype`, an integer or float32. An
    int16 lies between two of 513 int16 entries, which are 128 apart. The result is then an int32 with DIGITS bits of
    fraction: entries[i] * 128 + (entries[i + 1] - entries[i]) * (value % 128), i = (value + 32768) // 128.
    """

    part_names: ClassVar[tuple[str, ...]] = ("value",)
    value: Expr
    entries: tuple[float, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}.table({self.value}, {len(self.entries)} entries {crc32(repr(self.entries).encode()):08x})"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        return (found[0] or "int8",)

    def type_of(self, part_types: Sequence[str]) -> str:
        return self.dtype

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        (value,) = parts
        entries = np.array(self.entries, np.float32 if self.dtype == "float32" else np.int64)
        place = value.astype(np.int64) - np.iinfo(value.dtype).min
        if value.dtype != np.int16:
            return entries[place]
        first, rest = place >> DIGITS, place % (1 << DIGITS)
        return (entries[first] << DIGITS) + (entries[first + 1] - entries[first]) * rest
