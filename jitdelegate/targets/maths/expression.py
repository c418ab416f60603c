"""Emits scalar expressions as instructions. Each operation works in the type of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, argument_types
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import Quantize, Rescale, Table
from jitdelegate.ir.random_bits import RandomBits
from jitdelegate.targets.maths.builder import Builder, V
from jitdelegate.targets.maths.cast import cast
from jitdelegate.targets.maths.functions import apply
from jitdelegate.targets.maths.quantized import fixed_point, quantize, random_bits, rescale, table

KEPT = 256
"""Expressions whose steps are kept: kernels emit the same one many times."""


def emit(
    b: Builder[V], expr: Expr, arguments: Sequence[V], types: Sequence[str], dtype: str = "float32", lanes: int = 1
) -> V:
    """The value of `expr` with `arguments` in place of its Args; arguments have these `types` and `lanes` elements.

    Equal sub-expressions are emitted once. `dtype` is the type of an expression that is only a constant.
    """
    found: list[V] = []

    def value(operand: int | _Number) -> V:
        if isinstance(operand, _Number):
            return b.constant(operand.dtype, operand.value, lanes)
        return found[operand] if operand >= 0 else arguments[~operand]

    steps, last = _steps(expr, tuple(types), dtype)
    for step in steps:
        operands = list(map(value, step.operands))
        found.append(_result(b, step, operands))
    return value(last)


@dataclass(frozen=True, slots=True)
class _Number:
    """A constant."""

    dtype: str
    value: float


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation: the numbers of the steps whose results it reads, ~k for Arg(k), or constants; their types, and
    those of all Args."""

    part: Expr
    operands: tuple[int | _Number, ...]
    types: tuple[str, ...]
    arguments: tuple[str, ...]


@lru_cache(KEPT)
def _steps(expr: Expr, types: tuple[str, ...], dtype: str) -> tuple[tuple[_Step, ...], int | _Number]:
    """The operations of an expression in order, and the operand that is its value."""
    steps: list[_Step] = []
    known: dict[Expr, int] = {}

    def operand(part: Expr, of: str) -> int | _Number:
        if isinstance(part, Arg):
            return ~part.index
        if isinstance(part, Const):
            return _Number(of, part.value)
        if isinstance(part, Cast) and isinstance(part.value, Const):
            return _Number(part.dtype, part.value.value)
        if part not in known:
            inner = argument_types(part, types)
            operands = tuple(map(operand, part.parts, inner))
            known[part] = len(steps)
            steps.append(_Step(part, operands, inner, types))
        return known[part]

    last = operand(expr, dtype)
    return tuple(steps), last


def _result(b: Builder[V], step: _Step, values: list[V]) -> V:
    """One operation on the values of its operands."""
    part, types = step.part, step.types
    if isinstance(part, Cast):
        return cast(b, values[0], types[0], part.dtype)
    if isinstance(part, Rescale):
        return rescale(b, part, values, types, step.arguments)
    if isinstance(part, Quantize):
        return quantize(b, part, values)
    if isinstance(part, Table):
        return table(b, part, values[0], types[0])
    if isinstance(part, FixedPoint):
        return fixed_point(b, part, values[0], types[0])
    if isinstance(part, RandomBits):
        return random_bits(b, part, values)
    assert isinstance(part, Apply)
    return b.select(*values) if part.function == "select" else apply(b, part.function, types[-1], *values)
