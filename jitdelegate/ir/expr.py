"""Scalar expressions over one element: the computation of a Map, and the epilogue of any other kernel.

An expression is an immutable tree. Targets emit it as vector instructions; `evaluate` runs it on numpy arrays. Every
part has a type, a name of `ir.types`: the type of its operands; a constant takes the type of the operand beside it.
Each operation rounds once, except that a target may contract a * b + c into one FMA; integers wrap. `ir.quantized` has
the expressions of quantized models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import erf
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.bfloat16 import bfloat16_bits, bfloat16_numbers

UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "tanh": np.tanh,
    "logistic": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "erf": np.vectorize(erf, otypes=[np.float32]),
    "not": np.logical_not,
    "bfloat16": lambda x: bfloat16_numbers(bfloat16_bits(x)),
}
"""Name -> the function on numpy arrays. "round" takes halves to the even number; the sign of NaN is NaN;
"bfloat16" gives the nearest number of that type."""


def _quotient(a: Any, b: Any) -> Any:
    """Quotients of integers are truncated towards zero, as in C."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    with np.errstate(all="ignore"):
        whole = np.floor_divide(a, b)
    return whole + ((whole < 0) & (whole * b != a))


def _floor_quotient(a: Any, b: Any) -> Any:
    """Quotients of floats are computed in float64, as in TFLite, so that 1 / 0.1f stays below 10."""
    if a.dtype.kind == "f":
        return np.floor(a.astype(np.float64) / b.astype(np.float64))
    return np.floor_divide(a, b)


def _floor_remainder(a: Any, b: Any) -> Any:
    """The remainder has the sign of `b`; as in TFLite, that of a finite by an infinite number may be infinite."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _shift_right(a: Any, b: Any) -> Any:
    """The shift is limited to 0 ... number of bits - 1, which leaves the sign of signed integers."""
    return np.right_shift(a, np.clip(b, 0, 8 * a.dtype.itemsize - 1))


def _shift_left(a: Any, b: Any) -> Any:
    """0 where the shift is negative, or no less than the number of bits."""
    bits = 8 * a.dtype.itemsize
    return np.where((b >= 0) & (b < bits), np.left_shift(a, np.clip(b, 0, bits - 1)), 0)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "floor_div": _floor_quotient,
    "floor_mod": _floor_remainder,
    "pow": np.power,
    "atan2": np.arctan2,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
}
"""Name -> the function on numpy arrays. "div" of integers truncates towards zero; "and", "or" and "xor" are bitwise.
Integers divided by 0 give 0."""

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
"""Name -> the function on numpy arrays: bool. All except "ne" are false where an operand is NaN."""


def odd_sum(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32 as a float64. The product is exact there. A sum that is not exact is rounded to an odd
    number, so that rounding it once more never sees a tie that is none."""
    product, addend = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits, is_same = total.view(np.int64), (error > 0) == (total > 0)
    moved = np.where(is_same, bits + 1, bits - 1)
    is_even = (bits & 1 == 0) & np.isfinite(error) & (error != 0)
    return np.where(is_even, moved, bits).view(np.float64)


TERNARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "select": np.where,
    "fma": lambda a, b, c: odd_sum(a, b, c).astype(np.float32),
}
"""Name -> the function on numpy arrays. "fma" is a * b + c of float32, rounded once on every target; "select" has a
bool first."""


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression tree; built by arithmetic on `Arg`s, Python numbers and the functions below.

    Attributes:
        part_names: the fields that are sub-expressions.
    """

    part_names: ClassVar[tuple[str, ...]] = ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The sub-expressions."""
        return tuple([getattr(self, name) for name in self.part_names])

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        """The same expression with other parts."""
        return replace(self, **dict(zip(self.part_names, parts, strict=True))) if parts else self

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        """The type in which each part is computed; `found` are the parts' own types, None for constants."""
        return ()

    def type_of(self, part_types: Sequence[str]) -> str:
        """The type of the result."""
        raise NotImplementedError

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        """The result, of type `dtype`, from the arrays of the parts."""
        raise NotImplementedError

    def __add__(self, other: Expr | float) -> Expr:
        return Apply("add", (self, wrap(other)))

    def __radd__(self, other: Expr | float) -> Expr:
        return Apply("add", (wrap(other), self))

    def __sub__(self, other: Expr | float) -> Expr:
        return Apply("sub", (self, wrap(other)))

    def __rsub__(self, other: Expr | float) -> Expr:
        return Apply("sub", (wrap(other), self))

    def __mul__(self, other: Expr | float) -> Expr:
        return Apply("mul", (self, wrap(other)))

    def __rmul__(self, other: Expr | float) -> Expr:
        return Apply("mul", (wrap(other), self))

    def __truediv__(self, other: Expr | float) -> Expr:
        return Apply("div", (self, wrap(other)))

    def __rtruediv__(self, other: Expr | float) -> Expr:
        return Apply("div", (wrap(other), self))

    def __neg__(self) -> Expr:
        return Apply("neg", (self,))


@dataclass(frozen=True, slots=True)
class Arg(Expr):
    """The value of operand `index` at the current element."""

    index: int

    def __str__(self) -> str:
        return f"a{self.index}"


