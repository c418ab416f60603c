"""Functions of fixed-point numbers, computed with integers alone, bit for bit as LiteRT's integer kernels compute them.

A number of `bits` bits with `whole` integer bits stands for stored / 2**(bits - 1 - whole). Each function is written
once, over an `Arithmetic`: `evaluate` runs it on arrays, and targets emit it.

Source: gemmlowp, fixedpoint/fixedpoint.h (https://github.com/google/gemmlowp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from jitdelegate.ir.expr import Expr

V = TypeVar("V", bound=Any)
EIGHTH, THIRD = 1895147668, 715827883
"""exp(-1/8) and 1/3, in 32 bits without integer bits."""
POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1) ... exp(-16), in 32 bits without integer bits."""
SEVENTEENTHS = 1515870810, -1010580540
"""48/17 and -32/17, in 32 bits with two integer bits."""
HALF_ROOT = 1518500250
"""sqrt(1/2), in 32 bits without integer bits."""
MOST_WHOLE = 6
"""Most integer bits of a FixedPoint's value."""


class Arithmetic(Protocol[V]):
    """Operations on integers of at least 32 bits beside + - * &, which values have themselves."""

    def ashr(self, value: V, distance: int) -> V:
        """value / 2**distance, rounded down."""

    def compare(self, condition: str, left: V, right: int) -> V:
        """A mask, by LLVM's conditions: `eq`, `ne`, `slt`, `sgt`."""

    def select(self, condition: V, if_true: Any, if_false: Any) -> V:
        """`if_true` where the mask is set, else `if_false`."""

    def high_product(self, a: V, b: Any) -> V:
        """a * b / 2**31 of numbers of 32 bits, rounded, halves up."""

    def word_product(self, a: V, b: Any) -> V:
        """a * b of numbers of 16 bits."""


def product(m: Arithmetic[V], a: V, b: Any, bits: int) -> V:
    """The product of two numbers without integer bits, one of them at least, rounded, halves up."""
    return m.high_product(a, b) if bits == 32 else m.ashr(m.word_product(a, b) + (1 << bits - 2), bits - 1)


def halved(m: Arithmetic[V], value: V, times: int) -> V:
    """value / 2**times, rounded, halves away from zero."""
    return m.ashr(value + m.ashr(value, 31) + (1 << times - 1), times)


def _constant(number: int, bits: int) -> int:
    """A constant of 32 bits in `bits` bits."""
    return number if bits == 32 else (number + (1 << 31 - bits)) >> 32 - bits


def exponential(m: Arithmetic[V], x: V, whole: int, bits: int) -> V:
    """e**x for x <= 0 with `whole` integer bits; the result has none.

    A polynomial on [-1/4, 0), times e**(-1/4), e**(-1/2) ... by the bits of the rest.
    """
    fraction = bits - 1 - whole
    quarter = 1 << fraction - 2
    small = (x & quarter - 1) - quarter
    at = small * (1 << whole) + (1 << bits - 4)
    square = product(m, at, at, bits)
    cube, fourth = product(m, square, at, bits), product(m, square, square, bits)
    rest = product(m, halved(m, fourth, 2) + cube, _constant(THIRD, bits), bits)
    rest = halved(m, rest + square, 1)
    eighth = _constant(EIGHTH, bits)
    found = product(m, at + rest, eighth, bits) + eighth
    left = small - x
    for power, factor in zip(range(-2, whole), POWERS, strict=False):
        scaled = product(m, found, _constant(factor, bits), bits)
        found = m.select(m.compare("ne", left & (1 << fraction + power), 0), scaled, found)
    if whole > 5:
        found = m.select(m.compare("slt", x, -32 << fraction), 0, found)
    return m.select(m.compare("eq", x, 0), (1 << bits - 1) - 1, found)


def reciprocal(m: Arithmetic[V], x: V, bits: int) -> V:
    """2 / (1 + x) for x in [0, 1) without integer bits; the result has two of them. Three steps of Newton's method."""
    half = m.ashr(x, 1) + (1 << bits - 2)
    first, slope = (_constant(number, bits) for number in SEVENTEENTHS)
    found: V = product(m, half, slope, bits) + first
    for _ in range(3):
        error = (1 << bits - 3) - product(m, half, found, bits)
        found = found + product(m, found, error, bits) * 4
    return found


def _saturated(m: Arithmetic[V], value: V, limit: int) -> V:
    return m.select(m.compare("sgt", value, limit), limit, value)


def logistic(m: Arithmetic[V], x: V, whole: int) -> V:
    """1 / (1 + e**-x) of 16 bits; the result has no integer bits."""
    power = exponential(m, m.select(m.compare("sgt", x, 0), x * -1, x), whole, 16)
    positive = _saturated(m, reciprocal(m, power, 16) * 2, 32767)
    found = m.select(m.compare("sgt", x, 0), positive, positive * -1 + 32767)
    return m.select(m.compare("eq", x, 0), 1 << 14, found)


def tanh(m: Arithmetic[V], x: V, whole: int) -> V:
    """tanh(x) of 16 bits; the result has no integer bits. It is (1 - p) / (1 + p), where p = e**(-2 * |x|)."""
    power = exponential(m, m.select(m.compare("sgt", x, 0), x * -1, x), whole + 1, 16)
    positive = _saturated(m, (reciprocal(m, power, 16) - (1 << 13)) * 4, 32767)
    found = m.select(m.compare("slt", x, 0), positive * -1, positive)
    return m.select(m.compare("eq", x, 0), 0, found)


