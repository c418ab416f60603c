"""Rescale and Table in plain Python integers, and the cases that every target computes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from jitdelegate.ir.expr import Arg, evaluate
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import Rescale, Table, rescale

HALF, MOST = 1 << 30, (1 << 31) - 1


# gemmlowp's functions, as LiteRT's kernels call them


def high_multiply(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul: a * b / 2**31, a nudge by sign, then truncated; b is not negative."""
    nudged = a * b + (1 << 30 if a * b >= 0 else 1 - (1 << 30))
    return abs(nudged) // (1 << 31) * (1 if nudged >= 0 else -1)


def divided_away(x: int, exponent: int) -> int:
    """RoundingDivideByPOT: halves away from zero."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def halves_up(x: int, exponent: int) -> int:
    """x / 2**exponent, rounded once."""
    return (2 * x + (1 << exponent)) // (2 << exponent)


def once(x: int, multiplier: int, shift: int) -> int:
    return halves_up(x * multiplier, shift)


def twice(second: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    """First by 31 bits, then by the rest; once where the shift is no larger."""

    def rounded(x: int, multiplier: int, shift: int) -> int:
        small = shift <= 31
        return once(x, multiplier, shift) if small else second(high_multiply(x, multiplier), shift - 31)

    return rounded


ROUNDED = {"single": once, "double": twice(divided_away), "double_up": twice(halves_up)}


def rescaled(expr: Rescale, value: int, multiplier: int, shift: int) -> int:
    found = ROUNDED[expr.rounding](value - expr.input_zero, multiplier, shift) + expr.output_zero
    return min(max(found, expr.low), expr.high)


def looked_up(expr: Table, value: int, smallest: int) -> int:
    if len(expr.entries) == 256:
        return expr.entries[value - smallest]
    place, rest = divmod(value + 32768, 128)
    return expr.entries[place] * (128 - rest) + expr.entries[place + 1 if rest else place] * rest


def values(dtype: str, size: int = 200) -> np.ndarray:
    """The ends and the middle of a type, small numbers, odd multiples of powers of two (ties), and random numbers."""
    limits = np.iinfo(dtype)
    bits = min(limits.bits, 48)
    low, high = max(limits.min, -(1 << bits - 1)), min(limits.max, (1 << bits - 1) - 1 if limits.min else limits.max)
    ties = [sign * odd << k for k in range(bits - 3) for odd in (1, 3) for sign in (1, -1)]
    edges = [low, low + 1, high, high - 1, *range(-5, 20), *ties]
    random = np.random.default_rng(0).integers(low, high, size, np.int64, endpoint=True)
    return np.array([x for x in edges if low <= x <= high] + random.tolist()).astype(dtype)


FACTORS = (
    (HALF, 31),
    (HALF, 32),
    (HALF, 38),
    (MOST, 33),
    (MOST, 31),
    (1518500250, 40),
    (1518500250, 29),
    (3, 2),
    (0, 40),
)
BY_CONSTANTS = [
    *(
        (rescale(Arg(0), *factor, dtype, rounding=rounding), "int32")
        for factor, dtype, rounding in product(FACTORS, ("int8", "int32"), ROUNDED)
    ),
    *(
        (rescale(Arg(0), *factor, "int16"), "int16")
        for factor in ((1518500250, 33), (MOST, 31), (MOST, 46), (HALF + 0x8001, 47), (HALF - 1, 17), (5, 16))
    ),
    *((rescale(Arg(0), 1518500250, 33, "int8", input_zero=-7, rounding=rounding), "int8") for rounding in ROUNDED),
    (rescale(Arg(0), 1518500250, 33, "int8", input_zero=-7, output_zero=11, low=-20, high=101), "int8"),
    (rescale(Arg(0), MOST, 30, "uint8", input_zero=128, output_zero=3, rounding="single"), "uint8"),
    (rescale(Arg(0), MOST, 62, "int16", input_zero=-32768, rounding="double_up"), "int16"),
    (rescale(Arg(0), 1518500250, 30, "int16", input_zero=65535, output_zero=-5), "uint16"),
    (rescale(Arg(0), 30000, 31, "int16", rounding="single"), "int64"),
    (rescale(Arg(0), 32767, 47, "int32", rounding="double"), "int64"),
    (rescale(Arg(0), MOST, 33, "uint32"), "int32"),
]
"""Rescales with constants, and the types of their values."""
TABLES = [
    (Table(Arg(0), tuple((k * 77) % 256 - 128 for k in range(256)), "int8"), "int8"),
    (Table(Arg(0), tuple((k * 77) % 256 for k in range(256)), "uint8"), "uint8"),
    (Table(Arg(0), tuple(k * k * 999 - (1 << 25) for k in range(256)), "int32"), "int8"),
    (Table(Arg(0), tuple(k * 31 % 65536 - 32768 for k in range(513)), "int32"), "int16"),
    (Table(Arg(0), tuple((-1) ** k * 32767 - (k == 5) for k in range(513)), "int32"), "int16"),
]
"""Tables, and the types of their values."""


def rescale_case(expr: Rescale, dtype: str) -> tuple[list[np.ndarray], list[int]]:
    """Operands, and what plain integers give."""
    found, multiplier, shift = values(dtype), int(str(expr.multiplier)), int(str(expr.shift))
    return [found], [rescaled(expr, value, multiplier, shift) for value in found.tolist()]


def channel_case(rounding: str) -> tuple[Rescale, list[np.ndarray], list[int]]:
    """Multiplier and shift as operands, other ones for each element."""
    expr = rescale(Arg(0), Arg(1), Arg(2), "int8", output_zero=-3, rounding=rounding)
    found = values("int32")
    random = np.random.default_rng(1)
    multipliers = random.integers(0, MOST, found.size, np.int32, endpoint=True)
    shifts = random.integers(2, 62, found.size, np.int32, endpoint=True)
    rows = zip(found.tolist(), multipliers.tolist(), shifts.tolist(), strict=True)
    return expr, [found, multipliers, shifts], [rescaled(expr, *row) for row in rows]


def table_case(expr: Table, dtype: str) -> tuple[list[np.ndarray], list[int]]:
    """All values of 8 bits, or some of 16, the ends of intervals among them; and what plain integers give."""
    limits = np.iinfo(dtype)
    every = range(limits.min, limits.max + 1, 1 if limits.bits == 8 else 29)
    ends = [x + k for x in range(-1024, 1024, 128) for k in (0, 127)] if limits.bits > 8 else []
    found = np.array([*every, *ends, limits.max])
    return [found.astype(dtype)], [looked_up(expr, value, int(limits.min)) for value in found.tolist()]


REAL = {"logistic": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh}
FIXED_POINT = [FixedPoint("logistic", Arg(0), 3), *(FixedPoint("tanh", Arg(0), whole) for whole in (0, 3, 4, 6))]
FLOATS = tuple(float(np.float32(1 / (k + 3))) for k in range(256))
"""Entries of a Table of float32."""


def fixed_point_case(expr: FixedPoint, step: int) -> tuple[list[np.ndarray], list[int]]:
    """Every `step`-th int16 and the ends, and what numpy gives, which is within 13 steps of the real function."""
    stored = np.array([*range(-32768, 32768, step), -1, 0, 1, 32767], np.int16)
    found = evaluate(expr, [stored])
    real = REAL[expr.function](stored / 2.0 ** (15 - expr.whole)) * 32768
    assert abs(found - real).max() < 13
    return [stored], found.tolist()


NORMAL = FixedPoint("normalized", Arg(0))
EXACT: dict[str, tuple[FixedPoint, Callable[[int], float], float]] = {
    "leading zeros": (FixedPoint("leading_zeros", Arg(0)), lambda x: 32 - x.bit_length(), 0),
    "normalized": (NORMAL, lambda x: x << 31 - x.bit_length(), 0),
    "reciprocal": (FixedPoint("normal_reciprocal", NORMAL), lambda x: 2.0 ** (30 + x.bit_length()) / x, 9),
    "root's factor": (FixedPoint("root_factor", Arg(0)), lambda x: 2.0 ** (31 + _right(x)) / x**0.5, 1 << 12),
    "root's shift": (FixedPoint("root_shift", Arg(0)), lambda x: _right(x), 0),
}
"""Functions of positive numbers of 32 bits: expression, plain Python, and the largest error."""


def _right(x: int) -> int:
    """The shift that leaves 1 / sqrt(x) 31 bits."""
    return max(0, 12 - (31 - x.bit_length()) // 2)


def positive_case(name: str) -> tuple[FixedPoint, list[np.ndarray], list[int]]:
    """An expression of EXACT, numbers next to powers of two and random ones, and what numpy gives."""
    expr, exact, most = EXACT[name]
    powers = [1 << k for k in range(31)]
    random = np.random.default_rng(0).integers(1, 1 << 31, 100).tolist()
    stored = np.array([*powers, *(x - 1 for x in powers[1:]), *(x + 1 for x in powers), *random], np.int32)
    found = evaluate(expr, [stored]).tolist()
    assert all(abs(one - exact(x)) <= most for one, x in zip(found, stored.tolist(), strict=True))
    return expr, [stored], found