RESULT = Arg(0)
"""In an epilogue: the form's own result."""


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A number in the type of the operand beside it; a fraction needs a float there. 0.0 and -0.0 differ."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Apply(Expr):
    """A named function of UNARY, BINARY, COMPARISONS or TERNARY, applied to sub-expressions."""

    function: str
    arguments: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.arguments

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Apply(self.function, parts)

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        """One type for all parts except the condition of a "select"; float32 if all of them are constants."""
        first = int(self.function == "select")
        common = next((dtype for dtype in found[first:] if dtype is not None), "float32")
        return ("bool",) * first + (common,) * (len(found) - first)

    def type_of(self, part_types: Sequence[str]) -> str:
        return "bool" if self.function in COMPARISONS else part_types[-1]

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        functions: tuple[dict[str, Callable[..., Any]], ...] = (UNARY, BINARY, COMPARISONS, TERNARY)
        return next(table[self.function] for table in functions if self.function in table)(*parts)


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """A number in another type: floats are truncated towards zero and limited to the integers' range (NaN becomes 0),
    integers wrap, and bool is false for 0 and true for all else."""

    part_names: ClassVar[tuple[str, ...]] = ("value",)
    value: Expr
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}({self.value})"

    def part_types(self, found: Sequence[str | None]) -> tuple[str, ...]:
        return (found[0] or _own_type(self.value),)

    def type_of(self, part_types: Sequence[str]) -> str:
        return self.dtype

    def compute(self, parts: Sequence[np.ndarray], dtype: str) -> Any:
        return converted(parts[0], dtype)


def _own_type(value: Expr) -> str:
    """The type that holds a number beside no operand, without rounding it."""
    number = value.value if isinstance(value, Const) else 0.0
    with np.errstate(over="ignore"):
        is_exact = number != number or float(np.float32(number)) == number
    return "float32" if is_exact else "int64" if isinstance(number, int) else "float64"


def wrap(value: Expr | float) -> Expr:
    """An expression as it is; a number as a `Const`, rounded to float32 unless it is an integer beyond float32."""
    if isinstance(value, Expr):
        return value
    return Const(value if isinstance(value, int) and int(np.float32(value)) != value else float(np.float32(value)))


def unary(function: str, x: Expr | float) -> Expr:
    """`function` of UNARY applied to `x`."""
    assert function in UNARY, function
    return Apply(function, (wrap(x),))


def binary(function: str, a: Expr | float, b: Expr | float) -> Expr:
    """`function` of BINARY or COMPARISONS applied to both."""
    assert function in BINARY or function in COMPARISONS, function
    return Apply(function, (wrap(a), wrap(b)))


def select(condition: Expr, a: Expr | float, b: Expr | float) -> Expr:
    """`a` where the condition, a bool, is true, `b` elsewhere."""
    return Apply("select", (condition, wrap(a), wrap(b)))


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    """a * b + c, rounded once."""
    return Apply("fma", (a, wrap(b), wrap(c)))


def maximum(a: Expr | float, b: Expr | float) -> Expr:
    """The larger of both; NaN in `a` stays NaN."""
    return Apply("max", (wrap(a), wrap(b)))


def minimum(a: Expr | float, b: Expr | float) -> Expr:
    """The smaller of both; NaN in `a` stays NaN."""
    return Apply("min", (wrap(a), wrap(b)))


def clamp(x: Expr, low: float, high: float) -> Expr:
    """`x` limited to [low, high]."""
    return minimum(maximum(x, low), high)


def substitute(expr: Expr, arguments: Sequence[Expr]) -> Expr:
    """`expr` with every `Arg(i)` replaced by `arguments[i]`."""
    if isinstance(expr, Arg):
        return arguments[expr.index]
    return expr.rebuilt(tuple(substitute(part, arguments) for part in expr.parts))


def arity(expr: Expr) -> int:
    """One more than the highest `Arg` index in `expr`; 0 if there is none."""
    if isinstance(expr, Arg):
        return expr.index + 1
    return max(map(arity, expr.parts), default=0)


def result_type(expr: Expr, types: Sequence[str]) -> str | None:
    """The type of `expr` where Arg(i) has types[i]; None for constants, which take any."""
    if isinstance(expr, Arg):
        return types[expr.index]
    return None if isinstance(expr, Const) else expr.type_of(argument_types(expr, types))


def argument_types(expr: Expr, types: Sequence[str]) -> tuple[str, ...]:
    """The type in which each part of `expr` is computed."""
    return expr.part_types([result_type(part, types) for part in expr.parts])


def evaluate(expr: Expr, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """`expr` computed on arrays that broadcast together."""
    types = [str(array.dtype) for array in arguments]
    return _evaluate(expr, arguments, types, result_type(expr, types) or "float32")


def _evaluate(expr: Expr, arguments: Sequence[np.ndarray], types: Sequence[str], dtype: str) -> np.ndarray:
    if isinstance(expr, Arg):
        return arguments[expr.index]
    if isinstance(expr, Const):
        return np.asarray(expr.value, dtype)
    inner = zip(expr.parts, argument_types(expr, types), strict=True)
    return np.asarray(expr.compute([_evaluate(part, arguments, types, of) for part, of in inner], dtype), dtype)


def converted(values: np.ndarray, dtype: str) -> np.ndarray:
    """The values, converted as by `Cast`."""
    if values.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0.0)
        inside = np.clip(whole, float(limits.min), float(limits.max))
        over = inside >= float(limits.max)
        return np.where(over, limits.max, np.where(over, 0, inside).astype(dtype)).astype(dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype)
