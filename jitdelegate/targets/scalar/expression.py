"""Emits scalar expressions as instructions. Each operation works in the type of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, argument_types
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import Quantize, Rescale, Table
from jitdelegate.targets.scalar.builder import Builder, V
from jitdelegate.targets.scalar.cast import cast
from jitdelegate.targets.scalar.functions import apply
from jitdelegate.targets.scalar.quantized import fixed_point, quantize, rescale, table


def emit(
    b: Builder[V], expr: Expr, arguments: Sequence[V], types: Sequence[str], dtype: str = "float32", lanes: int = 1
) -> V:
    """The value of `expr` with `arguments` in place of its Args; arguments have these `types` and `lanes` elements.

    Equal sub-expressions are emitted once. `dtype` is the type of an expression that is only a constant.
    """
    known: dict[Expr, V] = {}

    def value(part: Expr, of: str) -> V:
        if isinstance(part, Arg):
            return arguments[part.index]
        if isinstance(part, Const):
            return b.constant(of, part.value, lanes)
        if isinstance(part, Cast) and isinstance(part.value, Const):
            return b.constant(part.dtype, part.value.value, lanes)
        if part not in known:
            inner = argument_types(part, types)
            known[part] = _result(b, part, list(map(value, part.parts, inner)), inner)
        return known[part]

    return value(expr, dtype)


def _result(b: Builder[V], part: Expr, values: list[V], types: tuple[str, ...]) -> V:
    """One operation on values of `types`."""
    if isinstance(part, Cast):
        return cast(b, values[0], types[0], part.dtype)
    if isinstance(part, Rescale):
        return rescale(b, part, values, types)
    if isinstance(part, Quantize):
        return quantize(b, part, values)
    if isinstance(part, Table):
        return table(b, part, values[0], types[0])
    if isinstance(part, FixedPoint):
        return fixed_point(b, part, values[0], types[0])
    assert isinstance(part, Apply)
    return b.select(*values) if part.function == "select" else apply(b, part.function, types[-1], *values)
