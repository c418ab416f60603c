"""The functions of expressions by name, for floats and for integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.maths.builder import Builder, V, native
from jitdelegate.targets.maths.division import (
    floor_quotient,
    floor_remainder,
    integer_floor_quotient,
    integer_floor_remainder,
    integer_quotient,
)
from jitdelegate.targets.maths.exponential import erf, exp, log, tanh
from jitdelegate.targets.maths.half import rounded_to_bfloat16
from jitdelegate.targets.maths.power import integer_power, power
from jitdelegate.targets.maths.trigonometry import atan2, cos, sin


def apply(b: Builder[V], name: str, dtype: str, *values: V) -> V:
    """The function `name` of `ir.expr` on values of type `dtype`."""
    own = b.native(name, *values) if dtype == "float32" else None
    if own is not None:
        return own
    found: V = _functions(name, dtype)[name](b, *values)
    return found


def _functions(name: str, dtype: str) -> Mapping[str, Callable[..., Any]]:
    if dtype == "float32":
        return FLOAT_FUNCTIONS
    if dtype == "float64":
        return DOUBLE_FUNCTIONS
    assert dtype != "float16", f"{name} of float16, which is only moved"
    is_unsigned = not ELEMENT_TYPES[dtype].is_signed and name in UNSIGNED_FUNCTIONS
    return UNSIGNED_FUNCTIONS if is_unsigned else INTEGER_FUNCTIONS


def _logistic(b: Builder[V], x: V) -> V:
    return 1.0 / (apply(b, "exp", "float32", -x) + 1.0)


def _rsqrt(b: Builder[V], x: V) -> V:
    return 1.0 / apply(b, "sqrt", "float32", x)


def _sign(b: Builder[V], x: V) -> V:
    """-1, 0 or 1; NaN stays NaN, and -0 becomes 0."""
    return b.select(b.compare("ogt", x, 0.0), 1.0, b.select(b.compare("olt", x, 0.0), -1.0, x + 0.0))


def _fused(b: Builder[V], x: V, y: V, z: V) -> V:
    """x * y + z, rounded once, where no instruction does that: see `ir.expr.odd_sum`."""
    x, y, z = (b.convert("fpext", value, "double") for value in (x, y, z))
    product = x * y
    total = product + z
    rest = total - product
    error = (product - (total - rest)) + (z - rest)
    bits, of_error = (b.convert("bitcast", value, "i64") for value in (total, error))
    moved = bits + (b.ashr(bits ^ of_error, 63) | 1)  # towards the error
    is_even = b.compare("eq", bits & 1, 0)
    odd = b.select(b.compare("one", error, 0.0), b.select(is_even, moved, bits), bits)
    return b.convert("fptrunc", b.convert("bitcast", odd, "double"), "float")


def _integer_sign(b: Builder[V], x: V) -> V:
    return b.maximum(b.minimum(x, 1), -1)


def _shift_left(b: Builder[V], x: V, distance: V) -> V:
    """0 where the distance is negative, or no less than the number of bits."""
    return b.select(b.compare("ult", distance, x.bits), x << distance, 0)


def _shift_right(b: Builder[V], x: V, distance: V) -> V:
    """Arithmetic shift to the right; the distance is clamped to 0 to bits - 1."""
    return b.ashr(x, b.minimum(b.maximum(distance, 0), x.bits - 1))


def _unsigned_shift_right(b: Builder[V], x: V, distance: V) -> V:
    return x >> _smaller(b, distance, b.like(x.bits - 1, x))


def _larger(b: Builder[V], x: V, y: V) -> V:
    return b.select(b.compare("ult", x, y), y, x)


def _smaller(b: Builder[V], x: V, y: V) -> V:
    return b.select(b.compare("ult", y, x), y, x)


def _comparisons(conditions: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    return {name: _comparison(condition) for name, condition in conditions.items()}


def _comparison(condition: str) -> Callable[..., Any]:
    return lambda b, x, y: b.compare(condition, x, y)


ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": lambda b, x, y: x + y,
    "sub": lambda b, x, y: x - y,
    "mul": lambda b, x, y: x * y,
    "max": lambda b, x, y: b.maximum(x, y),
    "min": lambda b, x, y: b.minimum(x, y),
    "neg": lambda b, x: -x,
}
FLOAT_COMPARISONS = _comparisons({"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"})
FLOAT_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **ARITHMETIC,
    "div": lambda b, x, y: x / y,
    "fma": _fused,
    "rsqrt": _rsqrt,
    "sign": _sign,
    "sin": sin,
    "cos": cos,
    "erf": erf,
    "floor_div": floor_quotient,
    "floor_mod": floor_remainder,
    "pow": power,
    "atan2": atan2,
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "logistic": _logistic,
    "bfloat16": rounded_to_bfloat16,
    **FLOAT_COMPARISONS,
}
"""Functions of floats, by their names in `ir.expr.UNARY`, `BINARY`, `COMPARISONS` or `TERNARY`. Those in
`builder.NATIVE` are not among them."""
DOUBLE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **ARITHMETIC,
    **FLOAT_COMPARISONS,
    "div": FLOAT_FUNCTIONS["div"],
    "abs": lambda b, x: native(b, "abs", x),
}

INTEGER_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **ARITHMETIC,
    "abs": lambda b, x: b.select(b.compare("slt", x, 0), -x, x),
    "sign": _integer_sign,
    "div": integer_quotient,
    "floor_div": integer_floor_quotient,
    "floor_mod": integer_floor_remainder,
    "pow": integer_power,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "and": lambda b, x, y: x & y,
    "or": lambda b, x, y: x | y,
    "xor": lambda b, x, y: x ^ y,
    "not": lambda b, x: b.compare("eq", x, 0),
    **_comparisons({"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}),
}
"""Functions of integers, which wrap and never trap, and of bools."""

UNSIGNED_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": _larger,
    "min": _smaller,
    "shift_right": _unsigned_shift_right,
    **_comparisons({"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}),
}
"""Functions that differ for unsigned integers and bools."""
