"""Scalar expressions over one element: what a Map computes and what an epilogue adds to a kernel.

An expression is an immutable tree. Targets emit it as vector instructions, `evaluate` runs it on numpy arrays.
All arithmetic is float32; each operation rounds once, except that a target may contract a * b + c into one FMA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
}
"""Name -> what it computes on numpy arrays."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
"""Name -> what it computes on numpy arrays."""


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression tree; built by arithmetic on `Arg`s, Python numbers and the functions below."""

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


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A float32 constant."""

    value: float

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Apply(Expr):
    """A named function of UNARY or BINARY applied to sub-expressions."""

    function: str
    arguments: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


def wrap(value: Expr | float) -> Expr:
    """An expression as it is, a number rounded to float32 as a `Const`."""
    return value if isinstance(value, Expr) else Const(float(np.float32(value)))


def unary(function: str, x: Expr | float) -> Expr:
    """`function` of UNARY applied to `x`."""
    assert function in UNARY, function
    return Apply(function, (wrap(x),))


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
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(substitute(a, arguments) for a in expr.arguments))
    return expr


def arity(expr: Expr) -> int:
    """One more than the highest `Arg` index in `expr`; 0 if there is none."""
    if isinstance(expr, Arg):
        return expr.index + 1
    if isinstance(expr, Apply):
        return max((arity(a) for a in expr.arguments), default=0)
    return 0


def evaluate(expr: Expr, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """`expr` on float32 arrays that broadcast together."""
    if isinstance(expr, Arg):
        return arguments[expr.index]
    if isinstance(expr, Const):
        return np.asarray(expr.value, np.float32)
    assert isinstance(expr, Apply)
    values = [evaluate(a, arguments) for a in expr.arguments]
    function = UNARY[expr.function] if len(values) == 1 else BINARY[expr.function]
    result: np.ndarray = np.asarray(function(*values), np.float32)
    return result