def _leading(m: Arithmetic[V], x: V) -> tuple[V, V]:
    """(number of leading zeros, x without them but one) of a positive number of 32 bits."""
    zeros = m.select(m.compare("slt", x, 1 << 15), 17, x * 0 + 1)
    found = m.select(m.compare("slt", x, 1 << 15), x * (1 << 16), x)
    for bits in (8, 4, 2, 1):
        is_small = m.compare("slt", found, 1 << 31 - bits)
        zeros = m.select(is_small, zeros + bits, zeros)
        found = m.select(is_small, found * (1 << bits), found)
    return zeros, found


def leading_zeros(m: Arithmetic[V], x: V, whole: int) -> V:
    """The leading zeros of a positive number of 32 bits."""
    return _leading(m, x)[0]


def normalized(m: Arithmetic[V], x: V, whole: int) -> V:
    """x * 2**n in [2**30, 2**31), for a positive number of 32 bits."""
    return _leading(m, x)[1]


def normal_reciprocal(m: Arithmetic[V], x: V, whole: int) -> V:
    """2**61 / x for a `normalized` x, at most 2**31 - 1."""
    half = (1 << 30) - 1
    found = reciprocal(m, (x - (1 << 30)) * 2, 32)
    return m.select(m.compare("sgt", found, half), 2 * half + 1, found * 2)


def _root(m: Arithmetic[V], x: V) -> tuple[V, V]:
    """(factor, shift): 1 / sqrt(x) = factor / 2**(31 + shift), for an x of 32 bits from 1 on; 0 counts as 1."""
    is_large = m.compare("sgt", x, (1 << 29) - 1)
    shift = m.select(is_large, x * 0 + 12, 11)
    found = m.select(is_large, m.ashr(x, 2), x)
    for pairs in (8, 4, 2, 1):
        is_small = m.compare("slt", found, 1 << 29 - 2 * pairs)
        shift = m.select(is_small, shift - pairs, shift)
        found = m.select(is_small, found * (1 << 2 * pairs), found)
    fine = m.ashr(found, 1)
    root, half = x * 0 + (1 << 28), halved(m, fine, 1)
    for _ in range(5):  # 3 / 2 * root - x / 2 * root**3, with three integer bits
        cube = m.high_product(m.high_product(root, root), root) * 64
        root = (m.high_product(root, 3 << 27) - m.high_product(half, cube)) * 8
    factor = m.high_product(root, HALF_ROOT)
    for bits in (1, 2):
        is_left = m.compare("slt", shift, -bits + 1)
        factor = m.select(is_left, factor * 2, factor)
    is_unit = m.compare("slt", x, 2)
    factor = m.select(is_unit, (1 << 31) - 1, factor)
    return factor, m.select(is_unit, 0, m.select(m.compare("slt", shift, 0), 0, shift))


def root_factor(m: Arithmetic[V], x: V, whole: int) -> V:
    """The factor of an inverse square root: see `_root`."""
    return _root(m, x)[0]


def root_shift(m: Arithmetic[V], x: V, whole: int) -> V:
    """The shift of an inverse square root: see `_root`."""
    return _root(m, x)[1]


FUNCTIONS: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "logistic": logistic,
    "tanh": tanh,
    "leading_zeros": leading_zeros,
    "normalized": normalized,
    "normal_reciprocal": normal_reciprocal,
    "root_factor": root_factor,
    "root_shift": root_shift,
}
"""Name of a `FixedPoint` -> the function, of (arithmetic, value, integer bits)."""
SOURCES = {"logistic": "int16", "tanh": "int16"}
"""Name of a `FixedPoint` -> the type of its value, an int32 where it is not here."""


class Arrays:
    """Arithmetic of int64 arrays."""

    def ashr(self, value: np.ndarray, distance: int) -> np.ndarray:
        return np.asarray(value >> distance)

    def compare(self, condition: str, left: np.ndarray, right: int) -> np.ndarray:
        return np.asarray(COMPARED[condition](left, right))

    def select(self, condition: np.ndarray, if_true: Any, if_false: Any) -> np.ndarray:
        return np.asarray(np.where(condition, if_true, if_false))

    def high_product(self, a: np.ndarray, b: Any) -> np.ndarray:
        return np.asarray((a * b + (1 << 30)) >> 31)

    def word_product(self, a: np.ndarray, b: Any) -> np.ndarray:
        return np.asarray(a * b)


COMPARED = {"eq": np.equal, "ne": np.not_equal, "slt": np.less, "sgt": np.greater}


@dataclass(frozen=True, slots=True)
class FixedPoint(Expr):
    """A function of a fixed-point number; an int32.

    Attributes:
        function: a name of FUNCTIONS.
        value: an integer of the function's type in SOURCES.
        whole: the value's integer bits, from 0 to MOST_WHOLE; of those functions that ask for them.
    """

    part_names: ClassVar[tuple[str, ...]] = ("value",)
    function: str
    value: Expr
    whole: int = 0

    def __str__(self) -> str:
        return f"fixed.{self.function}({self.value}, {self.whole} whole bits)"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        return (found[0] or SOURCES.get(self.function, "int32"),)

    def type_of(self, part_types: Sequence[str]) -> str:
        return "int32"

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        return FUNCTIONS[self.function](Arrays(), parts[0].astype(np.int64), self.whole)
